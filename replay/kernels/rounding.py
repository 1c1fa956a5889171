"""How libraries take the mean and the deviation of a group in single precision, where the order of operations shows.

In exact numbers all of them agree. In float32 a constant group's mean may be one rounding step off, which an epsilon of
1e-6 makes an advantage of; and rewards far from zero lose of their spread what the step of their size takes.
"""

from collections.abc import Callable
from enum import StrEnum

from rollbook.replay.kernels.array import Array, namespace


class Rounding(StrEnum):
    """The order of operations; arrays of groups of one size, [groups, members]."""

    EXACT = "exact"
    """From a group's first member: a constant group has no deviation."""
    EACH = "each"
    """Mean and deviation of each group as a vector of its own."""
    SCALED = "scaled"
    """As `EACH`; without its own part a member is r n / (n - 1) - mean n / (n - 1)."""
    ROWS = "rows"
    """Mean and deviation along the rows of a matrix."""
    CENTRED = "centred"
    """As `ROWS`, the deviation that of the centred rewards."""
    SQUARES = "squares"
    """As `ROWS`, the variance a mean of squares."""
    ADDED = "added"
    """One member is added after the other, the variance a sum of squares; without its own part a member is
    (n r - sum) / (n - 1)."""


def centre(members: Array, rounding: Rounding, *, leave_one_out: bool) -> Array:
    """members - mean, or - mean of the others; groups of more than one."""
    xp = namespace(members)
    size = members.shape[1]
    if not leave_one_out:
        return members - _mean(members, rounding)
    if rounding is Rounding.ADDED:
        return (members * size - _added(members)) / (size - 1)
    if rounding is Rounding.ROWS:
        return members - (xp.sum(members, axis=1, keepdims=True) - members) / (size - 1)
    mean = _mean(members, rounding)
    if rounding is Rounding.SCALED:
        return members * size / (size - 1) - mean * size / (size - 1)
    return (members - mean) * (size / (size - 1))


def deviation(members: Array, rounding: Rounding, *, ddof: int) -> Array:
    """The standard deviation of each group, [groups, 1]."""
    xp = namespace(members)
    if rounding in (Rounding.EACH, Rounding.SCALED):
        return _of_each(members, lambda group: xp.std(group, correction=ddof))
    if rounding is Rounding.ROWS:
        return xp.std(members, axis=1, correction=ddof, keepdims=True)
    centred = members - _mean(members, rounding)
    if rounding is Rounding.CENTRED:
        return xp.std(centred, axis=1, correction=ddof, keepdims=True)
    size, squares = members.shape[1], centred * centred
    if rounding is Rounding.ADDED:
        return xp.sqrt(_added(squares) / (size - ddof))
    return xp.sqrt(xp.mean(squares, axis=1, keepdims=True) * (size / (size - ddof)))


def _mean(members: Array, rounding: Rounding) -> Array:
    xp = namespace(members)
    if rounding in (Rounding.EACH, Rounding.SCALED):
        return _of_each(members, xp.mean)
    return _added(members) / members.shape[1] if rounding is Rounding.ADDED else xp.mean(members, axis=1, keepdims=True)


def _added(members: Array) -> Array:
    total = members[:, :1]
    for at in range(1, members.shape[1]):
        total = total + members[:, at : at + 1]
    return total


def _of_each(members: Array, statistic: Callable[[Array], Array]) -> Array:
    xp = namespace(members)
    return xp.stack([statistic(members[group, :]) for group in range(members.shape[0])])[:, None]
