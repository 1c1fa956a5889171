"""Bounded state: the floor below which versions are forgotten, and the end of a run."""

from rollbook.processors.ledger.lag import policy_number
from rollbook.processors.ledger.learner import end_update
from rollbook.processors.ledger.moves import move
from rollbook.processors.ledger.store import Run, behavior_version
from rollbook.processors.ledger.verdict import At, Verdict, mass_change, subject
from rollbook.processors.ledger.waiting import POLICY_COMMITTED, drop, let_go
from rollbook.processors.lifecycle import Event, allowed
from rollbook.processors.reasons import Reason
from rollbook.schemas.records.decision import MassChange, Outcome
from rollbook.schemas.records.ledger import PolicyState, TrajectoryState, TrajectoryStatus, UpdateStatus
from rollbook.schemas.records.run import LagUnit, RunClosed


def raise_floor(run: Run) -> tuple[MassChange, ...]:
    """After an activation: the floor rises to the oldest version that the active one was made from, directly or
    through others, and that is at most `horizon` behind it. Below it, what is terminal or consumed is forgotten, what
    is rewarded or earlier goes offline (and is forgotten when the floor rises again), and the reserved stays. Versions
    that nothing active came from say nothing of what can still be trained on: a roll-back that was prepared and given
    up lies far behind by its depth, yet above versions that are fresh."""
    config, active = run.config, run.head.active
    policy = None if active is None else run.policies.get(active.version)
    if not config.horizon or policy is None:
        return ()
    unit = config.admission.lag_unit
    newest = policy_number(policy, unit)
    floor = max(run.head.floor, _oldest_within(run, policy, unit, newest - config.horizon))
    if floor == run.head.floor:
        return ()
    run.change_head(floor=floor)
    expired, dropped, over = [], [], []
    for trajectory in run.trajectories.values():
        if behavior_version(trajectory) >= floor or trajectory.status is TrajectoryStatus.RESERVED:
            continue
        if allowed(trajectory.status, Event.EXPIRE):
            move(run, trajectory, Event.EXPIRE)
            expired.append(trajectory.trajectory_id)
            dropped += [fact.subject_id for fact in let_go(run, trajectory.trajectory_id)]
        else:
            over.append(trajectory)
    forgotten = [trajectory for trajectory in over if _forget(run, trajectory, newest - 2 * config.horizon)]
    _forget_names(run, forgotten)
    return (
        *mass_change(f"trajectories below version {floor} forgotten", (one.trajectory_id for one in forgotten)),
        *mass_change(f"trajectories below version {floor} offline", expired),
        *mass_change(f"facts that waited for what is below version {floor} dropped", dropped),
        *mass_change(f"facts that waited since before version {floor} dropped", _drop_pending(run, floor)),
    )


def _oldest_within(run: Run, policy: PolicyState, unit: LagUnit, oldest: int) -> int:
    ancestor: PolicyState | None = policy
    lowest = policy.version
    while ancestor is not None and ancestor.version > run.head.floor and policy_number(ancestor, unit) >= oldest:
        ancestor = None if ancestor.source_version is None else run.policies.get(ancestor.source_version)
        if ancestor is not None and policy_number(ancestor, unit) >= oldest:
            lowest = min(lowest, ancestor.version)
    return lowest


def _forget(run: Run, trajectory: TrajectoryState, far: int) -> bool:
    """Forget it, unless a group whose other members live would no longer be whole without it, and it is not far behind:
    some put a whole run into one group, which always lives."""
    policy = run.policies.get(behavior_version(trajectory))
    near = policy is not None and policy_number(policy, run.config.admission.lag_unit) >= far
    if near and run.trajectories.groups.needs(trajectory):
        return False
    run.trajectories.drop(trajectory.trajectory_id)
    return True


def _forget_names(run: Run, forgotten: list[TrajectoryState]) -> None:
    """The updates that trained on them keep a count in place of their names: memory must not grow with a run."""
    names: dict[str, set[str]] = {}
    for trajectory in forgotten:
        if trajectory.status is TrajectoryStatus.CONSUMED:
            names.setdefault(trajectory.update_id, set()).add(trajectory.trajectory_id)
    for update_id, gone in names.items():
        update = run.updates.get(update_id)
        assert update is not None, "updates are never forgotten"
        left = tuple(name for name in update.trained if name not in gone)
        count = update.forgotten + len(gone)
        run.updates.put(update_id, update.but(trained=left, forgotten=count))


def _drop_pending(run: Run, floor: int) -> list[str]:
    """What they wait for is not known, and would be beyond the horizon: facts older than the last activation below the
    floor, after which the workers turned to what is kept."""
    since = next((p.activated_offset for p in run.policies.downwards(floor) if p.activated), None) or 0
    waiting = [
        fact
        for fact in run.pending.values()
        if fact.offset < since and fact.record_type != POLICY_COMMITTED and fact.subject_id not in run.trajectories
    ]
    for fact in waiting:
        drop(run, fact, Reason.BEYOND_HORIZON)
    return [fact.subject_id for fact in waiting]


def run_closed(run: Run, record: RunClosed, at: At) -> Verdict:
    """The run is over: its open updates are aborted, and everything but its head, its configurations and
    its tallies is forgotten."""
    opened = run.updates.all_open()
    for update in opened:
        end_update(run, update, UpdateStatus.ABORTED, Event.ABORT)
    forgotten = [trajectory.trajectory_id for trajectory in run.trajectories.values()]
    for table in run.tables():
        if table not in (run.heads, run.configs, run.tallies):
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
