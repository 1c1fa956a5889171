"""The scalars of a step beside TRL's loss, and the recording of a step in the terms of the contract."""

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np

from rollbook.producers.recording import RowArrays, StepArrays
from rollbook.producers.trl.facts import StepFacts
from rollbook.schemas.digests import FloatArray
from rollbook.schemas.records.payload import ArrayName, Cohort, CohortMember, GrpoConfig, Kernel, OldSource, World

_TOKEN_LOSSES = frozenset({"dapo", "cispo", "vespo"})
_ROW_LOSSES = frozenset({"grpo", "sapo", "luspo"})


@dataclass(frozen=True, slots=True)
class Scalars:
    """`loss` is TRL's own number. The others TRL does not keep: they are computed here, from the arrays of its forward
    pass, with the divisor of its loss (entropy) or as a mean over tokens."""

    loss: float
    entropy_loss: float
    pg_clipfrac: float
    ppo_kl: float

    def named(self) -> Mapping[str, float]:
        return {
            "loss": self.loss,
            "pg_loss": self.loss,
            "entropy_loss": self.entropy_loss,
            "pg_clipfrac": self.pg_clipfrac,
            "ppo_kl": self.ppo_kl,
        }


def scalars_of(step: StepFacts) -> Scalars:
    mask = np.concatenate(step.loss_masks)
    tokens = max(int(mask.sum()), 1)
    ratio_logs = (step.log_probs.astype(np.float64) - step.old_log_probs) * mask
    clipped = _clipped(step, np.exp(ratio_logs)) & mask
    return Scalars(
        loss=step.loss,
        entropy_loss=_aggregated(step, step.entropies.astype(np.float64)),
        pg_clipfrac=float(clipped.sum() / tokens),
        ppo_kl=float(-ratio_logs.sum() / tokens),
    )


def step_arrays(step: StepFacts) -> StepArrays:
    """The step as `StepRecording` holds it. The conventions of the loss stand in the estimator's name alone."""
    conditions = step.conditions
    arrays = {
        ArrayName.BEHAVIOR_LOG_PROBS: np.concatenate([row.behavior for row in step.rows]),
        ArrayName.OLD_LOG_PROBS: step.old_log_probs,
        ArrayName.LOG_PROBS: step.log_probs,
        ArrayName.ENTROPY: step.entropies,
        ArrayName.ADVANTAGES: step.advantages,
    }
    if step.reference_log_probs is not None:
        arrays[ArrayName.REF_LOG_PROBS] = step.reference_log_probs
        distance = step.reference_log_probs.astype(np.float64) - step.log_probs
        arrays[ArrayName.KL] = (np.exp(distance) - distance - 1).astype(np.float32)
    return StepArrays(
        consumer_batch_id=f"generation-{step.generation.rollout_id}",
        policy=step.generation.policy,
        config=GrpoConfig(
            advantage_estimator=f"trl {conditions.version} {conditions.loss} scale_rewards {conditions.scale}",
            n_samples_per_prompt=conditions.n_generations,
            grpo_std_normalization=conditions.scale != "none",
            kl_loss_type="k3",
            kl_coef=conditions.beta,
            eps_clip=conditions.epsilon_low,
            eps_clip_high=conditions.epsilon_high,
            entropy_coef=conditions.entropy_coef,
        ),
        cohorts=_cohorts(step),
        rows=[
            RowArrays(
                trajectory_id=row.trajectory_id,
                group_id=row.identity.group_id,
                micro_batch_id=micro_batch_id,
                prompt_length=len(row.prompt_ids),
                loss_mask=mask,
                reward=row.advantage,
            )
            for row, mask, micro_batch_id in zip(step.rows, step.loss_masks, step.micro_batch_ids, strict=True)
        ],
        arrays=arrays,
        old_source=OldSource.RECOMPUTED if step.is_old_recomputed else OldSource.TRAIN_FORWARD,
        results=scalars_of(step).named(),
        kernel=Kernel(
            implementation="trl", package="trl", version=conditions.version, function="GRPOTrainer._compute_loss"
        ),
        normalizer=_normalizer(step),
        epoch=step.epoch,
        world=World(dp=step.ranks),
        framework_version=conditions.framework_version,
    )


def _clipped(step: StepFacts, ratio: FloatArray) -> np.ndarray[tuple[int, ...], np.dtype[np.bool_]]:
    conditions, advantages = step.conditions, step.advantages
    if conditions.loss == "cispo":
        return ratio > conditions.epsilon_high
    if conditions.loss == "sapo":
        return np.zeros(len(ratio), np.bool_)
    low = (ratio < 1 - conditions.epsilon_low) & (advantages < 0)
    return low | ((ratio > 1 + conditions.epsilon_high) & (advantages > 0))


def _aggregated(step: StepFacts, values: FloatArray) -> float:
    """The values as TRL's loss of this step would put them together."""
    parts = np.split(values, np.cumsum([len(mask) for mask in step.loss_masks])[:-1])
    sums = [float(part[mask].sum()) for part, mask in zip(parts, step.loss_masks, strict=True)]
    if step.conditions.loss in ("grpo", "sapo"):
        counts = [max(int(mask.sum()), 1) for mask in step.loss_masks]
        return float(np.mean([total / count for total, count in zip(sums, counts, strict=True)]))
    return sum(sums) / _normalizer(step)


def _normalizer(step: StepFacts) -> float:
    """What the sum over rows (of their means, or of their tokens) is divided by."""
    kind = step.conditions.loss
    if kind in _TOKEN_LOSSES:
        return step.batch_tokens
    if kind in _ROW_LOSSES:
        return float(len(step.rows))
    if kind == "dr_grpo":
        return float(len(step.rows) * step.conditions.max_completion_length)
    return float(max(sum(int(mask.sum()) for mask in step.loss_masks), 1))


def _cohorts(step: StepFacts) -> list[Cohort]:
    """The groups of the step's rows, with those of their members that fall into other steps."""
    wanted = dict.fromkeys(row.identity.group_id for row in step.rows)
    return [
        Cohort(
            cohort_id=group_id,
            group_id=group_id,
            members=tuple(
                CohortMember(trajectory_id=row.trajectory_id, raw_reward=row.raw_reward)
                for row in step.generation.rows
                if row.identity.group_id == group_id and row.raw_reward is not None
            ),
        )
        for group_id in wanted
    ]
