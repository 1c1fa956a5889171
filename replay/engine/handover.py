"""What a step took over from its rollout: both bundles' recordings of the same samples, held against each other."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from rollbook.replay.bundle.bundle import Bundle
from rollbook.replay.bundle.model import Sample, StageId
from rollbook.replay.engine.compare import compare
from rollbook.replay.engine.result import Divergence, FieldResult, most_specific
from rollbook.replay.stages.batch import token_positions
from rollbook.replay.stages.stage import DEFAULT_TOLERANCE, EXACT, Output, Unit
from rollbook.schemas.text import visible

Floats = NDArray[np.float64]

_OF_SAMPLES = {
    "response_length": StageId.SAMPLE,
    "raw_reward": StageId.REWARD_RAW,
    "reward": StageId.REWARD_POST_PROCESS,
}
_OF_TOKENS = {"advantages": StageId.ADVANTAGE_ESTIMATE, "returns": StageId.ADVANTAGE_ESTIMATE}
"""What a loss is made from. Log-probs are not among them: a rollout's are the engine's, a step's may be recomputed."""


@dataclass(frozen=True, slots=True)
class Handover:
    """What one rank of a step took over. `other_samples` are those that the rollout does not have."""

    upstream: str
    rank: int
    shared_samples: int
    other_samples: int
    fields: tuple[FieldResult, ...]
    divergence: Divergence | None


@dataclass(frozen=True, slots=True)
class Recording:
    """What a rollout's bundle recorded: of each rank by itself, and of each sample by the first rank that has it."""

    bundle_id: str
    ranks: Mapping[int, "Recorded"]
    first: "Recorded"

    @classmethod
    def of(cls, bundle_id: str, bundles: Iterable[Bundle]) -> "Recording":
        ranks = {bundle.rank: Recorded.of(bundle) for bundle in bundles}
        return cls(bundle_id, ranks, Recorded.first_of(ranks.values()))

    def seen_by(self, step: Bundle) -> "Recorded":
        """Where several ranks recorded a sample, a step's rank took over what its own did."""
        own = self.ranks.get(step.rank)
        return self.first if own is None else Recorded.first_of((own, self.first))


@dataclass(frozen=True, slots=True)
class Recorded:
    """Samples by their id, and of each token array what each of them has."""

    samples: Mapping[str, Sample]
    tokens: Mapping[str, Mapping[str, Floats]]

    @classmethod
    def of(cls, bundle: Bundle) -> "Recorded":
        every = bundle.index.samples
        ends = np.cumsum([sample.response_length for sample in every])
        spans = {
            sample.sample_id: slice(int(end) - sample.response_length, int(end))
            for sample, end in zip(every, ends, strict=True)
        }
        tokens = {
            name: {one: bundle.tensors[name][span] for one, span in spans.items()} if name in bundle.tensors else {}
            for name in _OF_TOKENS
        }
        return cls({sample.sample_id: sample for sample in every}, tokens)

    @classmethod
    def first_of(cls, several: Iterable["Recorded"]) -> "Recorded":
        """Of each sample what the first of them has."""
        samples: dict[str, Sample] = {}
        tokens: dict[str, dict[str, Floats]] = {name: {} for name in _OF_TOKENS}
        for recorded in several:
            new = recorded.samples.keys() - samples.keys()
            samples |= {name: recorded.samples[name] for name in new}
            for name, found in recorded.tokens.items():
                tokens[name] |= {one: found[one] for one in new & found.keys()}
        return cls(samples, tokens)


def handover(upstream: Recording, step: Bundle) -> Handover:
    """Compare what both have; a sample whose length differs is compared no further than that."""
    every, seen = step.index.samples, upstream.seen_by(step)
    shared = [at for at, sample in enumerate(every) if sample.sample_id in seen.samples]
    fields: list[tuple[StageId, FieldResult]] = []
    theirs = [seen.samples[every[at].sample_id] for at in shared]
    ours = [every[at] for at in shared]
    if shared:
        names = [sample.sample_id for sample in ours]
        for name, stage in _OF_SAMPLES.items():
            # A step that makes no promise about its rewards may hold anything there.
            if stage is not StageId.SAMPLE and stage not in step.manifest.stage_contracts:
                continue
            expected, actual = (_values(samples, name) for samples in (theirs, ours))
            output = Output(name, Unit.SAMPLE, name)
            tolerance = EXACT if name == "response_length" else DEFAULT_TOLERANCE
            fields.append((stage, compare(output, expected, actual, tolerance, names, np.arange(1, len(names) + 1))))
    for name, stage in _OF_TOKENS.items():
        if (found := _tokens(seen, step, shared, name)) is not None:
            fields.append((stage, found))
    return Handover(
        upstream=upstream.bundle_id,
        rank=step.rank,
        shared_samples=len(shared),
        other_samples=len(every) - len(shared),
        fields=tuple(result for _, result in fields),
        divergence=_first(upstream, step.rank, fields),
    )


def _values(samples: Sequence[Sample], name: str) -> Floats:
    return np.asarray([getattr(sample, name) for sample in samples], np.float64)


def _tokens(seen: Recorded, step: Bundle, shared: Sequence[int], name: str) -> FieldResult | None:
    recorded, samples = seen.tokens[name], step.index.samples
    alike = [
        at
        for at in shared
        if (values := recorded.get(samples[at].sample_id)) is not None and values.size == samples[at].response_length
    ]
    if name not in step.tensors or not alike:
        return None
    expected = np.concatenate([recorded[samples[at].sample_id] for at in alike]).astype(np.float64)
    actual = step.tensors[name][token_positions(samples, alike)]
    ends = np.cumsum([samples[at].response_length for at in alike])
    names = [samples[at].sample_id for at in alike]
    return compare(Output(name, Unit.TOKEN, name, payload=name), expected, actual, DEFAULT_TOLERANCE, names, ends)


def _first(upstream: Recording, rank: int, fields: Sequence[tuple[StageId, FieldResult]]) -> Divergence | None:
    for stage, _ in fields:
        of_stage = tuple(found for at, found in fields if at is stage)
        if all(found.first is None for found in of_stage):
            continue
        result = most_specific(of_stage)
        assert result.first is not None
        return Divergence(
            rank=rank,
            stage=stage,
            field=result.field,
            point=result.first,
            diverging_values=result.diverging_values,
            diverging_samples=result.diverging_samples,
            reason=f"bundle {visible(upstream.bundle_id)} recorded the expected value, the step started from the other",
        )
    return None
