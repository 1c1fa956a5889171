"""The bundle format's stages in plain numpy, written from its text alone: the learner's records must agree.

What is taken over many rows, and cancels within a group, is taken in float64 and rounded: in float32 the order shows.
"""

import numpy as np
import numpy.typing as npt

from rollbook.infra.demo.config import DemoConfig
from rollbook.infra.demo.learning.records import RowRecord, StepRecord

Array = npt.NDArray[np.float32]
TERMS = ("loss", "pg_loss", "entropy_loss", "pg_clipfrac", "ppo_kl")


def rewards(step: StepRecord) -> Array:
    """Stage reward.post_process."""
    groups = np.array([row.group_index for row in step.rows])
    raw = np.array([row.raw_reward for row in step.rows], dtype=np.float64)
    out = np.empty_like(raw, dtype=np.float32)
    for group in np.unique(groups):
        members = raw[groups == group]
        centred = members - members.mean()
        out[groups == group] = centred / (np.sqrt((centred**2).sum() / (len(members) - 1)) + 1e-6)
    return out


def kl(row: RowRecord) -> Array:
    """Stage advantage.kl, low_var_kl."""
    d = row.old_log_probs - row.ref_log_probs
    out: Array = np.clip(np.exp(-d) - np.float32(1) + d, np.float32(-10), np.float32(10))
    return out


def advantages(row: RowRecord, reward: np.float32) -> Array:
    """Stage advantage.estimate."""
    return np.full(len(row.loss_mask), reward, dtype=np.float32)


def terms(row: RowRecord, advantage: Array, config: DemoConfig) -> Array:
    """One sample's share of stage loss.policy: [loss, pg_loss, entropy_loss, pg_clipfrac, ppo_kl]."""
    x = row.old_log_probs - row.log_probs
    r = np.exp(-x)
    low, high = np.float32(1 - config.eps_clip), np.float32(1 + config.eps_clip_high)
    first, second = -r * advantage, -np.clip(r, low, high) * advantage
    mask = np.array(row.loss_mask, dtype=np.float32)
    active = max(mask.sum(), np.float32(1))
    means = [
        (value * mask).sum() / active
        for value in (np.maximum(first, second), row.entropy, (second > first).astype(np.float32), x)
    ]
    return np.array([means[0] - np.float32(config.entropy_coef) * means[1], *means], dtype=np.float32)
