"""Bounded state: the floor below which versions are forgotten, and the end of a run."""

from rollbook.processors.ledger.lag import policy_number
from rollbook.processors.ledger.learner import end_update
from rollbook.processors.ledger.moves import let_go_of_waiting, move
from rollbook.processors.ledger.store import Run, behavior_version
from rollbook.processors.ledger.verdict import At, Verdict, mass_change, subject
from rollbook.processors.lifecycle import Event, allowed
from rollbook.processors.reasons import Reason
from rollbook.schemas.records.decision import MassChange, Outcome
from rollbook.schemas.records.ledger import TrajectoryStatus, UpdateStatus
from rollbook.schemas.records.run import RunClosed


def raise_floor(run: Run) -> tuple[MassChange, ...]:
    """After an activation: the floor becomes the lowest version above all those more than `horizon` behind the active
    one. Below it, what is terminal or consumed is forgotten, what is rewarded or earlier goes offline (and is forgotten
    when the floor rises again), and the reserved stays. The floor is a version and not a depth, which a roll-back would
    lower under what is new. It never passes the active version: a roll-back that is prepared, but not yet active, is
    far behind by its depth, yet newer than all that is in use."""
    config, active = run.config, run.head.active
    policy = None if active is None else run.policies.get(active.version)
    if not config.horizon or policy is None:
        return ()
    unit = config.admission.lag_unit
    oldest = policy_number(policy, unit) - config.horizon
    before = [p for p in run.policies.values() if p.version < policy.version and not p.orphaned]
    behind = [p.version for p in before if policy_number(p, unit) < oldest]
    floor = max(run.head.floor, max(behind, default=-1) + 1)
    if floor == run.head.floor:
        return ()
    run.change_head(floor=floor)
    forgotten, expired, dropped = [], [], []
    for trajectory in run.trajectories.values():
        if behavior_version(trajectory) >= floor or trajectory.status is TrajectoryStatus.RESERVED:
            continue
        if allowed(trajectory.status, Event.EXPIRE):
            move(run, trajectory, Event.EXPIRE)
            expired.append(trajectory.trajectory_id)
            dropped += [fact.subject_id for fact in let_go_of_waiting(run, trajectory.trajectory_id)]
        else:
            run.trajectories.drop(trajectory.trajectory_id)
            forgotten.append(trajectory.trajectory_id)
    return (
        *mass_change(f"trajectories below version {floor} forgotten", forgotten),
        *mass_change(f"trajectories below version {floor} offline", expired),
        *mass_change(f"facts that waited for what is below version {floor} dropped", dropped),
        *mass_change(f"facts that waited since before version {floor} dropped", _drop_pending(run, floor)),
    )


def _drop_pending(run: Run, floor: int) -> list[str]:
    """What they wait for would be beyond the horizon: facts older than the first activation from the floor on."""
    offsets = [p.activated_offset for p in run.policies.values() if p.version >= floor]
    since = min(offset for offset in offsets if offset is not None)
    dropped = []
    for fact in run.pending.values():
        if fact.offset < since and fact.record_type != "PolicyCommitted":
            run.pending.drop(f"trajectory {fact.subject_id}")
            dropped.append(fact.subject_id)
    return dropped


def run_closed(run: Run, record: RunClosed, at: At) -> Verdict:
    """The run is over: its open updates are aborted, and everything but its head and configurations is forgotten."""
    opened = run.updates.all_open()
    for update in opened:
        end_update(run, update, UpdateStatus.ABORTED, Event.ABORT)
    forgotten = [trajectory.trajectory_id for trajectory in run.trajectories.values()]
    for table in run.tables():
        if table not in (run.heads, run.configs):
            table.clear()
    run.change_head(closed=True)
    return Verdict(
        Outcome.ACCEPTED,
        Reason.OK,
        record.text,
        subject("run", run.run_id),
        mass_changes=(
            *mass_change("updates aborted", (update.update_id for update in opened)),
            *mass_change("trajectories forgotten", forgotten),
        ),
    )
