"""The losses per token that a policy is trained with, before a mask and an aggregation make one number of them.

PPO's clipped objective: Schulman et al. 2017, arXiv:1707.06347, eq. 7; the second bound for negative advantages
("dual clip"): Ye et al. 2020, arXiv:1912.09729, eq. 5; a higher bound above than below ("clip-higher"): DAPO, Yu et al.
2025, arXiv:2503.14476, eq. 10. Ratios of whole sequences: GSPO, Zheng et al. 2025, arXiv:2507.18071, eq. 7 and 13.
CISPO: MiniMax 2025, arXiv:2506.13585, eq. 4 and 5. SAPO: Gao et al. 2025, arXiv:2511.20347. VESPO: arXiv:2602.10693.
REINFORCE: Williams 1992.
"""

import math
from dataclasses import dataclass

from rollbook.replay.kernels.array import Array, constant, namespace, sigmoid
from rollbook.replay.kernels.masked import Masking, count, hide


def log_ratio(log_probs: Array, old_log_probs: Array, *, limit: float | None = None) -> Array:
    """log(new / old) per token, held within +-`limit` where there is one."""
    difference = log_probs - old_log_probs
    return difference if limit is None else namespace(difference).clip(difference, -limit, limit)


def sequence_mean(
    values: Array, mask: Array, *, floor: float = 1.0, eps: float = 0.0, masking: Masking = Masking.MULTIPLY
) -> Array:
    """Each row's masked mean as a column: GSPO's log-ratio, the logarithm of a geometric mean. [rows, 1]."""
    xp = namespace(values, mask)
    sums = xp.sum(hide(values, mask, masking), axis=1, keepdims=True)
    return sums / (xp.clip(count(mask, values, axis=1, keepdims=True), floor, None) + eps)


def through_tokens(sequence: Array, log_probs: Array) -> Array:
    """A row's value for each of its tokens, whose gradient goes through the token alone (GSPO-token, eq. 15)."""
    return log_probs - constant(log_probs) + constant(sequence)


def ppo(
    ratio: Array,
    advantages: Array,
    *,
    low: float,
    high: float,
    dual: float | None = None,
    most: float | None = None,
) -> Array:
    """max(-r A, -clamp(r, 1 - low, 1 + high) A), and where A < 0 at most -dual A.

    `most`: the first of the two ratios is held below it (two-sided clipping, INTELLECT-2, arXiv:2505.07291).
    """
    xp = namespace(ratio, advantages)
    held = ratio if most is None else xp.clip(ratio, None, most)
    losses = xp.maximum(-held * advantages, -xp.clip(ratio, 1 - low, 1 + high) * advantages)
    if dual is None:
        return losses
    return xp.where(advantages < 0, xp.minimum(losses, -dual * advantages), losses)


def is_clipped(ratio: Array, advantages: Array, *, low: float, high: float) -> Array:
    """Where the clipped term of `ppo` is the larger one: bool."""
    xp = namespace(ratio, advantages)
    return -xp.clip(ratio, 1 - low, 1 + high) * advantages > -ratio * advantages


def is_dual_clipped(ratio: Array, advantages: Array, *, low: float, high: float, dual: float) -> Array:
    """Where `dual` binds: bool."""
    return (ppo(ratio, advantages, low=low, high=high) > -dual * advantages) & (advantages < 0)


def cispo(ratio: Array, log_probs: Array, advantages: Array, *, least: float | None, most: float) -> Array:
    """-sg(clamp(r, least, most)) A log p: the clipped ratio is a weight, and no token loses its gradient."""
    return -constant(namespace(ratio).clip(ratio, least, most)) * advantages * log_probs


def sapo(ratio: Array, advantages: Array, *, positive: float, negative: float) -> Array:
    """-(4 / tau) sigmoid(tau (r - 1)) A, tau by the sign of A."""
    xp = namespace(ratio, advantages)
    tau = xp.where(advantages > 0, xp.full_like(ratio, positive), xp.full_like(ratio, negative))
    return -(sigmoid(tau * (ratio - 1)) * (4 / tau)) * advantages


def geometric(log_ratios: Array, advantages: Array, mask: Array, *, low: float, high: float) -> tuple[Array, Array]:
    """GMPO (Zhao et al. 2025, arXiv:2507.20673): a row's -exp(mean of the clipped log-ratios) times the mean of
    its advantages, and the log-ratios as clipped. `low`, `high` bound the log-ratios."""
    xp = namespace(log_ratios, advantages, mask)
    sign = xp.sign(advantages)
    clipped = sign * xp.minimum(sign * log_ratios, sign * xp.clip(log_ratios, -low, high))
    mean = sequence_mean(clipped, mask, floor=0.0, eps=1e-8)
    return -xp.exp(mean[:, 0]) * sequence_mean(advantages, mask, floor=0.0, eps=1e-8)[:, 0], clipped


@dataclass(frozen=True, slots=True)
class Gamma:
    """Exponents and decays of VESPO's weights: for advantages that are not negative, and for negative ones."""

    k_pos: float = 2.0
    lambda_pos: float = 3.0
    k_neg: float = 3.0
    lambda_neg: float = 2.0


_LEAST_LOG, _MOST_LOG = math.log(1e-8), 20.0


def vespo(
    log_ratios: Array, log_probs: Array, advantages: Array, mask: Array, *, gamma: Gamma, weights: Array | None = None
) -> Array:
    """-sg(phi(W)) A log p, phi(W) = e^lambda W^k e^(-lambda W): W is the product of a row's ratios and of its tokens'
    importance weights (`weights`, [rows, tokens]), its logarithm held within log(1e-8) and 20; k and lambda by the sign
    of A (TRL, `get_gamma_weights` of `grpo_trainer.py`)."""
    xp = namespace(log_ratios, log_probs, advantages, mask)
    logs = hide(xp.clip(constant(log_ratios), -_MOST_LOG, _MOST_LOG), mask)
    if weights is not None:
        logs = logs + hide(xp.clip(xp.log(constant(weights)), _LEAST_LOG, _MOST_LOG), mask)
    log_w = xp.clip(xp.sum(logs, axis=1, keepdims=True), _LEAST_LOG, _MOST_LOG)
    log_w = xp.broadcast_to(log_w, advantages.shape)
    k = xp.where(advantages >= 0, xp.full_like(log_w, gamma.k_pos), xp.full_like(log_w, gamma.k_neg))
    least = 1e-4
    of_sign = (max(gamma.lambda_pos, least), max(gamma.lambda_neg, least))
    decay = xp.where(advantages >= 0, xp.full_like(log_w, of_sign[0]), xp.full_like(log_w, of_sign[1]))
    phi = xp.exp(decay + k * log_w - decay * xp.exp(log_w))
    phi = xp.where(xp.isfinite(phi), phi, xp.zeros_like(phi))
    return -phi * advantages * log_probs


def reinforce(log_probs: Array, advantages: Array) -> Array:
    """-A log p."""
    return -advantages * log_probs
