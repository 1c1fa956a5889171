"""Advantages of a batch brought to mean 0 and variance 1 (Schulman et al. 2017; Andrychowicz et al. 2021,
arXiv:2006.05990, choice C67), over the tokens that a mask leaves."""

from dataclasses import dataclass

from rollbook.replay.kernels.array import Array, namespace
from rollbook.replay.kernels.masked import count, masked_mean, masked_variance


@dataclass(frozen=True, slots=True)
class Whitening:
    """(a - mean) / sqrt(variance + eps), or, where `eps_outside`, / (sqrt(variance) + eps).

    `ddof`: what the variance's divisor is lowered by; `shift`: whether the mean is taken away; `least_variance`: the
    least one that is taken the root of.
    """

    ddof: int = 1
    eps: float = 1e-8
    eps_outside: bool = False
    shift: bool = True
    least_variance: float | None = None


def whiten(values: Array, mask: Array, rule: Whitening) -> Array:
    """values: float [rows, tokens]; mask: bool [rows, tokens]; returns float [rows, tokens], masked ones not hidden.

    Raises ValueError when the mask leaves no more tokens than `ddof`.
    """
    xp = namespace(values, mask)
    if float(count(mask, values)) <= rule.ddof:
        raise ValueError(f"whitening needs more than {rule.ddof} tokens that count")
    mean = masked_mean(values, mask)
    variance = masked_variance(values, mask, ddof=rule.ddof)
    if rule.least_variance is not None:
        variance = xp.clip(variance, rule.least_variance, None)
    scale = xp.sqrt(variance) + rule.eps if rule.eps_outside else xp.sqrt(variance + rule.eps)
    scaled = (values - mean) / scale
    return scaled if rule.shift else scaled + mean
