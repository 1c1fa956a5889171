"""The learner's record of an optimizer step in the terms of the contract, so that the step can be computed again."""

from importlib.metadata import version
from itertools import groupby

import numpy as np
import torch

from rollbook.infra.demo.config import KL_LOSS_TYPE, DemoConfig
from rollbook.infra.demo.learning.records import PolicyTerms, StepRecord
from rollbook.producers import RowArrays, StepArrays
from rollbook.schemas.records.common import PolicyRef
from rollbook.schemas.records.payload import ArrayName, Cohort, CohortMember, GrpoConfig, Kernel, OldSource

_KERNEL = Kernel(
    implementation="rollbook-demo",
    package="rollbook",
    version=version("rollbook"),
    function="infra.demo.loss.row_terms",
)
_TERMS = ("pg_loss", "entropy_loss", "pg_clipfrac", "ppo_kl")


def step_arrays(record: StepRecord, policy: PolicyRef, config: DemoConfig) -> StepArrays:
    """Everything the step used and computed. `policy` is the one that the update began with."""
    rows = record.rows
    arrays = {
        ArrayName.OLD_LOG_PROBS: [row.old_log_probs for row in rows],
        ArrayName.LOG_PROBS: [row.log_probs for row in rows],
        ArrayName.REF_LOG_PROBS: [row.ref_log_probs for row in rows],
        ArrayName.ENTROPY: [row.entropy for row in rows],
        ArrayName.KL: [row.kl for row in rows],
        ArrayName.ADVANTAGES: [row.advantages for row in rows],
    }
    return StepArrays(
        consumer_batch_id=f"iteration-{record.rollout_id}",
        policy=policy,
        config=_grpo_config(config),
        cohorts=_cohorts(record),
        rows=[
            RowArrays(
                trajectory_id=row.trajectory_id,
                group_id=row.group_id,
                micro_batch_id=row.micro_batch_id,
                prompt_length=row.prompt_length,
                loss_mask=row.loss_mask,
                reward=row.reward,
            )
            for row in rows
        ],
        arrays={name: np.concatenate(parts) for name, parts in arrays.items()},
        old_source=OldSource.ROLLOUT,
        results={"loss": record.terms.loss, **{name: _term(record.terms, name) for name in _TERMS}},
        row_terms={name: [_term(row.terms, name) for row in rows] for name in _TERMS},
        kernel=_KERNEL,
        framework_version=torch.__version__,
    )


def _term(terms: PolicyTerms, name: str) -> float:
    value: float = getattr(terms, name)
    return value


def _cohorts(record: StepRecord) -> list[Cohort]:
    """Rewards were normalised group by group, refused members included."""
    return [
        Cohort(
            cohort_id=group_id,
            group_id=group_id,
            members=tuple(CohortMember(trajectory_id=row.trajectory_id, raw_reward=row.raw_reward) for row in rows),
        )
        for group_id, rows in groupby(record.rows, key=lambda row: row.group_id)
    ]


def _grpo_config(config: DemoConfig) -> GrpoConfig:
    return GrpoConfig(
        advantage_estimator="grpo",
        n_samples_per_prompt=config.samples_per_prompt,
        grpo_std_normalization=True,
        kl_loss_type=KL_LOSS_TYPE,
        kl_coef=config.kl_coef,
        eps_clip=config.eps_clip,
        eps_clip_high=config.eps_clip_high,
        entropy_coef=config.entropy_coef,
    )
