"""How stale the rows of a run are: the last figures that the processor has committed."""

from rollbook.infra.looking.place import Place
from rollbook.infra.looking.show import counted, maybe, print_figures, print_table
from rollbook.infra.settings import Topic
from rollbook.replay.history.source import StoredRecord
from rollbook.schemas.codec import ContractViolation, UndecodableRecord, decode_as
from rollbook.schemas.errors import BadInput
from rollbook.schemas.records.common import PolicyRef
from rollbook.schemas.records.decision import DriftBin, FreshnessSnapshot, WorkerReport
from rollbook.schemas.text import plural


def newest_snapshot(place: Place) -> FreshnessSnapshot:
    """The last one of the run. Raises BadInput when there is none."""
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
    """The figures with their limits, then tables of what there is any of."""
    print_figures(
        (
            ("run", snapshot.run_id),
            ("after decision", snapshot.sequence),
            ("active policy", _policy(snapshot.active_policy)),
            ("learner's policy", _policy(snapshot.learner_policy)),
            ("largest tolerated lag", f"{snapshot.max_lag} ({snapshot.lag_unit})"),
            ("largest tolerated drift", f"{snapshot.max_mean_abs_log_ratio:g} nats (drift gate {snapshot.drift_gate})"),
            ("ready, fresh", snapshot.ready_fresh),
            ("ready, tolerated", snapshot.ready_tolerated),
            ("ready, stale with the next activation", snapshot.ready_expiring),
            ("ready, stale", snapshot.ready_stale),
            ("ready, stale for the learner's policy", snapshot.ready_stale_for_learner),
            ("ready, of a policy ahead or not prepared", snapshot.ready_future + snapshot.ready_unknown),
            ("mean lag of the ready", "-" if snapshot.mean_lag is None else f"{snapshot.mean_lag:.3f}"),
            ("capacity", _capacity(snapshot)),
            ("consumed", _consumed(snapshot)),
            ("open updates", ", ".join(snapshot.open_updates) or "none"),
            ("updates in doubt", snapshot.in_doubt_count),
            ("required workers behind", snapshot.workers_behind),
        )
    )
    _print_live(snapshot)
    _print_gates(snapshot)
    _print_who(snapshot)


def _policy(policy: PolicyRef | None) -> str:
    return "none" if policy is None else f"{policy.version} ({policy.artifact_hash})"


def _capacity(snapshot: FreshnessSnapshot) -> str:
    if snapshot.capacity is None:
        return "not known before the first update has started"
    rows = "" if snapshot.rows_per_update is None else f" of {plural(snapshot.rows_per_update, 'row')}"
    return f"{snapshot.capacity:,} more trajectories ({plural(snapshot.updates_left, 'update')}{rows} left for them)"


def _consumed(snapshot: FreshnessSnapshot) -> str:
    lags = [(f"at lag {one.lag}", one.count) for one in snapshot.consumed_by_lag]
    return counted((*lags, ("at unknown lag", snapshot.consumed_lag_unknown)))


def _print_live(snapshot: FreshnessSnapshot) -> None:
    print_table(
        "Live trajectories",
        ("version", "state", "trajectories"),
        [(row.version, row.state, row.count) for row in snapshot.by_version],
        right=("version", "trajectories"),
    )
    print_table(
        "Ready by lag",
        ("lag", "trajectories"),
        [(one.lag, one.count) for one in snapshot.ready_by_lag],
        right=("lag", "trajectories"),
    )


def _print_gates(snapshot: FreshnessSnapshot) -> None:
    print_table(
        "Drift at the gate",
        ("mean |current - behavior|", "admitted", "refused"),
        [(_bound(one), one.admitted, one.refused) for one in snapshot.drift],
        right=("admitted", "refused"),
    )
    print_table(
        "Drift at lag 0",
        ("version", "rows", "mean nats"),
        [(one.version, one.rows, f"{one.mean_abs_log_ratio:.6f}") for one in snapshot.drift_floor],
        right=("version", "rows", "mean nats"),
    )
    print_table(
        "Refused",
        ("record", "reason", "times"),
        [(one.record_type, one.reason, one.count) for one in snapshot.refusals],
        right=("times",),
    )
    print_table(
        "Failed",
        ("stage", "cause", "times"),
        [(one.stage, one.cause, one.count) for one in snapshot.failures],
        right=("times",),
    )


def _bound(one: DriftBin) -> str:
    return "more" if one.up_to is None else f"up to {one.up_to:g} nats"


def _print_who(snapshot: FreshnessSnapshot) -> None:
    print_table(
        "Open updates",
        ("update", "learner", "epoch", "state", "holds", "lease, ms", "since offset", "in doubt"),
        [
            (
                *(one.update_id, one.learner.learner_id, one.learner.epoch, one.status, one.held),
                *(one.lease_ms or "none", one.last_activity_offset, "yes" if one.in_doubt else ""),
            )
            for one in snapshot.updates
        ],
        right=("epoch", "holds", "lease, ms", "since offset"),
    )
    print_table(
        "Workers",
        ("worker", "required", "serves", "active", "report", "offset"),
        [
            (
                *(one.worker_id, "yes" if one.required else "", one.failure or _policy(one.serves)),
                *("yes" if one.serves_active else "no", _report(one), maybe(one.offset)),
            )
            for one in snapshot.workers
        ],
        right=("offset",),
    )


def _report(worker: WorkerReport) -> str:
    return "none" if worker.incarnation is None else f"{worker.incarnation}.{worker.report_seq}"
