"""What a TRL training says of itself, as frozen records of numpy arrays: copies that its next step leaves alone."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, fields
from functools import cached_property

import numpy as np

from rollbook.producers.identity import new_id, new_identity
from rollbook.schemas.digests import FloatArray, IntArray, Mask
from rollbook.schemas.records.common import PolicyRef, TrajectoryIdentity
from rollbook.schemas.records.run import RewardIdentity, Sampling


@dataclass(frozen=True, slots=True)
class SamplerCorrection:
    """TRL's `vllm_importance_sampling_mode` and the bounds of its ratio."""

    mode: str
    least: float | None
    most: float | None


@dataclass(frozen=True, slots=True)
class Choices:
    """What else a training may choose of its loss, under TRL's names; by default nothing. `vespo`: k and lambda where
    the advantage is not negative, then where it is; `has_sampler`: the sampler's log-probs are not the trainer's."""

    delta: float | None = None
    top_entropy_quantile: float = 1.0
    off_policy_mask_threshold: float | None = None
    use_bias_correction_kl: bool = False
    has_entropy_bonus: bool = False
    vespo: tuple[float, float, float, float] = (2.0, 3.0, 3.0, 2.0)
    correction: SamplerCorrection | None = None
    has_sampler: bool = False


@dataclass(frozen=True, slots=True)
class Conditions:
    """What holds for the whole training. `loss` and `scale` are TRL's own names (dapo, group); `version` is TRL's."""

    tokenizer: str
    template: str
    engine: str
    sampling: Sampling
    reward: RewardIdentity
    version: str
    framework_version: str
    loss: str
    scale: str
    level: str
    n_generations: int
    beta: float
    epsilon_low: float
    epsilon_high: float
    entropy_coef: float
    temperatures: tuple[float, float]
    max_completion_length: int
    is_plain: bool
    """Whether nothing changes the loss beside what stands here: no auxiliary loss of a model's own."""
    choices: Choices = Choices()
    aggregation: str = "sum_then_normalize"


@dataclass(frozen=True, slots=True)
class Completion:
    """One completion of T tokens, as the process that generated it has it. `raw_reward` None: no reward function had an
    opinion. `old` is None where the loss takes the log-probs of its own forward pass as the old ones. `has_gaps`: a
    sampler left a token without a number, so that `behavior` has the trainer's there."""

    prompt_hash: str
    prompt_ids: IntArray
    response_ids: IntArray
    action_mask: Mask
    loss_mask: Mask
    is_stopped: bool
    behavior: FloatArray
    current: FloatArray
    old: FloatArray | None
    reference: FloatArray | None
    raw_reward: float | None
    components: Mapping[str, float]
    advantage: float
    has_gaps: bool = field(default=False, kw_only=True)


@dataclass(frozen=True, slots=True)
class RowFacts(Completion):
    """A completion with its place in its group, which may span processes, and the number of its prompt."""

    identity: TrajectoryIdentity
    number: int

    @property
    def trajectory_id(self) -> str:
        return self.identity.trajectory_id


def in_groups(completions: Sequence[Completion], size: int, rollout_id: int) -> tuple[RowFacts, ...]:
    """The completions of all processes with fresh identities: each `size` that follow one another are a group."""
    rows: list[RowFacts] = []
    group_id, prompts = "", len(completions) // size
    for index, one in enumerate(completions):
        if index % size == 0:
            group_id = new_id()
        named = {part.name: getattr(one, part.name) for part in fields(Completion)}
        number = rollout_id * prompts + index // size
        rows.append(RowFacts(**named, identity=new_identity(group_id, index % size, size), number=number))
    return tuple(rows)


