"""Sums and means over the positions that a mask leaves, the two ways that libraries take them.

The ways differ only where a masked position holds what is not finite: selecting drops it, multiplying by zero makes a
NaN of it, which then spoils the whole row.
"""

from enum import StrEnum

from rollbook.replay.kernels.array import Array, namespace


class Masking(StrEnum):
    """What a mask does to the values that it hides."""

    SELECT = "select"
    MULTIPLY = "multiply"


def hide(values: Array, mask: Array, masking: Masking = Masking.SELECT) -> Array:
    """`values` with zeros where `mask` is false; [rows, tokens] both, `mask` bool."""
    xp = namespace(values, mask)
    if masking is Masking.MULTIPLY:
        return values * xp.astype(mask, values.dtype)
    return xp.where(mask, values, xp.zeros_like(values))


def count(mask: Array, like: Array, *, axis: int | None = None, keepdims: bool = False) -> Array:
    """How many positions `mask` leaves, in the dtype of `like`."""
    xp = namespace(mask, like)
    return xp.sum(xp.astype(mask, like.dtype), axis=axis, keepdims=keepdims)


def masked_mean(values: Array, mask: Array, *, eps: float = 0.0, masking: Masking = Masking.SELECT) -> Array:
    """sum(values * mask) / (sum(mask) + eps) over everything; NaN where the mask leaves nothing and eps is 0."""
    xp = namespace(values, mask)
    return xp.sum(hide(values, mask, masking)) / (count(mask, values) + eps)


def masked_variance(
    values: Array, mask: Array, *, ddof: int, eps: float = 0.0, masking: Masking = Masking.SELECT
) -> Array:
    """The variance over everything that the mask leaves, its divisor lowered by `ddof`."""
    xp = namespace(values, mask)
    centred = values - masked_mean(values, mask, eps=eps, masking=masking)
    return xp.sum(hide(centred * centred, mask, masking)) / (count(mask, values) - ddof + eps)
