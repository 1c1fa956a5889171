"""The view where no person looks at a screen: a line, as text or as JSON. Pure."""

from collections.abc import Iterator
from typing import Any

from pydantic_core import to_jsonable_python

from rollbook.infra.watching.charts import age, rate, share
from rollbook.infra.watching.seen import Seen
from rollbook.processors.dashboard.answers import Reading
from rollbook.schemas.records.common import PolicyRef
from rollbook.schemas.records.decision import FreshnessSnapshot
from rollbook.schemas.text import plural, visible


def line(seen: Seen) -> str:
    """What matters most, on one line."""
    return visible("; ".join((f"{seen.run_id}: {_standing(seen)}", *_figures(seen))), 4_096)


def _standing(seen: Seen) -> str:
    if seen.reading is Reading.CUT_OFF:
        return f"NO ANSWER for {age(seen.heard_s)} ({seen.fault})"
    if seen.reading is Reading.WAITING:
        return f"waiting ({seen.fault or 'connecting'})"
    if seen.snapshot is None:
        return "live, nothing decided of it yet" if seen.reading is Reading.LIVE else "catching up"
    return "live" if seen.reading is Reading.LIVE else "catching up"


def _figures(seen: Seen) -> Iterator[str]:
    snapshot = seen.snapshot
    if snapshot is None:
        return
    yield f"updated {age(seen.snapshot_s)} ago"
    yield f"active {_version(snapshot.active_policy)}, learner {_version(snapshot.learner_policy)}"
    yield (
        f"ready {snapshot.ready_fresh} fresh, {snapshot.ready_tolerated} tolerated ({snapshot.ready_expiring} "
        f"expiring), {snapshot.ready_stale} stale"
    )
    yield f"capacity {'?' if snapshot.capacity is None else snapshot.capacity}"
    yield f"consumed {_consumed(snapshot)}"
    yield f"refused {sum(one.count for one in snapshot.refusals)}"
    yield f"failed {sum(one.count for one in snapshot.failures)}"
    yield f"{plural(snapshot.workers_behind, 'worker')} behind, {plural(snapshot.in_doubt_count, 'update')} in doubt"
    yield f"{rate(seen.minutes.per_second('decided'))} decisions/s, {share(seen.minutes.admitted_share)} admitted"


def _version(policy: PolicyRef | None) -> str:
    return "none" if policy is None else str(policy.version)


def _consumed(snapshot: FreshnessSnapshot) -> int:
    return snapshot.consumed_lag_unknown + sum(one.count for one in snapshot.consumed_by_lag)


def as_json(seen: Seen) -> dict[str, Any]:
    """All of it, by name; rates are of the last ten seconds, `recent` of the last minutes."""
    minutes = seen.minutes
    found: dict[str, Any] = to_jsonable_python(
        {
            "run_id": seen.run_id,
            "now_ms": seen.now_ms,
            "reading": seen.reading,
            "fault": seen.fault,
            "heard_s": seen.heard_s,
            "snapshot_s": seen.snapshot_s,
            "decisions_per_s": minutes.per_second("decided"),
            "refused_per_s": minutes.per_second("refused"),
            "recent": {
                "seconds": sum(one is not None for one in minutes.seconds),
                "decided": minutes.total("decided"),
                "admitted": minutes.total("admitted"),
                "turned_away": minutes.total("turned_away"),
                "refusals": [
                    {"record_type": record_type, "reason": reason, "count": count}
                    for record_type, reason, count in minutes.refusals
                ],
            },
            "lease_ends_ms": dict(seen.leases),
            "snapshot": seen.snapshot,
        }
    )
    return found
