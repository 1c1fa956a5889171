"""The loss of a value function, clipped around the values of the rollout (Schulman et al. 2017; Engstrom et al. 2020,
arXiv:2005.12729, section 3)."""

from dataclasses import dataclass
from enum import StrEnum

from rollbook.replay.kernels.array import Array, namespace


class Distance(StrEnum):
    """What a value is held against its return by."""

    SQUARED = "squared"
    HUBER = "huber"


@dataclass(frozen=True, slots=True)
class ValueLoss:
    """Per token, [rows, tokens]: the losses, and where the clipped one is the larger."""

    losses: Array
    clipped: Array


def value_loss(
    values: Array,
    old_values: Array,
    returns: Array,
    *,
    clip: float | None,
    distance: Distance = Distance.SQUARED,
    factor: float = 0.5,
    delta: float = 10.0,
    between: bool = False,
) -> ValueLoss:
    """factor * max(d(V, R), d(clamp(V, old - clip, old + clip), R)); without `clip` the first of the two.

    `distance` huber: quadratic up to `delta`, linear beyond it. `between`: the value is held between bounds, not its
    distance from the old one: its gradient is another where an old value is no number. Arrays: float [rows, tokens].
    """
    xp = namespace(values, old_values, returns)
    plain = _distance(values - returns, distance, factor, delta)
    if clip is None:
        return ValueLoss(plain, xp.zeros_like(plain, dtype=xp.bool))
    if between:
        near = xp.maximum(xp.minimum(values, old_values + clip), old_values - clip)
    else:
        near = old_values + xp.clip(values - old_values, -clip, clip)
    bounded = _distance(near - returns, distance, factor, delta)
    return ValueLoss(xp.maximum(plain, bounded), bounded > plain)


def _distance(error: Array, distance: Distance, factor: float, delta: float) -> Array:
    xp = namespace(error)
    if distance is Distance.SQUARED:
        return factor * error * error
    size = xp.abs(error)
    return xp.where(size <= delta, 0.5 * error * error, delta * (size - 0.5 * delta))
