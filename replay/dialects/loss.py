"""A policy's loss under a convention, from log-probs and advantages to one number."""

from dataclasses import dataclass, field

from rollbook.replay.dialects.additions import NOTHING, Additions
from rollbook.replay.dialects.microbatches import MicroBatches
from rollbook.replay.dialects.rules import Cap, Level, LossRule, Surrogate
from rollbook.replay.kernels import surrogate
from rollbook.replay.kernels.aggregate import Aggregation, Mode, Totals, aggregate
from rollbook.replay.kernels.array import Array, namespace
from rollbook.replay.kernels.masked import hide, masked_mean


@dataclass(frozen=True, slots=True)
class Bounds:
    """The numbers of a loss that a run chooses: clip range, dual clip, SAPO's temperatures, the
    largest ratio at all, VESPO's exponents and decays."""

    low: float = 0.2
    high: float = 0.2
    dual: float | None = None
    positive: float = 1.0
    negative: float = 1.05
    most: float | None = None
    gamma: surrogate.Gamma = field(default_factory=surrogate.Gamma)


@dataclass(frozen=True, slots=True)
class Policies:
    """What a policy's loss is computed of: float [rows, tokens] each, `mask` bool; `weights` multiply the losses of
    tokens (importance correction). `batches`: micro-batches, where there are several."""

    log_probs: Array
    old_log_probs: Array
    advantages: Array
    mask: Array
    weights: Array | None = None
    batches: MicroBatches | None = None


@dataclass(frozen=True, slots=True)
class PolicyLoss:
    """`losses`: per token, after weights, masks and KL; `loss`: aggregated; `clipped`, `dual_clipped`: per token;
    `log_ratios`: per token as the surrogate saw them, before any of a sequence; `uncertain`: bool, the tokens whose
    entropy lets them into the loss."""

    losses: Array
    loss: Array
    clipped: Array
    dual_clipped: Array
    log_ratios: Array
    ratios: Array
    uncertain: Array


def policy_loss(
    given: Policies,
    rule: LossRule,
    bounds: Bounds,
    totals: Totals = Totals(),  # noqa: B008
    additions: Additions = NOTHING,
) -> PolicyLoss:
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
    elif rule.surrogate is Surrogate.VESPO:
        losses = surrogate.vespo(
            log_ratios, given.log_probs, advantages, given.mask, gamma=bounds.gamma, weights=given.weights
        )
    else:
        losses = surrogate.reinforce(given.log_probs, advantages)
    if given.weights is not None and rule.surrogate is not Surrogate.VESPO:
        losses = losses * given.weights
    uncertain = given.mask
    if additions.off_policy is not None:
        kept = additions.off_policy.kept(given.log_probs, advantages, given.mask)
        losses = losses * xp.astype(kept, losses.dtype)
    if additions.uncertain is not None:
        uncertain = additions.uncertain.kept(given.mask, given.batches)
        losses = losses * xp.astype(uncertain, losses.dtype)
    if additions.penalty is not None:
        losses = losses + additions.penalty.of(given.log_probs, ratios)
    return PolicyLoss(
        losses=losses,
        loss=reduced(losses, given, rule, totals),
        clipped=clipped,
        dual_clipped=dual_clipped,
        log_ratios=log_ratios,
        ratios=ratios,
        uncertain=uncertain,
    )


def reduced(values: Array, given: Policies, rule: LossRule, totals: Totals) -> Array:
    """Token values as the rule puts a step's losses together; a stated total is of the whole step."""
    of_step = totals.tokens is not None or totals.sequences is not None
    if given.batches is None or not rule.by_micro_batch or of_step:
        return aggregate(values, given.mask, rule.aggregation, totals)
    return given.batches.means(values, given.mask, rule.aggregation, totals)


def mean_entropy(entropy: Array, given: Policies, uncertain: Array) -> Array:
    """The mean over the tokens of each micro-batch that count; then over the micro-batches."""
    rule = Aggregation(Mode.TOKEN_MEAN, token_floor=1.0)
    if given.batches is None:
        return aggregate(entropy, uncertain, rule)
    return MicroBatches(given.batches.rows).means(entropy, uncertain, rule, Totals())


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
