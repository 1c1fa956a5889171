"""An optimizer step of TRL as a bundle of format 1.1.0 under TRL's conventions, through capture."""

import numpy as np

from rollbook.producers.trl import StepFacts
from rollbook.producers.trl.scalars import scalars_of
from rollbook.replay.bundle.convention import Conventions, NamedConvention, WholeBatch
from rollbook.replay.bundle.model import Config
from rollbook.replay.bundle.rows import NotConsumed, Origin, Rows
from rollbook.replay.capture import Recorded
from rollbook.replay.dialects import trl

_TOKENS = frozenset({"dapo", "cispo"})
_SPLITTABLE = frozenset({"dapo", "cispo", "grpo", "sapo", "dr_grpo"})
"""Losses whose micro-batches add up to one formula over the whole step; bnpo and its mean over each one's own tokens
do not."""


def recorded_of(step: StepFacts) -> Recorded:
    rows, conditions = step.rows, step.conditions
    consumed = {row.trajectory_id for row in rows}
    groups = {name: at for at, name in enumerate(dict.fromkeys(row.identity.group_id for row in step.generation.rows))}
    whole = conditions.scale == "batch"
    mine = {row.identity.group_id for row in rows}
    others = [
        row
        for row in step.generation.scored
        if row.trajectory_id not in consumed and (whole or row.identity.group_id in mine)
    ]
    return Recorded(
        rollout_id=step.generation.rollout_id,
        step_id=step.step_id,
        rows=Rows(
            sample_ids=[row.trajectory_id for row in rows],
            group_index=[groups[row.identity.group_id] for row in rows],
            response_lengths=[len(row.response_ids) for row in rows],
            total_lengths=[len(row.prompt_ids) + len(row.response_ids) for row in rows],
            loss_mask=np.concatenate(step.loss_masks).astype(np.int32),
            raw_rewards=[row.raw_reward or 0.0 for row in rows],
            rewards=[row.advantage for row in rows],
            micro_batch_ids=step.micro_batch_ids,
        ),
        config=_config(step),
        tensors={
            "log_probs": step.log_probs,
            "old_log_probs": step.old_log_probs,
            "entropy": step.entropies,
            "advantages": step.advantages,
        },
        loss=scalars_of(step).named() if names_loss(step) else None,
        origin=Origin(
            consumer_batch_ids=[f"generation-{step.generation.rollout_id}"],
            semantic_group_ids=sorted(mine),
            actor_weight=f"{step.generation.policy.version}:{step.generation.policy.artifact_hash}",
        ),
        cohort=NotConsumed(
            [row.trajectory_id for row in others],
            [groups[row.identity.group_id] for row in others],
            [row.raw_reward or 0.0 for row in others],
        )
        if others
        else None,
    )


def names_loss(step: StepFacts) -> bool:
    """Whether a named convention computes TRL's loss of the step."""
    conditions = step.conditions
    one = len(step.micro_steps) == 1
    return conditions.is_plain and conditions.beta == 0 and (conditions.loss in _SPLITTABLE or one)


def _config(step: StepFacts) -> Config:
    conditions = step.conditions
    of_sequences = conditions.level == "sequence" and conditions.loss == "grpo"
    loss = "grpo of sequences" if of_sequences else conditions.loss
    positive, negative = conditions.temperatures
    return Config(
        advantage_estimator="grpo",
        n_samples_per_prompt=conditions.n_generations,
        grpo_std_normalization=conditions.scale != "none",
        kl_loss_type="k3",
        kl_coef=0.0,
        eps_clip=conditions.epsilon_low,
        eps_clip_high=conditions.epsilon_high,
        entropy_coef=0.0,
        conventions=Conventions(
            advantages=NamedConvention(
                framework=trl.FRAMEWORK, version=trl.VERSION, name=f"scale_rewards {conditions.scale}"
            ),
            loss=NamedConvention(framework=trl.FRAMEWORK, version=trl.VERSION, name=loss) if names_loss(step) else None,
            tau_pos=positive,
            tau_neg=negative,
            whole_batch=WholeBatch(
                tokens=step.batch_tokens if conditions.loss in _TOKENS else None,
                length=float(conditions.max_completion_length) if conditions.loss == "dr_grpo" else None,
            ),
        ),
    )
