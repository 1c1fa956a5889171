"""The ledger of a run as it is now, out of the compacted ledger topic."""

from collections import Counter
from dataclasses import dataclass

from rollbook.infra.looking.place import Place
from rollbook.infra.settings import Topic
from rollbook.processors.freshness import happened
from rollbook.processors.ledger.policy import phase_of
from rollbook.processors.ledger.rebuild import Rebuild
from rollbook.processors.ledger.store import Run, is_open
from rollbook.schemas.errors import BadInput
from rollbook.schemas.records.common import LearnerRef
from rollbook.schemas.records.ledger import (
    CheckpointState,
    LearnerState,
    PendingFact,
    RunConfig,
    RunHead,
    TrajectoryState,
    TrajectoryStatus,
    UpdateState,
    UpdateStatus,
    WorkerState,
)


@dataclass(frozen=True, slots=True)
class UpdateLine:
    """An update without its answers. `heard_ms` is the broker's time of its last Reserve, Admit or Renew."""

    update_id: str
    status: UpdateStatus
    in_doubt: bool
    learner: LearnerRef | None
    since_sequence: int
    heard_offset: int
    heard_ms: int | None
    held: tuple[str, ...]
    trained: tuple[str, ...]
    forgotten: int
    sealed_ranks: tuple[int, ...]


@dataclass(frozen=True, slots=True)
class PolicyLine:
    """A policy with what it is for an activation."""

    version: int
    phase: str
    artifact_hash: str
    depth: int
    ordinal: int
    made_from: int | None
    adds: tuple[str, ...]
    activated_offset: int | None


@dataclass(frozen=True, slots=True)
class LedgerView:
    """All of a run, and the trajectories or the update that were asked for."""

    run_id: str
    next_offset: int
    head: RunHead
    config: RunConfig | None
    trajectories: dict[str, int]
    happened: dict[str, int]
    updates: dict[str, int]
    open_updates: tuple[UpdateLine, ...]
    learners: tuple[LearnerState, ...]
    checkpoints: tuple[CheckpointState, ...]
    policies: tuple[PolicyLine, ...]
    workers: tuple[WorkerState, ...]
    pending: tuple[PendingFact, ...]
    update: UpdateLine | None = None
    listed: tuple[TrajectoryState, ...] | None = None


def read_ledger(place: Place) -> tuple[Run, int]:
    """The run and the first lifecycle offset that is not in it, by the same code that restores the processor.

    Raises BadInput for a run of which nothing was decided, whatever its name."""
    topic = place.topic(Topic.LEDGER)
    bounds = place.log.bounds(topic, place.partition)
    rebuild = Rebuild(place.partition, place.partitions, place.run_id)
    if bounds.first < bounds.end:
        for stored in place.log.read(topic, place.partition, bounds.first, bounds.end):
            rebuild.take(stored.key or b"", stored.value)
    try:
        found = rebuild.ledger().runs.get(place.run_id)
    except BadInput as problem:
        raise BadInput(f"{topic}:{place.partition}: {problem}") from None
    if found is None or not found.head.sequence:
        raise place.nothing("ledger")
    return found, rebuild.next_offset


def heard_at(place: Place, run: Run, update_id: str | None) -> dict[int, int]:
    """When the broker took the last record of each open update, and of the one that is asked for, by offset."""
    updates = {update.last_activity_offset for update in run.updates.all_open()}
    asked = None if update_id is None else run.updates.get(update_id)
    if asked is not None:
        updates.add(asked.last_activity_offset)
    stored = place.log.read_at(place.topic(Topic.LIFECYCLE), place.partition, updates)
    return {one.offset: one.timestamp_ms for one in stored}


def view(
    run: Run,
    next_offset: int,
    heard: dict[int, int],
    *,
    state: TrajectoryStatus | None = None,
    update_id: str | None = None,
) -> LedgerView:
    """What there is to see; `state` and `update_id` list trajectories."""
    states = Counter(trajectory.status for trajectory in run.trajectories.values())
    statuses = Counter(update.status for update in run.updates.values())
    asked = None if update_id is None else run.updates.get(update_id)
    return LedgerView(
        run_id=run.run_id,
        next_offset=next_offset,
        head=run.head,
        config=run.config if run.head.config_version else None,
        trajectories={status.value: states[status] for status in TrajectoryStatus},
        happened={tally.name: tally.count for tally in happened(run)},
        updates={status.value: statuses[status] for status in UpdateStatus},
        open_updates=tuple(_update(update, heard) for update in run.updates.all_open()),
        learners=tuple(run.learners.values()),
        checkpoints=tuple(run.checkpoints.values()),
        policies=_policies(run),
        workers=tuple(run.workers.values()),
        pending=tuple(run.pending.values()),
        update=None if asked is None else _update(asked, heard),
        listed=None if state is None and asked is None else _listed(run, state, asked),
    )


def _update(update: UpdateState, heard: dict[int, int]) -> UpdateLine:
    return UpdateLine(
        update_id=update.update_id,
        status=update.status,
        in_doubt=update.in_doubt,
        learner=update.learner,
        since_sequence=update.opened_sequence,
        heard_offset=update.last_activity_offset,
        heard_ms=heard.get(update.last_activity_offset),
        held=update.held,
        trained=update.trained,
        forgotten=update.forgotten,
        sealed_ranks=tuple(sealed.rank for sealed in update.sealed),
    )


def _policies(run: Run) -> tuple[PolicyLine, ...]:
    return tuple(
        PolicyLine(
            version=policy.version,
            phase=phase_of(run, policy).value,
            artifact_hash=policy.artifact.hash,
            depth=policy.depth,
            ordinal=policy.ordinal,
            made_from=policy.source_version,
            adds=policy.update_ids,
            activated_offset=policy.activated_offset,
        )
        for policy in run.policies.values()
    )


def _listed(run: Run, state: TrajectoryStatus | None, update: UpdateState | None) -> tuple[TrajectoryState, ...]:
    if update is None:
        found = run.trajectories.values()
    else:  # what is forgotten is known by its name alone
        names = update.held if is_open(update) else update.trained
        found = [row for row in map(run.trajectories.get, names) if row is not None]
    return tuple(row for row in found if state is None or row.status is state)
