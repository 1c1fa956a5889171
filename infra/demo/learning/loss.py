"""GRPO's loss in torch, by the formulas of the bundle format: what the learner differentiates and what it records."""

from dataclasses import dataclass

import torch
from torch import Tensor

from rollbook.infra.demo.config import DemoConfig
from rollbook.infra.demo.learning.records import PolicyTerms


@dataclass(frozen=True, slots=True)
class RowTensors:
    """What the loss needs of one row; float32 [T] each."""

    old_log_probs: Tensor
    log_probs: Tensor
    entropy: Tensor
    advantages: Tensor
    loss_mask: Tensor


def low_var_kl(old_log_probs: Tensor, ref_log_probs: Tensor) -> Tensor:
    """Schulman's k3 estimator of the distance to the reference policy, clamped to +-10; recorded, not in the loss."""
    difference = old_log_probs - ref_log_probs
    return torch.clamp(torch.exp(-difference) - 1 + difference, -10, 10)


def row_terms(row: RowTensors, config: DemoConfig) -> Tensor:
    """The masked means [loss, pg_loss, entropy_loss, pg_clipfrac, ppo_kl] of one row; the first is differentiated.

    PPO's clipped objective (Schulman et al. 2017) with the asymmetric clip of DAPO (Yu et al. 2025).
    """
    log_ratio = row.old_log_probs - row.log_probs
    ratio = torch.exp(-log_ratio)
    plain = -ratio * row.advantages
    clipped = -torch.clamp(ratio, 1 - config.eps_clip, 1 + config.eps_clip_high) * row.advantages
    values = torch.stack([torch.maximum(plain, clipped), row.entropy, (clipped > plain).float(), log_ratio])
    active = torch.clamp(row.loss_mask.sum(), min=1)
    means = (values * row.loss_mask).sum(dim=1) / active
    loss = means[0] - config.entropy_coef * means[1]
    return torch.cat([loss[None], means])


def policy_terms(values: Tensor) -> PolicyTerms:
    """The five numbers of `row_terms`, or of a sum of such, as a record."""
    loss, pg_loss, entropy_loss, pg_clipfrac, ppo_kl = values.tolist()
    return PolicyTerms(loss, pg_loss, entropy_loss, pg_clipfrac, ppo_kl)
