"""Rewards measured against their group or their batch: the estimators that need no values.

GRPO (Shao et al. 2024, arXiv:2402.03300, section 4.1) divides by the group's standard deviation; Dr. GRPO (Liu et al.
2025, arXiv:2503.20783, section 3.2) does not; RLOO (Ahmadian et al. 2024, arXiv:2402.14740, eq. 8) measures against the
mean of the others. Which epsilon, which divisor of the variance and what a group of one gets differ by library, so
they are data here.
"""

from collections.abc import Callable
from dataclasses import dataclass
from enum import StrEnum

from rollbook.replay.kernels.array import Array, device, namespace
from rollbook.replay.kernels.rounding import Rounding, centre, deviation


class Level(StrEnum):
    """Over what a mean or a standard deviation is taken."""

    NONE = "none"
    GROUP = "group"
    BATCH = "batch"


class Singleton(StrEnum):
    """What a group of one gets, which has neither a spread nor others to be measured against."""

    FORMULA = "formula"
    RAW = "raw"
    ZERO = "zero"
    NAN = "nan"


@dataclass(frozen=True, slots=True)
class Normalization:
    """How rewards are centred and scaled: (r - mean) / (std + eps).

    `mean`, `std`: over what. `ddof`: what the variance's divisor is lowered by. `variance_floor`: the least variance
    that is taken the root of. `leave_one_out`: a member's own reward is not part of its mean. `about_centre`: the
    deviation is that of the centred rewards from zero, whatever they were centred by. `rounding`: the order of
    operations where rewards are float32; in double precision it does not show.
    """

    mean: Level = Level.GROUP
    std: Level = Level.GROUP
    eps: float = 1e-6
    ddof: int = 1
    leave_one_out: bool = False
    about_centre: bool = False
    variance_floor: float = 0.0
    singleton: Singleton = Singleton.FORMULA
    rounding: Rounding = Rounding.EXACT


def normalize(rewards: Array, group_index: Array, rule: Normalization) -> Array:
    """rewards: float [samples]; group_index: int64 [samples], members of a group anywhere; returns float [samples].

    Means are measured from a group's first member, but for a rule's own rounding: one that is off by a rounding step,
    divided by the epsilon of a group without spread, makes an advantage out of nothing.
    """
    xp = namespace(rewards, group_index)
    everyone = xp.zeros_like(group_index)
    centred = rewards
    if rule.mean is not Level.NONE:
        over = group_index if rule.mean is Level.GROUP else everyone
        centred = by_group(rewards, over, lambda members: _centre(members, rule))
    if rule.std is Level.NONE:
        return centred
    over = group_index if rule.std is Level.GROUP else everyone
    of = centred if rule.about_centre else rewards
    return centred / (by_group(of, over, lambda members: _spread(members, rule)) + rule.eps)


def by_group(values: Array, group_index: Array, transform: Callable[[Array], Array]) -> Array:
    """`transform` of each group, groups of one size at a time as a matrix [groups, members]; [samples] each."""
    xp = namespace(values, group_index)
    order = xp.argsort(group_index, stable=True)
    ordered = xp.take(group_index, order, axis=0)
    fresh = xp.concat([xp.ones_like(ordered[:1], dtype=xp.bool), ordered[1:] != ordered[:-1]])
    (starts,) = xp.nonzero(fresh)
    total = xp.asarray([ordered.shape[0]], dtype=starts.dtype, device=device(starts))
    sizes = xp.concat([starts[1:], total]) - starts
    places, results = [], []
    for size in sorted({int(size) for size in sizes}):
        first = starts[sizes == size]
        at = xp.reshape(first[:, None] + xp.arange(size, dtype=first.dtype, device=device(first))[None, :], (-1,))
        members = xp.take(order, at, axis=0)
        matrix = xp.reshape(xp.take(values, members, axis=0), (-1, size))
        results.append(xp.reshape(xp.broadcast_to(transform(matrix), matrix.shape), (-1,)))
        places.append(members)
    return xp.take(xp.concat(results), xp.argsort(xp.concat(places), stable=True), axis=0)


def _centre(members: Array, rule: Normalization) -> Array:
    xp = namespace(members)
    size = members.shape[1]
    if size == 1 and rule.singleton is not Singleton.FORMULA:
        return _alone(members, rule.singleton)
    if size > 1 and _shows(members, rule):
        return centre(members, rule.rounding, leave_one_out=rule.leave_one_out)
    offsets = members - members[:, :1]
    centred = offsets - xp.mean(offsets, axis=1, keepdims=True)
    if rule.leave_one_out:
        return centred * size / (size - 1) if size > 1 else members
    return centred


def _shows(members: Array, rule: Normalization) -> bool:
    return rule.rounding is not Rounding.EXACT and members.dtype == namespace(members).float32


def _alone(members: Array, what: Singleton) -> Array:
    xp = namespace(members)
    if what is Singleton.RAW:
        return members
    return xp.zeros_like(members) if what is Singleton.ZERO else xp.full_like(members, xp.nan)


def _spread(members: Array, rule: Normalization) -> Array:
    xp = namespace(members)
    size = members.shape[1]
    if size <= rule.ddof:
        has_answer = rule.singleton in (Singleton.RAW, Singleton.ZERO)
        return xp.full_like(members, 1.0 if has_answer else xp.nan)
    if not rule.about_centre and _shows(members, rule):
        return deviation(members, rule.rounding, ddof=rule.ddof)
    offsets = members - members[:, :1]
    if rule.about_centre:
        variance = xp.sum(members * members, axis=1, keepdims=True) / (size - rule.ddof)
    else:
        variance = xp.var(offsets, axis=1, correction=rule.ddof, keepdims=True)
    return xp.sqrt(xp.clip(variance, rule.variance_floor, None))
