"""The numbers of a GRPO step, made up where they come from a model and computed by the kernels where they follow."""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from rollbook.replay.kernels.advantages import grpo_advantages
from rollbook.replay.kernels.kl import token_kl
from rollbook.replay.kernels.policy_loss import policy_loss
from rollbook.replay.kernels.rewards import group_rewards
from rollbook.schemas.digests import FloatArray, Mask
from rollbook.schemas.records.payload import ArrayName, GrpoConfig

CONFIG = GrpoConfig(
    advantage_estimator="grpo",
    n_samples_per_prompt=2,
    grpo_std_normalization=True,
    kl_loss_type="low_var_kl",
    kl_coef=0.1,
    eps_clip=0.2,
    eps_clip_high=0.28,
    entropy_coef=0.01,
)
TERMS = ("pg_loss", "entropy_loss", "pg_clipfrac", "ppo_kl")


@dataclass(frozen=True, slots=True)
class TrainedRow:
    """What a trainer knows of a row before the step; arrays [T]."""

    trajectory_id: str
    group_id: str
    raw_reward: float
    loss_mask: Mask
    log_probs: FloatArray


@dataclass(frozen=True, slots=True)
class StepNumbers:
    """What the step computed; arrays [N] over the tokens of all rows, `row_terms` [rows] by name."""

    rewards: tuple[float, ...]
    arrays: dict[ArrayName, FloatArray]
    results: dict[str, float]
    row_terms: dict[str, tuple[float, ...]]


def step_numbers(rows: Sequence[TrainedRow], seed: int = 0, config: GrpoConfig = CONFIG) -> StepNumbers:
    """One step over whole groups; the old log-probs are those of the rollout."""
    random = np.random.default_rng(seed)
    groups = list(dict.fromkeys(row.group_id for row in rows))
    lengths = np.array([len(row.loss_mask) for row in rows], np.int64)
    mask = np.concatenate([row.loss_mask for row in rows])
    old = np.concatenate([row.log_probs for row in rows])
    new, reference = (
        (old + random.normal(0, 0.1, len(old))).astype(np.float32),
        (old + random.normal(0, 0.2, len(old))).astype(np.float32),
    )
    entropy = random.uniform(0.1, 1.5, len(old)).astype(np.float32)
    rewards = group_rewards(
        np.array([row.raw_reward for row in rows], np.float32),
        np.array([groups.index(row.group_id) for row in rows], np.int64),
        config.n_samples_per_prompt,
        divide_by_std=config.grpo_std_normalization,
    )
    advantages = grpo_advantages(rewards, lengths)
    found = policy_loss(
        old,
        new,
        advantages,
        entropy,
        mask,
        lengths,
        eps_clip=config.eps_clip,
        eps_clip_high=config.eps_clip_high,
        entropy_coef=config.entropy_coef,
    )
    return StepNumbers(
        rewards=tuple(float(reward) for reward in rewards),
        arrays={
            ArrayName.OLD_LOG_PROBS: old,
            ArrayName.LOG_PROBS: new,
            ArrayName.REF_LOG_PROBS: reference,
            ArrayName.ENTROPY: entropy,
            ArrayName.KL: token_kl(old, reference, config.kl_loss_type),
            ArrayName.ADVANTAGES: advantages,
        },
        results={name: float(getattr(found, name)) for name in ("loss", *TERMS)},
        row_terms={name: tuple(map(float, getattr(found.terms, name))) for name in TERMS},
    )
