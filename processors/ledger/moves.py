"""How a trajectory changes: through the lifecycle table, once a record, raising its revision by one."""

from collections.abc import Iterable

from rollbook.processors.ledger.store import Run
from rollbook.processors.ledger.verdict import mass_change
from rollbook.processors.lifecycle import Event, allowed, next_state
from rollbook.processors.reasons import Reason
from rollbook.schemas.records.decision import MassChange, Released
from rollbook.schemas.records.ledger import TrajectoryState, TrajectoryStatus


def move(run: Run, trajectory: TrajectoryState, *events: Event, **changes: object) -> TrajectoryState:
    """Take a trajectory through events as one change."""
    status = trajectory.status
    for event in events:
        status = next_state(status, event)
    after = trajectory.model_copy(update={"status": status, "revision": trajectory.revision + 1, **changes})
    return run.trajectories.put(trajectory.trajectory_id, after)


def give_back(run: Run, trajectory: TrajectoryState, *events: Event) -> TrajectoryState:
    """Take a trajectory out of its update; one that would be rewarded again, but is tainted, ends in quarantine."""
    ends = events[-1] in (Event.DISCARD, Event.QUARANTINE)
    through = events if ends or not tainted(run, trajectory) else (*events, Event.QUARANTINE)
    return move(run, trajectory, *through, update_id="", lag=None, admitted_ratio=None)


def tainted(run: Run, trajectory: TrajectoryState) -> bool:
    """Whether a span's policy contains undone updates, was abandoned, or is known with another hash."""
    for ref in trajectory.policies:
        policy = run.policies.get(ref.version)
        if policy is None:
            continue
        if policy.orphaned or policy.abandoned or policy.artifact.hash != ref.artifact_hash:
            return True
    return False


def let_go_of_waiting(run: Run, trajectory_id: str) -> tuple[Released, ...]:
    """A trajectory that ended before it was generated: what waits for it will have no turn, and must not wait on."""
    fact = run.pending.get(f"trajectory {trajectory_id}")
    if fact is None:
        return ()
    run.pending.drop(f"trajectory {trajectory_id}")
    reason = Reason.ILLEGAL_TRANSITION.value
    return (Released(offset=fact.offset, record_type=fact.record_type, subject_id=fact.subject_id, reason=reason),)


def quarantine_tainted(run: Run, versions: Iterable[int], why: str) -> tuple[MassChange, ...]:
    """Quarantine the trajectories with a span of these versions that can be and are tainted."""
    ids, dropped = [], []
    for trajectory in run.trajectories.live_with(versions):
        held = trajectory.status is TrajectoryStatus.RESERVED
        if not held and allowed(trajectory.status, Event.QUARANTINE) and tainted(run, trajectory):
            move(run, trajectory, Event.QUARANTINE)
            ids.append(trajectory.trajectory_id)
            dropped += [fact.subject_id for fact in let_go_of_waiting(run, trajectory.trajectory_id)]
    return (
        *mass_change(f"trajectories quarantined with {why}", ids),
        *mass_change(f"facts dropped that waited for what was quarantined with {why}", dropped),
    )


def orphan_policies(run: Run, update_ids: Iterable[str]) -> list[int]:
    """Orphan the policies that contain any of these updates, directly or through what they were made from; returns the
    versions newly orphaned."""
    undone = set(update_ids)
    policies = run.policies.values()
    containing = {policy.version for policy in policies if undone.intersection(policy.update_ids)}
    heirs = containing
    while heirs:
        heirs = {policy.version for policy in policies if policy.source_version in heirs} - containing
        containing |= heirs
    newly = [policy for policy in policies if policy.version in containing and not policy.orphaned]
    for policy in newly:
        run.policies.put(policy.version, policy.model_copy(update={"orphaned": True}))
    active = run.head.active
    if active is not None and any(policy.version == active.version for policy in newly):
        run.change_head(active_orphaned=True)
    return [policy.version for policy in newly]
