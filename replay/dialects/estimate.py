"""Advantages under a convention."""

from dataclasses import dataclass

from rollbook.replay.dialects.rules import AdvantageRule, Grouping, Spread
from rollbook.replay.kernels.array import Array, namespace
from rollbook.replay.kernels.groups import normalize
from rollbook.replay.kernels.masked import hide
from rollbook.replay.kernels.returns import discounted_returns, generalized_advantages
from rollbook.replay.kernels.whiten import whiten


@dataclass(frozen=True, slots=True)
class Rewarded:
    """What advantages are computed of. `token_rewards`, `values`: float [rows, tokens]; `mask`: bool [rows, tokens];
    `group_index`: int64 [rows]."""

    token_rewards: Array
    mask: Array
    group_index: Array | None = None
    values: Array | None = None
    gamma: float = 1.0
    lam: float = 1.0


def estimate(given: Rewarded, rule: AdvantageRule) -> tuple[Array, Array]:
    """(advantages, returns), float [rows, tokens] each. Raises ValueError where a batch cannot be whitened."""
    advantages, returns = _spread(given, rule)
    if rule.whitening is not None:
        advantages = whiten(advantages, given.mask, rule.whitening)
    if rule.hidden:
        xp = namespace(advantages)
        advantages = advantages * xp.astype(given.mask, advantages.dtype)
        if rule.returns_hidden:
            returns = returns * xp.astype(given.mask, returns.dtype)
    return advantages, advantages if rule.spread is Spread.REPEAT else returns


def _spread(given: Rewarded, rule: AdvantageRule) -> tuple[Array, Array]:
    xp = namespace(given.token_rewards, given.mask)
    if rule.spread is Spread.GAE:
        return generalized_advantages(
            given.token_rewards,
            given.values,
            given.mask,
            gamma=given.gamma,
            lam=given.lam,
            hole=rule.hole,
            masking=rule.masking,
            chunk=rule.chunk,
        )
    if rule.spread is Spread.RETURNS:
        returns = discounted_returns(
            given.token_rewards,
            given.mask,
            gamma=given.gamma,
            hole=rule.hole,
            masking=rule.masking,
            chunk=rule.chunk,
        )
        return returns, returns
    rewards = xp.sum(given.token_rewards, axis=1)
    if rule.normalization is not None:
        rewards = normalize(rewards, groups_of(given.group_index, rule), rule.normalization)
    spread = xp.broadcast_to(rewards[:, None], given.mask.shape)
    spread = spread * xp.astype(given.mask, rewards.dtype) if rule.hidden else spread
    return spread, spread


def groups_of(group_index: Array, rule: AdvantageRule) -> Array:
    """Each row's group under the rule: int64 [rows]."""
    if rule.grouping is Grouping.INDEX:
        return group_index
    xp = namespace(group_index)
    counts = xp.unique_counts(group_index).counts
    return group_index if bool(xp.all(counts == counts[0])) else xp.zeros_like(group_index)


def placed_at_end(rewards: Array, mask: Array) -> Array:
    """A row's reward at the last token that counts, or, where none does, at the last: [rows, tokens]."""
    xp = namespace(rewards, mask)
    empty = ~xp.any(mask, axis=1, keepdims=True)
    active = xp.astype(mask | empty, xp.int64)
    behind = xp.flip(xp.cumulative_sum(xp.flip(active, axis=1), axis=1), axis=1)
    return hide(xp.broadcast_to(rewards[:, None], mask.shape), (active == 1) & (behind == 1))
