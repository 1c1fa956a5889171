"""The answer: what became of a run's trajectories, by behavior version, task and length, and their rewards."""

from collections.abc import Iterable
from dataclasses import dataclass
from math import fsum, inf, sqrt

import numpy as np

from rollbook.replay.history.source import Bounds
from rollbook.replay.survivorship.fates import NOT_OVER, Fate, Part

_MOST_BINS = 20
_QUARTILES = (0.25, 0.5, 0.75)


@dataclass(frozen=True, slots=True)
class Reached:
    """How many trajectories ever came that far. `consumed`: an update that stands trained on them."""

    known: int
    dispatched: int
    generated: int
    rewarded: int
    reserved: int
    admitted: int
    trained: int
    consumed: int


@dataclass(frozen=True, slots=True)
class Became:
    """Some trajectories: how many have each fate, and the mean rewards of those that are not for evaluation. None: of
    none."""

    trajectories: int
    fates: tuple[tuple[Fate, int], ...]
    rewarded: int
    mean_reward: float | None
    mean_reward_consumed: float | None

    def count(self, *fates: Fate) -> int:
        return sum(many for fate, many in self.fates if fate in fates)

    @property
    def share_consumed(self) -> float | None:
        """Of those that are not for evaluation; None of none."""
        wanted = self.trajectories - self.count(Fate.EVALUATION)
        return self.count(Fate.CONSUMED) / wanted if wanted else None

    @property
    def is_starved(self) -> bool:
        """Whether none of them is trained on, though some of them have come to their end."""
        over = self.trajectories - self.count(*NOT_OVER, Fate.EVALUATION)
        return over > 0 and not self.count(Fate.CONSUMED)


@dataclass(frozen=True, slots=True)
class OfVersion:
    """By the oldest policy that wrote some of it."""

    version: int
    became: Became


@dataclass(frozen=True, slots=True)
class OfTask:
    """`dataset` and `task_id` are None where no record says of which task they are."""

    dataset: str | None
    task_id: str | None
    became: Became


@dataclass(frozen=True, slots=True)
class OfLength:
    """Response tokens from `first` to `last`; None where nothing was generated."""

    first: int | None
    last: int | None
    became: Became


@dataclass(frozen=True, slots=True)
class Cause:
    """Why a fate."""

    fate: Fate
    why: str
    count: int


@dataclass(frozen=True, slots=True)
class Rewards:
    """The raw rewards of a part. `bins`: how many lie between two of the report's edges each, the last edge included.
    Figures are None of none, and where they are beyond a float64."""

    part: Part
    count: int
    mean: float | None
    deviation: float | None
    minimum: float | None
    quartiles: tuple[float | None, float | None, float | None]
    maximum: float | None
    bins: tuple[int, ...]


@dataclass(frozen=True, slots=True)
class SurvivorshipReport:
    """Of a run's records in `within`, of which `undecided` at the end have no decision yet."""

    run_id: str
    lifecycle: str
    partition: int
    within: Bounds
    decided: int
    undecided: int
    sequence: int
    chain: str
    fold_version: int
    observed: bool
    closed: bool
    reached: Reached
    total: Became
    causes: tuple[Cause, ...]
    versions: tuple[OfVersion, ...]
    tasks: tuple[OfTask, ...]
    lengths: tuple[OfLength, ...]
    edges: tuple[float, ...]
    rewards: tuple[Rewards, ...]
    distance: float | None
    """Largest difference of the cumulative distributions of rewards, consumed and never trained on (Kolmogorov and
    Smirnov's): 0 where they are the same, 1 where they do not overlap."""
    happened: tuple[tuple[str, int], ...]
    """The ledger's own tallies: how often, and not to how many."""

    @property
    def starved(self) -> tuple[OfTask, ...]:
        """Tasks of which nothing is trained on, though trajectories of them have come to their end."""
        return tuple(one for one in self.tasks if one.task_id is not None and one.became.is_starved)

    def of(self, part: Part) -> Rewards:
        return next(one for one in self.rewards if one.part is part)


def mean(values: Iterable[float]) -> float | None:
    """Of the exactly rounded sum. None of none, and where it is beyond a float64."""
    found = list(values)
    try:
        return fsum(found) / len(found) if found else None
    except OverflowError:
        return None


def edges_of(values: Iterable[float]) -> tuple[float, ...]:
    """Of bins that all parts share: 20 of one width, from the smallest to the largest; one where all are the same."""
    found = list(values)
    if not found:
        return ()
    low, high = min(found), max(found)
    if low == high:
        return (low, high)
    inner = [low * (1 - at / _MOST_BINS) + high * (at / _MOST_BINS) for at in range(1, _MOST_BINS)]
    return (low, *inner, high)


def rewards_of(part: Part, values: list[float], edges: tuple[float, ...]) -> Rewards:
    """The distribution of a part."""
    bins = (0,) * max(0, len(edges) - 1)
    if not values:
        return Rewards(part, 0, None, None, None, (None, None, None), None, bins)
    ordered = np.sort(np.array(values))
    middle = mean(values)
    spread = None if middle is None else mean(_squares(values, middle))
    upper = np.searchsorted(ordered, np.array(edges[1:-1]), side="left")
    counts = np.diff(np.concatenate(([0], upper, [len(values)])))
    first, second, third = (_between(ordered, at * (len(values) - 1)) for at in _QUARTILES)
    return Rewards(
        part=part,
        count=len(values),
        mean=middle,
        deviation=None if spread is None or spread == inf else sqrt(spread),
        minimum=float(ordered[0]),
        quartiles=(first, second, third),
        maximum=float(ordered[-1]),
        bins=tuple(int(many) for many in counts),
    )


def _squares(values: Iterable[float], middle: float) -> Iterable[float]:
    return ((value - middle) * (value - middle) for value in values)


def _between(ordered: np.ndarray[tuple[int], np.dtype[np.float64]], at: float) -> float:
    """Linear between the two values beside a place."""
    low = int(at)
    share = at - low
    high = min(low + 1, len(ordered) - 1)
    return float(ordered[low]) * (1 - share) + float(ordered[high]) * share


def distance_of(some: list[float], others: list[float]) -> float | None:
    """The largest difference between two cumulative distributions."""
    if not some or not others:
        return None
    one, other = np.sort(np.array(some)), np.sort(np.array(others))
    at = np.concatenate((one, other))
    shares = [np.searchsorted(side, at, side="right") / len(side) for side in (one, other)]
    return float(np.max(np.abs(shares[0] - shares[1])))
