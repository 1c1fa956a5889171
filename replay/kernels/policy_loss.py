"""The clipped policy loss: PPO (Schulman et al. 2017, arXiv:1707.06347, eq. 7) with separate bounds below and above
(DAPO, Yu et al. 2025, arXiv:2503.14476), summed over samples of per-sample means."""

from dataclasses import dataclass

from rollbook.replay.kernels.array import Array, namespace
from rollbook.replay.kernels.reduce import sample_means

_CLIP_STEPS = 8 * 2.0**-24
"""How far two libraries' float32 exponentials may lie apart, relative."""


@dataclass(frozen=True, slots=True)
class PolicyLossTerms:
    """Each sample's masked means; float32 [samples] each."""

    pg_loss: Array
    entropy_loss: Array
    pg_clipfrac: Array
    ppo_kl: Array


@dataclass(frozen=True, slots=True)
class PolicyLossResult:
    """The scalars, float32 [], and the per-sample terms they are sums of."""

    loss: Array
    pg_loss: Array
    entropy_loss: Array
    pg_clipfrac: Array
    ppo_kl: Array
    terms: PolicyLossTerms


def policy_loss(
    old_log_probs: Array,
    log_probs: Array,
    advantages: Array,
    entropy: Array,
    mask: Array,
    lengths: Array,
    *,
    eps_clip: float,
    eps_clip_high: float,
    entropy_coef: float,
) -> PolicyLossResult:
    """loss = pg_loss - entropy_coef * entropy_loss.

    Token arrays are float32 [tokens], `mask` bool [tokens], `lengths` int64 [samples]. Per token: x = old - new,
    r = e^-x, pg = max(-r A, -clamp(r, 1 - eps_clip, 1 + eps_clip_high) A), clipped = second > first, ppo_kl = x.
    Every metric is the sum over samples of its masked mean, not divided by the number of samples. Masked tokens may
    hold anything, and their gradient is zero.
    """
    xp = namespace(old_log_probs, log_probs, advantages, entropy, mask, lengths)
    # Masked before the exponential: a gradient through an infinity is NaN even where a zero weight comes after it.
    log_ratio = xp.where(mask, old_log_probs - log_probs, xp.zeros_like(log_probs))
    advantages = xp.where(mask, advantages, xp.zeros_like(advantages))
    ratio = xp.exp(-log_ratio)
    plain = -ratio * advantages
    clipped = -xp.clip(ratio, 1 - eps_clip, 1 + eps_clip_high) * advantages
    token_values = (xp.maximum(plain, clipped), entropy, xp.astype(clipped > plain, plain.dtype), log_ratio)
    means = sample_means(xp.stack(token_values), mask, lengths)
    pg_loss, entropy_loss, pg_clipfrac, ppo_kl = (xp.sum(means[at, :]) for at in range(len(token_values)))

    def single(value: Array) -> Array:
        return xp.astype(value, plain.dtype)

    return PolicyLossResult(
        loss=single(pg_loss - entropy_coef * entropy_loss),
        pg_loss=single(pg_loss),
        entropy_loss=single(entropy_loss),
        pg_clipfrac=single(pg_clipfrac),
        ppo_kl=single(ppo_kl),
        terms=PolicyLossTerms(*(single(means[at, :]) for at in range(len(token_values)))),
    )


def clip_doubt(
    old_log_probs: Array, log_probs: Array, mask: Array, lengths: Array, *, eps_clip: float, eps_clip_high: float
) -> Array:
    """The share of each sample's active tokens whose ratio lies so close to a bound that the last digit of an
    exponential decides whether it is clipped; float64 [samples]. Arrays as in `policy_loss`."""
    xp = namespace(old_log_probs, log_probs, mask, lengths)
    ratio = xp.exp(log_probs - old_log_probs)
    bounds = (1 - eps_clip, 1 + eps_clip_high)
    low, high = (xp.abs(ratio - bound) <= _CLIP_STEPS * bound for bound in bounds)
    moved = log_probs != old_log_probs  # a ratio of exactly 1 is rounded by nobody, also where a bound is 1
    return sample_means(xp.astype((low | high) & moved, ratio.dtype), mask, lengths)
