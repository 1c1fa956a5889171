"""How stale the rows of a run are: the last figures that the processor has committed."""

from rollbook.infra.looking.place import Place
from rollbook.infra.looking.show import print_figures, print_table
from rollbook.infra.settings import Topic
from rollbook.replay.history.source import StoredRecord
from rollbook.schemas.codec import ContractViolation, UndecodableRecord, decode_as
from rollbook.schemas.errors import BadInput
from rollbook.schemas.records.decision import FreshnessSnapshot


def newest_snapshot(place: Place) -> FreshnessSnapshot:
    """The last one of the run. Raises AnswerNo when there is none."""
    topic = place.topic(Topic.FRESHNESS)
    bounds = place.log.bounds(topic, place.partition)
    last: StoredRecord | None = None
    if bounds.first < bounds.end:
        for stored in place.log.read(topic, place.partition, bounds.first, bounds.end):
            if stored.key == place.run_id.encode():
                last = stored
    if last is None or last.value is None:
        raise place.nothing("freshness snapshot")
    try:
        return decode_as(FreshnessSnapshot, last.value)
    except (UndecodableRecord, ContractViolation) as error:
        raise BadInput(
            f"{last.place} is not a freshness snapshot ({error}): nobody but the processor may write there"
        ) from None


def print_freshness(snapshot: FreshnessSnapshot) -> None:
    """The figures, then live trajectories by version and state."""
    active = snapshot.active_policy
    print_figures(
        (
            ("run", snapshot.run_id),
            ("after decision", snapshot.sequence),
            ("active policy", "none" if active is None else f"{active.version} ({active.artifact_hash})"),
            ("largest tolerated lag", f"{snapshot.max_lag} ({snapshot.lag_unit})"),
            ("ready, fresh", snapshot.ready_fresh),
            ("ready, tolerated", snapshot.ready_tolerated),
            ("ready, stale with the next activation", snapshot.ready_expiring),
            ("ready, stale", snapshot.ready_stale),
            ("mean lag of the ready", "-" if snapshot.mean_lag is None else f"{snapshot.mean_lag:.3f}"),
            ("open updates", ", ".join(snapshot.open_updates) or "none"),
        )
    )
    print_table(
        "Live trajectories",
        ("version", "state", "trajectories"),
        [(row.version, row.state, row.count) for row in snapshot.by_version],
        right=("version", "trajectories"),
    )
