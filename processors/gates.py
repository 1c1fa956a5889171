"""The small gates that reservations, admissions and activations are composed of. Pure; the fold and the four public
rules call the same ones."""

import math
from collections.abc import Mapping, Sequence
from enum import StrEnum
from typing import NamedTuple

from rollbook.processors.reasons import Reason


class Freshness(StrEnum):
    """How far behind the learner a trajectory's policy is."""

    FUTURE = "future"
    FRESH = "fresh"
    TOLERATED = "tolerated"
    STALE = "stale"


def freshness_of(lag: int, max_lag: int) -> Freshness:
    """lag below 0 future, 0 fresh, up to max_lag tolerated, above stale."""
    if lag < 0:
        return Freshness.FUTURE
    if lag == 0:
        return Freshness.FRESH
    return Freshness.TOLERATED if lag <= max_lag else Freshness.STALE


def lag_gate(freshness: Freshness) -> Reason | None:
    """The refusal that a freshness brings, if any."""
    if freshness is Freshness.FUTURE:
        return Reason.FUTURE_POLICY
    return Reason.STALE_POLICY if freshness is Freshness.STALE else None


def drift_gate(mean_abs_log_ratio: float, limit: float) -> Reason | None:
    """The refusal of a row whose mean |current - behavior| in nats is above the limit."""
    return Reason.POLICY_DRIFT if mean_abs_log_ratio > limit else None


def abs_log_ratio(old: Sequence[float], current: Sequence[float], mask: Sequence[bool]) -> tuple[int, float, float]:
    """Active positions, exactly rounded sum and maximum of |current - old| over them, in nats; (0, 0, 0) for none.

    float64 with `math.fsum`, the same on every machine. ValueError for unequal lengths, a mask element that is not a
    bool, or a non-finite log-prob at an active position; masked positions may hold anything.
    """
    if not len(old) == len(current) == len(mask):
        raise ValueError(
            f"unequal lengths: {len(old)} old, {len(current)} current log-probs, {len(mask)} mask elements"
        )
    differences: list[float] = []
    for place, (before, now, active) in enumerate(zip(old, current, mask, strict=True)):
        if not isinstance(active, bool):
            raise ValueError(f"action mask element {place} is {active!r}: it must be a bool")
        if active:
            if not (math.isfinite(before) and math.isfinite(now)):
                raise ValueError(f"log-prob at active position {place} is not finite: old {before}, current {now}")
            differences.append(abs(float(now) - float(before)))
    try:
        total = math.fsum(differences)
    except OverflowError:  # finite log-probs, but their distance is beyond float64: no limit admits it
        total = math.inf
    return len(differences), total, max(differences, default=0.0)


class Held(NamedTuple):
    """What the reservation gate looks at: lifecycle state, revision, and the holder while reserved."""

    state: str
    revision: int
    holder: object


def reserve_gate(current: Held | None, expected_revision: int | None, holder: object) -> Reason | None:
    """Compare-and-set of one trajectory. None: it can be reserved. `idempotent_retry` is a success without a change.

    `expected_revision` None skips the comparison (a claim chooses from the state itself).
    """
    if current is None:
        return Reason.MISSING_ROLLOUT
    if current.state == "reserved" and current.holder == holder:
        return Reason.IDEMPOTENT_RETRY
    if expected_revision is not None and current.revision != expected_revision:
        return Reason.REVISION_CONFLICT
    return None if current.state == "rewarded" else Reason.NOT_REWARDED


def artifact_gate(committed: bool, version: int, active_version: int | None) -> Reason | None:
    """The refusal of an artifact that is not whole, or of a version that does not rise."""
    if not committed:
        return Reason.ARTIFACT_NOT_COMMITTED
    return Reason.NON_MONOTONIC_VERSION if active_version is not None and version <= active_version else None


def ack_gate(
    wanted: tuple[int, str], serves: Mapping[str, tuple[int, str] | None], required: Sequence[str]
) -> tuple[Reason | None, tuple[str, ...], tuple[str, ...]]:
    """The refusal that worker reports bring, the required workers without a report, those that serve something else.

    `serves` has (version, artifact hash) by worker; None for one that reported a failure.
    """
    missing = tuple(sorted(worker for worker in required if worker not in serves))
    mismatched = tuple(sorted(worker for worker in required if worker in serves and serves[worker] != wanted))
    if missing:
        return Reason.MISSING_WORKER_ACK, missing, mismatched
    return (Reason.WORKER_MISMATCH if mismatched else None), missing, mismatched
