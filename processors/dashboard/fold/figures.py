"""Counts by key, as the API answers them."""

from collections.abc import Iterable, Iterator, Mapping
from typing import Any

from rollbook.processors.dashboard.answers import At, Count, DriftCount, Refusals, Took
from rollbook.processors.dashboard.fold import counting
from rollbook.processors.dashboard.fold.windows import Key, Ready
from rollbook.processors.ledger.figures import BOUNDS
from rollbook.schemas.records.decision import Outcome

_FAILURES = ("generation", "reward")
_OUTCOMES = tuple(one.value for one in Outcome)
_MOST_VERSIONS = 64


def fields_of(counts: Mapping[Key, int]) -> dict[str, Any]:
    """The fields of `Totals`."""
    of: dict[str, list[tuple[Key, int]]] = {}
    for key, count in counts.items():
        of.setdefault(key[0], []).append((key, count))
    return {
        "decisions": counts.get(counting.DECISIONS, 0),
        "stages": _named(counts, counting.STAGE, counting.STAGES),
        "failures": _named(counts, counting.FAILURE, _FAILURES),
        "outcomes": _named(counts, counting.OUTCOME, _OUTCOMES),
        "violations": counts.get(counting.VIOLATIONS, 0),
        "refusals": tuple(
            Refusals.model_construct(record_type=key[1], reason=key[2], count=count)
            for key, count in sorted(of.get(counting.REFUSED, ()))
        ),
        "judged_by_lag": _at(of.get(counting.JUDGED, ())),
        "consumed_by_lag": _at(of.get(counting.CONSUMED, ())),
        "drift": tuple(_drift(of.get(counting.DRIFT, ()))),
        "took": tuple(
            Took.model_construct(up_to_s=_bound(counting.TOOK_S, place), count=count)
            for place, count in _places(of.get(counting.TOOK, ()))
        ),
        "took_count": counts.get(counting.TOOK_COUNT, 0),
        "took_sum_s": counts.get(counting.TOOK_MS, 0) / 1_000,
    }


def ready_of(sequence: int, snapshot: Mapping[str, Any]) -> Ready:
    """What a snapshot's fields say of the ready; of very many lags the lowest, of versions the newest."""
    by_version = [(one["version"], one["count"]) for one in snapshot["by_version"] if one["state"] == "rewarded"]
    by_lag = [(one["lag"], one["count"]) for one in snapshot["ready_by_lag"]]
    return Ready(sequence, tuple(by_lag[:_MOST_VERSIONS]), tuple(by_version[-_MOST_VERSIONS:]))


def ready_fields(ready: Ready | None) -> dict[str, Any]:
    """The fields of a window that are not counted."""
    if ready is None:
        return {"ready_by_lag": None, "ready_by_version": None}
    return {
        "ready_by_lag": tuple(At.model_construct(at=lag, count=count) for lag, count in ready.by_lag),
        "ready_by_version": tuple(At.model_construct(at=version, count=count) for version, count in ready.by_version),
    }


def _named(counts: Mapping[Key, int], kind: str, names: tuple[str, ...]) -> tuple[Count, ...]:
    """In the order of the names; those of 0 are left out."""
    found = ((name, counts.get((kind, name), 0)) for name in names)
    return tuple(Count.model_construct(name=name, count=count) for name, count in found if count)


def _at(counts: Iterable[tuple[Key, int]]) -> tuple[At, ...]:
    return tuple(At.model_construct(at=place, count=count) for place, count in _places(counts))


def _drift(counts: Iterable[tuple[Key, int]]) -> Iterator[DriftCount]:
    bins: dict[int, dict[str, int]] = {}
    for (_, place, what), count in counts:
        bins.setdefault(int(place), {})[what] = count
    for at in sorted(bins):
        found = bins[at]
        yield DriftCount.model_construct(
            up_to=_bound(BOUNDS, at), admitted=found.get("admitted", 0), refused=found.get("refused", 0)
        )


def _places(counts: Iterable[tuple[Key, int]]) -> list[tuple[int, int]]:
    return sorted((int(key[1]), count) for key, count in counts)


def _bound(bounds: tuple[float, ...], place: int) -> float | None:
    return bounds[place] if place < len(bounds) else None