@dataclass(frozen=True)
class Generation:
    """One generation buffer of all processes, which one update trains on: the rows of the first process, then those of
    the second. `tokens` is TRL's `num_items_in_batch`."""

    rollout_id: int
    policy: PolicyRef
    rows: tuple[RowFacts, ...]
    tokens: float
    steps_per_generation: int

    @cached_property
    def scored(self) -> tuple[RowFacts, ...]:
        return tuple(row for row in self.rows if row.raw_reward is not None)

    @property
    def hidden(self) -> frozenset[str]:
        """Those of which no token counts in the loss."""
        return frozenset(row.trajectory_id for row in self.rows if not row.loss_mask.any())


@dataclass(frozen=True, slots=True)
class MicroStep:
    """One call of the loss in one process: indexes of its rows in the generation [B], log-probs and entropies
    [B, longest] of the training's own forward pass, and what was back-propagated; `entropy_coef`: the weight of its
    entropy there."""

    rows: tuple[int, ...]
    log_probs: FloatArray
    entropies: FloatArray
    loss: float
    accumulated: int
    entropy_coef: float = 0.0


@dataclass(frozen=True)
class StepFacts:
    """One process's share of an optimizer step over a part of the generation. `epoch`: pass over the generation buffer.
    Rows in `refused` are out of the loss mask. Each of `ranks` processes back-propagates its own loss; the gradients
    are averaged."""

    step_id: int
    epoch: int
    update_id: str
    generation: Generation
    micro_steps: tuple[MicroStep, ...]
    refused: frozenset[str]
    conditions: Conditions
    rank: int = 0
    ranks: int = 1

    @cached_property
    def rows(self) -> tuple[RowFacts, ...]:
        return tuple(row for micro in self.micro_steps for row in self.rows_of(micro))

    def rows_of(self, micro: MicroStep) -> tuple[RowFacts, ...]:
        return tuple(self.generation.rows[index] for index in micro.rows)

    @cached_property
    def loss_masks(self) -> tuple[Mask, ...]:
        return tuple(row.loss_mask & (row.trajectory_id not in self.refused) for row in self.rows)

    @property
    def micro_batch_ids(self) -> tuple[str, ...]:
        return tuple(f"mb-{number:04d}" for number, micro in enumerate(self.micro_steps) for _ in micro.rows)

    @cached_property
    def log_probs(self) -> FloatArray:
        return self._flat([micro.log_probs for micro in self.micro_steps])

    @cached_property
    def entropies(self) -> FloatArray:
        return self._flat([micro.entropies for micro in self.micro_steps])

    @cached_property
    def old_log_probs(self) -> FloatArray:
        found = [row.old for row in self.rows if row.old is not None]
        return np.concatenate(found) if found else self.log_probs

    @property
    def is_old_recomputed(self) -> bool:
        return self.rows[0].old is not None

    @cached_property
    def reference_log_probs(self) -> FloatArray | None:
        found = [row.reference for row in self.rows if row.reference is not None]
        return np.concatenate(found) if found else None

    @cached_property
    def advantages(self) -> FloatArray:
        return np.concatenate([np.full(len(row.response_ids), row.advantage, np.float32) for row in self.rows])

    @property
    def entropy_coef(self) -> float:
        return self.micro_steps[0].entropy_coef

    @property
    def loss(self) -> float:
        """What all micro-batches together back-propagated."""
        return float(sum(micro.loss for micro in self.micro_steps))

    @property
    def batch_tokens(self) -> float:
        """What the losses of tokens are divided by: this process's part of the step's share of the generation's tokens,
        which is the same in all processes however many tokens each has."""
        left_out = sum(int(row.loss_mask.sum()) for row in self.generation.rows if row.trajectory_id in self.refused)
        tokens = max(self.generation.tokens - left_out, 1.0)
        return tokens / self.ranks * self.micro_steps[0].accumulated / self.generation.steps_per_generation

    def _flat(self, matrices: list[FloatArray]) -> FloatArray:
        joined = [row for matrix in matrices for row in matrix]
        return np.concatenate(
            [values[: len(row.response_ids)] for row, values in zip(self.rows, joined, strict=True)], dtype=np.float32
        )
