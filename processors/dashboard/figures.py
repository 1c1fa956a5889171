"""Counts by key, as the API answers them."""

from collections.abc import Iterator, Mapping
from typing import Any

from rollbook.processors.dashboard import counting
from rollbook.processors.dashboard.answers import At, Count, DriftCount, Refusals, Took
from rollbook.processors.dashboard.windows import Key, Ready
from rollbook.processors.ledger.figures import BOUNDS
from rollbook.schemas.records.decision import Outcome

_FAILURES = ("generation", "reward")
_MOST_VERSIONS = 64


def fields_of(counts: Mapping[Key, int]) -> dict[str, Any]:
    """The fields of `Totals`."""
    return {
        "decisions": counts.get(counting.DECISIONS, 0),
        "stages": _named(counts, counting.STAGE, counting.STAGES),
        "failures": _named(counts, counting.FAILURE, _FAILURES),
        "outcomes": _named(counts, counting.OUTCOME, tuple(one.value for one in Outcome)),
        "violations": counts.get(counting.VIOLATIONS, 0),
        "refusals": tuple(
            Refusals(record_type=record_type, reason=reason, count=count)
            for (record_type, reason), count in _of(counts, counting.REFUSED)
        ),
        "judged_by_lag": _at(counts, counting.JUDGED),
        "consumed_by_lag": _at(counts, counting.CONSUMED),
        "drift": tuple(_drift(counts)),
        "took": tuple(
            Took(up_to_s=_bound(counting.TOOK_S, place), count=counts[counting.TOOK, str(place)])
            for place in _places(counts, counting.TOOK)
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
        "ready_by_lag": tuple(At(at=lag, count=count) for lag, count in ready.by_lag),
        "ready_by_version": tuple(At(at=version, count=count) for version, count in ready.by_version),
    }


def _of(counts: Mapping[Key, int], kind: str) -> Iterator[tuple[Key, int]]:
    for key in sorted(key for key in counts if key[0] == kind):
        yield key[1:], counts[key]


def _named(counts: Mapping[Key, int], kind: str, names: tuple[str, ...]) -> tuple[Count, ...]:
    """In the order of the names; those of 0 are left out."""
    found = ((name, counts.get((kind, name), 0)) for name in names)
    return tuple(Count(name=name, count=count) for name, count in found if count)


def _at(counts: Mapping[Key, int], kind: str) -> tuple[At, ...]:
    return tuple(At(at=place, count=counts[kind, str(place)]) for place in _places(counts, kind))


def _drift(counts: Mapping[Key, int]) -> Iterator[DriftCount]:
    for place in _places(counts, counting.DRIFT):
        admitted, refused = (counts.get((counting.DRIFT, str(place), what), 0) for what in ("admitted", "refused"))
        yield DriftCount(up_to=_bound(BOUNDS, place), admitted=admitted, refused=refused)


def _places(counts: Mapping[Key, int], kind: str) -> list[int]:
    return sorted({int(key[1]) for key in counts if key[0] == kind})


def _bound(bounds: tuple[float, ...], place: int) -> float | None:
    return bounds[place] if place < len(bounds) else None
