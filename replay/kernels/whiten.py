"""Advantages of a batch brought to mean 0 and variance 1 (Schulman et al. 2017; Andrychowicz et al. 2021,
arXiv:2006.05990, choice C67), over the tokens that a mask leaves."""

from dataclasses import dataclass

from rollbook.replay.kernels.array import Array, namespace
from rollbook.replay.kernels.masked import Masking, count, masked_mean, masked_variance


@dataclass(frozen=True, slots=True)
class Whitening:
    """(a - mean) / sqrt(variance + eps), or, where `eps_outside`, / (sqrt(variance) + eps).

    `ddof`: what the variance's divisor is lowered by; `shift`: whether the mean is taken away; `scale`: whether it is
    divided at all; `least_variance`: the least one that is taken the root of; `one_pass`: the variance is that of
    squares and sums, which float32 cancels; `fewest`: the fewest tokens that are whitened (None: one more than
    `ddof`), without `ddof` where it leaves none of them; `masking`: what keeps masked values out of mean and variance.
    """

    ddof: int = 1
    eps: float = 1e-8
    eps_outside: bool = False
    shift: bool = True
    scale: bool = True
    least_variance: float | None = None
    one_pass: bool = False
    fewest: int | None = None
    masking: Masking = Masking.SELECT

    @property
    def least_tokens(self) -> int:
        return self.ddof + 1 if self.fewest is None else self.fewest


def whiten(values: Array, mask: Array, rule: Whitening) -> Array:
    """values: float [rows, tokens]; mask: bool [rows, tokens]; returns float [rows, tokens], masked ones not hidden.

    Raises ValueError when the mask leaves fewer tokens than the rule has an answer for.
    """
    xp = namespace(values, mask)
    tokens = float(count(mask, values))
    if tokens < rule.least_tokens:
        raise ValueError(f"whitening needs {rule.least_tokens} tokens that count, not {tokens:.0f}")
    ddof = rule.ddof if tokens > rule.ddof else 0
    mean = masked_mean(values, mask, masking=rule.masking)
    if not rule.scale:
        return values - mean
    if rule.one_pass:
        total = count(mask, values)
        variance = (masked_mean(values * values, mask, masking=rule.masking) - mean * mean) * (total / (total - ddof))
    else:
        variance = masked_variance(values, mask, ddof=ddof, masking=rule.masking)
    if rule.least_variance is not None:
        variance = xp.clip(variance, rule.least_variance, None)
    scale = xp.sqrt(variance) + rule.eps if rule.eps_outside else xp.sqrt(variance + rule.eps)
    scaled = (values - mean) / scale
    return scaled if rule.shift else scaled + mean
