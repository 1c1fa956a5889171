"""What one update takes in and what one optimizer step leaves behind: every number that an offline replay needs."""

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

FloatArray = npt.NDArray[np.float32]


@dataclass(frozen=True, slots=True)
class TrainingRow:
    """One trajectory in the learner's hands. A refused one stays in its group: its reward counts, its tokens do not."""

    trajectory_id: str
    prompt_ids: tuple[int, ...]
    response_ids: tuple[int, ...]
    behavior_log_probs: FloatArray
    raw_reward: float
    admitted: bool = True


@dataclass(frozen=True, slots=True)
class TrainingGroup:
    """All rows of one prompt: the cohort over which rewards are normalised, and never split over two steps."""

    group_id: str
    rows: tuple[TrainingRow, ...]


@dataclass(frozen=True, slots=True)
class PolicyTerms:
    """The stage loss.policy: of one row its masked means, of a step their sums over rows. float32 values."""

    loss: float
    pg_loss: float
    entropy_loss: float
    pg_clipfrac: float
    ppo_kl: float


@dataclass(frozen=True, slots=True)
class RowRecord:
    """One row of one optimizer step. Every array is float32 [response_length]."""

    trajectory_id: str
    group_id: str
    group_index: int
    micro_batch_id: str
    prompt_length: int
    loss_mask: tuple[int, ...]
    raw_reward: float
    reward: float
    old_log_probs: FloatArray
    log_probs: FloatArray
    ref_log_probs: FloatArray
    entropy: FloatArray
    kl: FloatArray
    advantages: FloatArray
    terms: PolicyTerms

    @property
    def response_length(self) -> int:
        return len(self.loss_mask)


@dataclass(frozen=True, slots=True)
class StepRecord:
    """One optimizer step; rows in the order in which the loss took them, groups whole and in sequence.

    `log_probs` and `entropy` are those of the weights before the step: the ones that the loss was computed from.
    """

    rollout_id: int
    step_id: int
    rows: tuple[RowRecord, ...]
    terms: PolicyTerms
