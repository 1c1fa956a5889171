"""A policy's loss under a convention, from log-probs and advantages to one number."""

from dataclasses import dataclass

from rollbook.replay.dialects.rules import Cap, Level, LossRule, Surrogate
from rollbook.replay.kernels import surrogate
from rollbook.replay.kernels.aggregate import Totals, aggregate
from rollbook.replay.kernels.array import Array, namespace
from rollbook.replay.kernels.masked import hide, masked_mean


@dataclass(frozen=True, slots=True)
class Bounds:
    """The numbers of a loss that a run chooses: clip range, dual clip, SAPO's temperatures, the
    largest ratio at all."""

    low: float = 0.2
    high: float = 0.2
    dual: float | None = None
    positive: float = 1.0
    negative: float = 1.05
    most: float | None = None


@dataclass(frozen=True, slots=True)
class Policies:
    """What a policy's loss is computed of: float [rows, tokens] each, `mask` bool; `weights` multiply the losses of
    tokens (importance correction)."""

    log_probs: Array
    old_log_probs: Array
    advantages: Array
    mask: Array
    weights: Array | None = None


@dataclass(frozen=True, slots=True)
class PolicyLoss:
    """`losses`: per token, after weights; `loss`: aggregated; `clipped`, `dual_clipped`: per token; `log_ratios`: per
    token as the surrogate saw them, before any of a sequence."""

    losses: Array
    loss: Array
    clipped: Array
    dual_clipped: Array
    log_ratios: Array
    ratios: Array


def policy_loss(given: Policies, rule: LossRule, bounds: Bounds, totals: Totals = Totals()) -> PolicyLoss:  # noqa: B008
    """The loss of `given` under `rule`; gradients flow to `log_probs` only."""
    xp = namespace(given.log_probs, given.old_log_probs, given.advantages, given.mask)
    log_ratios = surrogate.log_ratio(given.log_probs, given.old_log_probs, limit=rule.ratio_limit)
    ratios = xp.exp(_levelled(given, log_ratios, rule))
    if rule.hidden_ratios:
        ratios = hide(ratios, given.mask)
    advantages = given.advantages
    if rule.mean_advantages:
        of_rows = surrogate.sequence_mean(advantages, given.mask, masking=rule.row_masking)
        advantages = hide(xp.broadcast_to(of_rows, ratios.shape), given.mask)
    none = xp.zeros_like(ratios, dtype=xp.bool)
    dual = bounds.dual if rule.dual else None
    clipped, dual_clipped = none, none
    if rule.surrogate is Surrogate.PPO:
        losses = surrogate.ppo(ratios, advantages, low=bounds.low, high=bounds.high, dual=dual, most=bounds.most)
        clipped = surrogate.is_clipped(ratios, advantages, low=bounds.low, high=bounds.high)
        if dual is not None:
            dual_clipped = surrogate.is_dual_clipped(ratios, advantages, low=bounds.low, high=bounds.high, dual=dual)
    elif rule.surrogate is Surrogate.CISPO:
        least, most = (None, bounds.high) if rule.cap is Cap.ABSOLUTE else (1 - bounds.low, 1 + bounds.high)
        losses = surrogate.cispo(ratios, given.log_probs, advantages, least=least, most=most)
        clipped = ratios != xp.clip(ratios, least, most)
    elif rule.surrogate is Surrogate.SAPO:
        losses = surrogate.sapo(ratios, advantages, positive=bounds.positive, negative=bounds.negative)
    else:
        losses = surrogate.reinforce(given.log_probs, advantages)
    if given.weights is not None:
        losses = losses * given.weights
    return PolicyLoss(
        losses=losses,
        loss=aggregate(losses, given.mask, rule.aggregation, totals),
        clipped=clipped,
        dual_clipped=dual_clipped,
        log_ratios=log_ratios,
        ratios=ratios,
    )


def share(where: Array, mask: Array, *, eps: float = 0.0) -> Array:
    """The share of the tokens that count where `where` holds."""
    xp = namespace(where, mask)
    return masked_mean(xp.astype(where, xp.float64), mask, eps=eps)


def _levelled(given: Policies, log_ratios: Array, rule: LossRule) -> Array:
    xp = namespace(log_ratios)
    if rule.level is Level.TOKEN:
        return log_ratios
    mean = surrogate.sequence_mean(
        log_ratios, given.mask, floor=rule.row_floor, eps=rule.row_eps, masking=rule.row_masking
    )
    spread = (
        surrogate.through_tokens(mean, given.log_probs)
        if rule.through_tokens
        else xp.broadcast_to(mean, log_ratios.shape)
    )
    return spread if rule.sequence_limit is None else xp.clip(spread, None, rule.sequence_limit)
