"""The recording of a step in the terms of the contract. Pure."""

import numpy as np

from rollbook.producers.trl.conventions import ASYNC, TOKEN_LOSSES, conventions_of
from rollbook.producers.trl.facts import Conditions, StepFacts
from rollbook.producers.trl.scalars import scalars_of
from rollbook.producers.updates.recording import RowArrays, StepArrays
from rollbook.schemas.records.payload import ArrayName, Cohort, CohortMember, GrpoConfig, Kernel, OldSource, World

_ROW_LOSSES = frozenset({"grpo", "sapo", "luspo"})


def step_arrays(step: StepFacts) -> StepArrays:
    """The step as `StepRecording` holds it, under TRL's conventions."""
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
    return StepArrays(
        consumer_batch_id=_batch_id(step),
        policy=step.generation.policy,
        config=GrpoConfig(
            advantage_estimator="grpo",
            n_samples_per_prompt=conditions.n_generations,
            grpo_std_normalization=conditions.scale != "none",
            kl_loss_type="k3",
            kl_coef=0.0,
            eps_clip=conditions.epsilon_low,
            eps_clip_high=conditions.epsilon_high,
            entropy_coef=step.entropy_coef,
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
        old_source=_old_source(step),
        results=scalars_of(step).named(),
        kernel=Kernel(implementation="trl", package="trl", version=conditions.version, function=_function(conditions)),
        normalizer=_normalizer(step),
        epoch=step.epoch,
        world=World(dp=step.ranks),
        framework_version=conditions.framework_version,
        conventions=conventions_of(step),
    )


def _function(conditions: Conditions) -> str:
    return "AsyncGRPOTrainer.compute_loss" if conditions.loss == ASYNC else "GRPOTrainer._compute_loss"


def _old_source(step: StepFacts) -> OldSource:
    if step.conditions.loss == ASYNC:
        return OldSource.ROLLOUT
    return OldSource.RECOMPUTED if step.is_old_recomputed else OldSource.TRAIN_FORWARD


def _normalizer(step: StepFacts) -> float:
    """What the sum over rows (of their means, or of their tokens) is divided by."""
    kind = step.conditions.loss
    if kind in TOKEN_LOSSES:
        return step.batch_tokens
    if kind in _ROW_LOSSES:
        return float(len(step.rows))
    if kind == "dr_grpo":
        return float(len(step.rows) * step.conditions.max_completion_length)
    return float(max(sum(int(mask.sum()) for mask in step.loss_masks), 1))


def _cohorts(step: StepFacts) -> list[Cohort]:
    """The groups of the step's rows, with those of their members that fall into other steps; of a scale that is the
    whole generation's, all its groups as one cohort."""
    generation = step.generation
    is_whole = step.conditions.scale == "batch"
    wanted = dict.fromkeys(row.identity.group_id for row in (generation.rows if is_whole else step.rows))
    members: dict[str, list[CohortMember]] = {group_id: [] for group_id in wanted}
    for row in generation.scored:
        if row.identity.group_id in members and row.raw_reward is not None:
            member = CohortMember(trajectory_id=row.trajectory_id, raw_reward=row.raw_reward)
            members[row.identity.group_id].append(member)
    return [
        Cohort(cohort_id=_batch_id(step) if is_whole else group_id, group_id=group_id, members=tuple(found))
        for group_id, found in members.items()
        if found
    ]


def _batch_id(step: StepFacts) -> str:
    return f"generation-{step.generation.rollout_id}"
