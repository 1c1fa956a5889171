"""The samples under replay as flat arrays of one array library, and what the chain has recomputed of them so far."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from rollbook.replay.bundle.bundle import Bundle
from rollbook.replay.bundle.convention import RewardOnly, Unmeasured
from rollbook.replay.bundle.model import Config, Sample
from rollbook.replay.kernels.array import Array, namespace


@dataclass(frozen=True, slots=True)
class Measure:
    """Of samples and, behind them, members that were not consumed: `counts` bool, whose reward is measured; `like`
    int64 [samples], whose result each sample has, and -1 for one that has none."""

    counts: Array
    like: Array


@dataclass(frozen=True, slots=True)
class Batch:
    """Arrays: `raw_rewards` and `rewards` float32 [samples], `group_index` and `lengths` int64 [samples] (`group_index`
    None where the bundle has no groups), `mask` bool [tokens], `tensors` float32 [tokens] by payload name;
    `cohort_rewards`, `cohort_groups`: of the members of the cohort that were not consumed, [members], if any;
    `micro_batch_ids`: all of the step, in the bundle's order; `measure`: where some samples are not measured."""

    samples: tuple[Sample, ...]
    config: Config
    group_index: Array | None
    lengths: Array
    mask: Array
    raw_rewards: Array
    rewards: Array
    tensors: Mapping[str, Array]
    cohort_rewards: Array | None = None
    cohort_groups: Array | None = None
    micro_batch_ids: tuple[str, ...] = ()
    measure: Measure | None = None

    def with_cohort(self) -> tuple[Array, Array]:
        """Raw rewards and groups of the samples, and behind them those of the members that were not consumed."""
        if self.cohort_rewards is None:
            return self.raw_rewards, self.group_index
        xp = namespace(self.raw_rewards)
        rewards = xp.concat([self.raw_rewards, self.cohort_rewards])
        return rewards, xp.concat([self.group_index, self.cohort_groups])


@dataclass(slots=True)
class Chain:
    """What the stages read and leave behind: a value that an earlier stage recomputed wins over the recorded one."""

    batch: Batch
    recomputed: dict[str, Array] = field(default_factory=dict)

    @property
    def rewards(self) -> Array:
        return self.recomputed.get("rewards", self.batch.rewards)

    def tokens(self, name: str) -> Array:
        return self.recomputed.get(name, self.batch.tensors.get(name))


def batch_of(bundle: Bundle, positions: Sequence[int] | None, token_payloads: Sequence[str], xp: Any = np) -> Batch:
    """The samples at `positions` (None: all) in arrays of the library `xp`.

    `rewards` are those of expected.json, or where it has none those of the index.
    """
    everyone = bundle.index.samples
    samples = everyone if positions is None else tuple(everyone[position] for position in positions)
    chosen = slice(None) if positions is None else np.asarray(positions, dtype=np.int64)
    tokens = slice(None) if positions is None else token_positions(everyone, positions)
    groups = [sample.group_index for sample in samples]
    recorded = bundle.expected.reward_post_process
    rewards = recorded.rewards if recorded else [sample.reward for sample in everyone]
    mask = np.frombuffer(b"".join(sample.loss_mask for sample in samples), dtype=np.bool_)

    of_groups = set(groups)
    # Of the others a rule over the whole cohort is made, which a part is never recomputed by.
    others = [one for one in bundle.index.cohort or () if positions is None or one.group_index in of_groups]

    def array(values: Any, dtype: type) -> Array:
        return xp.asarray(np.array(values, dtype=dtype))

    return Batch(
        samples=samples,
        config=bundle.index.config,
        group_index=None if None in groups else array(groups, np.int64),
        lengths=array([sample.response_length for sample in samples], np.int64),
        mask=array(mask, np.bool_),
        raw_rewards=array([sample.raw_reward for sample in samples], np.float32),
        rewards=array(np.asarray(rewards)[chosen], np.float32),
        tensors={name: xp.asarray(bundle.tensors[name][tokens]) for name in token_payloads if name in bundle.tensors},
        cohort_rewards=array([one.raw_reward for one in others], np.float32) if others else None,
        cohort_groups=array([one.group_index for one in others], np.int64) if others else None,
        micro_batch_ids=bundle.index.identity.micro_batch_ids,
        measure=measure_of(bundle.index.unmeasured or (), samples, others, xp),
    )


def measure_of(
    unmeasured: Sequence[Unmeasured], samples: Sequence[Sample], others: Sequence[RewardOnly], xp: Any = np
) -> Measure | None:
    """None where every sample is measured."""
    if not unmeasured:
        return None
    everyone: tuple[Sample | RewardOnly, ...] = (*samples, *others)
    places = {one.sample_id: at for at, one in enumerate(everyone)}
    counts, like = np.ones(len(places), dtype=np.bool_), np.arange(len(samples), dtype=np.int64)
    for one in unmeasured:
        if (at := places.get(one.sample_id)) is not None:  # else of a part that was not selected
            counts[at] = False
            like[at] = -1 if one.like is None else places[one.like]
    return Measure(xp.asarray(counts), xp.asarray(like))


def token_positions(samples: Sequence[Sample], positions: Sequence[int]) -> np.ndarray[tuple[int], np.dtype[np.int64]]:
    """Where the tokens of the samples at `positions` lie in a flat payload."""
    ends = np.cumsum([sample.response_length for sample in samples], dtype=np.int64)
    lengths = np.asarray([samples[at].response_length for at in positions], dtype=np.int64)
    # Counted through within the part, then moved to where each sample lies in the whole.
    moved = ends[np.asarray(positions, dtype=np.int64)] - np.cumsum(lengths)
    return np.arange(int(lengths.sum()), dtype=np.int64) + np.repeat(moved, lengths)
