"""How a trajectory changes: through the lifecycle table, once a record, raising its revision by one."""

from collections.abc import Iterable

from rollbook.processors.ledger.store import Run, behavior_version
from rollbook.processors.ledger.verdict import mass_change
from rollbook.processors.ledger.waiting import let_go
from rollbook.processors.lifecycle import Event, allowed, next_state
from rollbook.schemas.records.decision import MassChange
from rollbook.schemas.records.ledger import TrajectoryState, TrajectoryStatus, UpdateStatus


def move(run: Run, trajectory: TrajectoryState, *events: Event, **changes: object) -> TrajectoryState:
    """Take a trajectory through events as one change."""
    status = trajectory.status
    for event in events:
        status = next_state(status, event)
        run.tally(event._value_)
    after = trajectory.but(status=status, revision=trajectory.revision + 1, **changes)
    return run.trajectories.put(trajectory.trajectory_id, after)


def give_back(run: Run, trajectory: TrajectoryState, *events: Event) -> TrajectoryState:
    """Take a trajectory out of its update. One that would be rewarded again ends in quarantine where it is tainted, is
    consumed where another update has trained on it, and ends offline where it lies below the floor by now."""
    changes: dict[str, object] = {}
    if events[-1] not in (Event.DISCARD, Event.QUARANTINE):
        if tainted(run, trajectory):
            events = (*events, Event.QUARANTINE)
        else:
            taken, changes = take_trained(run, trajectory)
            expired = not taken and behavior_version(trajectory) < run.floor
            events = (*events, *taken, *((Event.EXPIRE,) if expired else ()))
    return move(run, trajectory, *events, **({"update_id": "", "lag": None, "admitted_ratio": None} | changes))


def tainted(run: Run, trajectory: TrajectoryState) -> bool:
    """Whether a span's policy contains undone updates, was abandoned, or is known with another hash."""
    for ref in trajectory.policies:
        policy = run.policies.get(ref.version)
        if policy is None:
            continue
        if policy.orphaned or policy.abandoned or policy.artifact.hash != ref.artifact_hash:
            return True
    return False


def take_trained(run: Run, trajectory: TrajectoryState) -> tuple[tuple[Event, ...], dict[str, object]]:
    """What becomes of a trajectory that is rewarded with this record, where an update that stands has trained on it
    already: the events and the changes. Nobody else is offered it."""
    for update_id in trajectory.trained_by:
        update = run.updates.get(update_id)
        if update is not None and update.status is UpdateStatus.COMMITTED:
            name = trajectory.trajectory_id
            run.updates.put(update_id, update.but(trained=(*update.trained, name)))
            others = tuple(other for other in trajectory.trained_by if other != update_id)
            return (Event.RESERVE, Event.COMMIT), {"update_id": update_id, "trained_by": others}
    return (), {}


def trained_elsewhere(run: Run, trajectory: TrajectoryState) -> bool:
    """Whether an update that stands has trained on it without having it."""
    for update_id in trajectory.trained_by:
        update = run.updates.get(update_id)
        if update is not None and update.status is UpdateStatus.COMMITTED:
            return True
    return False


def quarantine_tainted(run: Run, versions: Iterable[int], why: str) -> tuple[MassChange, ...]:
    """Quarantine the trajectories with a span of these versions that can be and are tainted."""
    ids, dropped = [], []
    for trajectory in run.trajectories.live_with(versions):
        held = trajectory.status is TrajectoryStatus.RESERVED
        if not held and allowed(trajectory.status, Event.QUARANTINE) and tainted(run, trajectory):
            move(run, trajectory, Event.QUARANTINE)
            ids.append(trajectory.trajectory_id)
            dropped += [fact.subject_id for fact in let_go(run, trajectory.trajectory_id)]
    return (
        *mass_change(f"trajectories quarantined with {why}", ids),
        *mass_change(f"facts dropped that waited for what was quarantined with {why}", dropped),
    )


def orphan_policies(run: Run, update_ids: Iterable[str]) -> list[int]:
    """Orphan the policies that contain any of these updates, directly or through what they were made from; returns the
    versions newly orphaned."""
    containing: set[int] = set()
    heirs = {version for update_id in update_ids for version in run.policies.adding(update_id)}
    while heirs:
        containing |= heirs
        heirs = {heir for version in heirs for heir in run.policies.heirs(version)} - containing
    found = [policy for version in sorted(containing) if (policy := run.policies.get(version)) is not None]
    newly = [policy for policy in found if not policy.orphaned]
    for policy in newly:
        run.policies.put(policy.version, policy.but(orphaned=True))
    active = run.head.active
    if active is not None and any(policy.version == active.version for policy in newly):
        run.change_head(active_orphaned=True)
    return [policy.version for policy in newly]
