"""Which convention made recorded numbers: all that are known are computed, the nearest is named first.

Pure. Float32 cannot tell some conventions apart: those whose results lie no further from the recorded one than it may
round share the first rank.
"""

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from rollbook.replay.dialects.additions import NOTHING, Additions
from rollbook.replay.dialects.convention import AdvantageConvention, LossConvention
from rollbook.replay.dialects.estimate import Rewarded, estimate
from rollbook.replay.dialects.loss import Bounds, Policies, policy_loss
from rollbook.replay.dialects.table import ADVANTAGES, LOSSES
from rollbook.replay.kernels.aggregate import Totals

Floats = NDArray[np.float64]

_STEP = 2.0**-24
_STEPS = 4
"""Float32 steps of the largest value that a recorded result may be off by: a few operations."""
_TIMES = 4
_SAME = 1e-9
"""Relative: what double precision itself leaves between errors that are one."""
_CANCELLED = 2e-4
"""The most, of the largest value, that cancellation within a group may put a recorded result off."""


@dataclass(frozen=True, slots=True)
class Tolerance:
    """Equal when |recomputed - recorded| <= atol + rtol * |recorded|."""

    atol: float = 1e-6
    rtol: float = 1e-5


@dataclass(frozen=True, slots=True)
class Match:
    """One convention against what was recorded. `error` is the largest absolute one, infinite where one of the two is
    not a number or the convention cannot be computed of these inputs; `rank` is shared by those that cannot be told
    apart."""

    framework: str
    version: str
    name: str
    error: float
    matches: bool
    rank: int = 0
    values: Floats | None = None


@dataclass(frozen=True, slots=True)
class LossGiven:
    """What a policy's loss was computed of."""

    policies: Policies
    bounds: Bounds
    totals: Totals = field(default_factory=Totals)
    additions: Additions = NOTHING


def rank_advantages(
    given: Rewarded,
    recorded: Floats,
    tolerance: Tolerance = Tolerance(),
    conventions: Sequence[AdvantageConvention] = ADVANTAGES,
) -> tuple[Match, ...]:
    """Every convention that the inputs suffice for, nearest first. `recorded`: float64 [rows, tokens]; only tokens that
    count are compared. Inputs should be float64."""
    mask = np.asarray(given.mask)

    def values(convention: AdvantageConvention) -> Floats:
        found: Floats = np.asarray(estimate(given, convention.rule)[0], dtype=np.float64)[mask]
        return found

    usable = (one for one in conventions if not one.rule.needs_values or given.values is not None)
    expected = recorded[mask]
    return _ranked(usable, values, expected, tolerance, rounding_of(given, expected))


def rank_losses(
    given: LossGiven,
    recorded: float,
    tolerance: Tolerance = Tolerance(),
    conventions: Sequence[LossConvention] = LOSSES,
) -> tuple[Match, ...]:
    """Every convention, nearest first, against one recorded number."""
    expected = np.asarray([recorded])
    steps = _STEPS * _STEP * _scale(expected, 0.1)

    def values(convention: LossConvention) -> Floats:
        return np.asarray([loss_of(given, convention)])

    return _ranked(conventions, values, expected, tolerance, Rounding(steps, _TIMES * steps))


def loss_of(given: LossGiven, convention: LossConvention) -> float:
    """The loss of `given` under one convention."""
    bounds = given.bounds
    if bounds.dual is None:
        bounds = replace(bounds, dual=convention.dual)
    return float(
        policy_loss(given.policies, convention.rule, bounds, given.totals, of_framework(given, convention)).loss
    )


def of_framework(given: LossGiven, convention: LossConvention) -> Additions:
    """The KL term as the framework bounds it."""
    penalty = given.additions.penalty
    if penalty is None:
        return given.additions
    return replace(given.additions, penalty=replace(penalty, rule=convention.kl))


@dataclass(frozen=True, slots=True)
class Rounding:
    """How far float32 may put recorded values off, absolute: `steps` always, `cancelled` where a group's rewards or a
    loss's terms cancel."""

    steps: float
    cancelled: float

    def indistinct(self, nearest: float) -> float:
        """The error up to which conventions cannot be told apart. Cancellation counts only where even the nearest is
        off by more than a few steps, and then no further than a few times that."""
        return max(self.steps, min(self.cancelled, _TIMES * nearest))


def rounding_of(given: Rewarded, expected: Floats) -> Rounding:
    """Of advantages: a few steps of the largest, and what a group's rewards cancel for being far from zero."""
    scale = _scale(expected, 1e-3)
    rewards = np.nan_to_num(np.asarray(given.token_rewards)).sum(axis=1)
    index = np.zeros(rewards.size, np.int64) if given.group_index is None else np.asarray(given.group_index)
    groups = np.unique(index, return_inverse=True)[1]
    count = np.bincount(groups)
    centred = rewards - (np.bincount(groups, rewards) / count)[groups]
    with np.errstate(over="ignore"):
        spread = np.sqrt(np.bincount(groups, centred * centred) / count)
    least = spread[spread > 0].min(initial=np.inf)
    share = min(_STEPS * _STEP * float(np.abs(rewards).max(initial=0.0)) / least, _CANCELLED)
    return Rounding(steps=_STEPS * _STEP * scale, cancelled=share * scale)


def _scale(values: Floats, least: float) -> float:
    return float(np.abs(values[np.isfinite(values)]).max(initial=least))


def _ranked(
    conventions: Iterable[Any],
    values: Callable[[Any], Floats],
    expected: Floats,
    tolerance: Tolerance,
    rounding: Rounding,
) -> tuple[Match, ...]:
    found = []
    for convention in conventions:
        error, matches, computed = np.inf, False, None
        with np.errstate(all="ignore"):
            try:
                computed = values(convention)
            except ValueError:  # these inputs are none for it: a batch that cannot be whitened
                pass
            else:
                error, matches = _compared(computed, expected, tolerance, rounding)
        found.append(Match(convention.framework, convention.version, convention.name, error, matches, values=computed))
    found.sort(key=lambda match: (match.error, match.framework, match.name))
    return tuple(_numbered(found, rounding.indistinct(found[0].error)))


def _compared(actual: Floats, expected: Floats, tolerance: Tolerance, rounding: Rounding) -> tuple[float, bool]:
    both = np.isnan(actual) & np.isnan(expected)
    error = np.where(both | (actual == expected), 0.0, np.abs(actual - expected))
    error = np.where(np.isnan(error), np.inf, error)
    of_value = tolerance.atol + tolerance.rtol * np.abs(np.nan_to_num(expected))
    allowed = np.maximum(of_value, max(rounding.steps, rounding.cancelled))
    return float(error.max(initial=0.0)), bool((error <= allowed).all())


def _numbered(found: list[Match], indistinct: float) -> Iterator[Match]:
    rank, last = 0, -1.0
    for at, match in enumerate(found, start=1):
        error = max(match.error, indistinct)
        if error > last * (1 + _SAME):
            rank, last = at, error
        yield replace(match, rank=rank)
