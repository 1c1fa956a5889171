"""What is noted of every trajectory of a run while its decisions are derived. Memory grows with their number."""

from collections.abc import Callable, Iterable
from dataclasses import dataclass, field

from rollbook.processors.gates import Freshness, freshness_of
from rollbook.processors.ledger.lag import policy_number
from rollbook.processors.ledger.store import Run
from rollbook.processors.ledger.waiting import reward_of
from rollbook.replay.audit.decisions import Derived
from rollbook.replay.survivorship.changes import Changes
from rollbook.replay.survivorship.row import Row, Task
from rollbook.schemas.records.common import PolicyRef, TrajectoryIdentity
from rollbook.schemas.records.decision import ItemDecision, Outcome
from rollbook.schemas.records.ledger import PolicyState, TrajectoryState, TrajectoryStatus, UpdateStatus
from rollbook.schemas.records.reward import RewardFailed, RewardReady
from rollbook.schemas.records.rollout import Dispatched, Generated, GenerationFailed, TaskSource
from rollbook.schemas.records.update import Commit, Disposition


@dataclass(slots=True)
class Seen:
    """`changes` is the journal of the fold that derives."""

    changes: Changes
    rows: dict[str, Row] = field(default_factory=dict)
    tasks: dict[str, Task] = field(default_factory=dict)
    """By group, which is of one prompt: what failed to be generated does not say its task itself."""
    _early: dict[str, tuple[int, float]] = field(default_factory=dict)
    """Rewards that came before their trajectory, with their offsets."""
    _early_failures: dict[str, str] = field(default_factory=dict)
    _closed: dict[str, TrajectoryState] = field(default_factory=dict)
    _policies: dict[int, PolicyState] = field(default_factory=dict)
    """What the end of the run made the ledger forget."""
    _texts: dict[str, str] = field(default_factory=dict)
    _tasks: dict[Task, Task] = field(default_factory=dict)
    """Each kept once."""

    def take(self, derived: Derived, run: Run) -> None:
        """One record; `run` as it is behind it."""
        decision = derived.decision
        for name, before in self.changes.trajectories.items():
            state = run.trajectories.get(name) or before
            assert state is not None, "what changed is there, or was"
            self._row(name, state).move(state, decision.record_type)
        note = _NOTES.get(decision.record_type)
        if note is not None and decision.outcome in _SAYS_SOMETHING:
            note(self, derived, run)

    def judge_waiting(self, run: Run) -> None:
        """At the end: whether what waits is too old for the active policy by now."""
        active = None if run.head.active is None else self._policy(run, run.head.active)
        if active is None:
            return
        for name, row in self.rows.items():
            state = run.trajectories.get(name) or self._closed.get(name)
            if row.status is TrajectoryStatus.REWARDED and state is not None:
                row.is_stale = self._is_stale(run, state, active)

    def _is_stale(self, run: Run, state: TrajectoryState, active: PolicyState) -> bool:
        spans = [self._policy(run, ref) for ref in state.policies]
        known = [policy for policy in spans if policy is not None]
        if len(known) < len(spans):
            return False
        admission = run.config.admission
        oldest = min(policy_number(policy, admission.lag_unit) for policy in known)
        lag = policy_number(active, admission.lag_unit) - oldest
        return freshness_of(lag, admission.max_lag) is Freshness.STALE

    def _policy(self, run: Run, ref: PolicyRef) -> PolicyState | None:
        return run.policies.get(ref.version) or self._policies.get(ref.version)

    def _row(self, name: str, state: TrajectoryState) -> Row:
        known = self.rows.get(name)
        if known is not None and known.status is not None:
            return known
        taken_in = self.rows[name] = Row(self._once(state.group_id), state.policies[0].version)
        taken_in.is_dispatched = known is not None and known.is_dispatched
        return taken_in

    def _once(self, value: str) -> str:
        return self._texts.setdefault(value, value)

    def _of(self, task: TaskSource) -> Task:
        found = (self._once(task.dataset), self._once(task.task_id))
        return self._tasks.setdefault(found, found)

    # --- what its records say of it

    def dispatched(self, derived: Derived, run: Run) -> None:
        record = derived.record
        assert isinstance(record, Dispatched)
        row = self._reported(derived, record.identity, record.policy.version, record.task)
        if row is not None:
            row.is_dispatched = True

    def generated(self, derived: Derived, run: Run) -> None:
        record = derived.record
        assert isinstance(record, Generated)
        versions = [span.policy.version for one in record.segments for span in one.spans if span.policy is not None]
        row = self._reported(derived, record.identity, min(versions), record.task)
        if row is None:
            return
        row.purpose = record.purpose
        row.length = sum(segment.response_length for segment in record.segments)
        name = record.identity.trajectory_id
        self._rewarded(run, name, row)
        if row.status is TrajectoryStatus.REWARD_FAILED:
            row.cause = self._early_failures.pop(name, row.cause)

    def generation_failed(self, derived: Derived, run: Run) -> None:
        record = derived.record
        assert isinstance(record, GenerationFailed)
        row = self._reported(derived, record.identity, record.policy.version, None)
        if row is not None and row.status is TrajectoryStatus.GENERATION_FAILED:
            row.cause = record.reason.value

    def _reported(
        self, derived: Derived, identity: TrajectoryIdentity, version: int, task: TaskSource | None
    ) -> Row | None:
        """Its row, where this report is the one that counts: it was taken in, or is of what never was."""
        name, accepted = identity.trajectory_id, derived.decision.outcome is Outcome.ACCEPTED
        row = self.rows.get(name)
        if not accepted and (row is None or row.status is None):
            entered = Row(self._once(identity.group_id), version, cause=self._once(derived.decision.reason))
            if row is not None:
                entered.is_dispatched, entered.task, entered.length = row.is_dispatched, row.task, row.length
                entered.purpose, entered.reward = row.purpose, row.reward
            if name in self._early:
                entered.reward = self._early[name][1]
            row = self.rows[name] = entered
        elif not accepted:
            return None
        if row is not None and task is not None and (row.task is None or isinstance(derived.record, Generated)):
            row.task = self._of(task)
            self.tasks.setdefault(row.group_id, row.task)
        return row

    def reward_ready(self, derived: Derived, run: Run) -> None:
        record, offset = derived.record, derived.stored.offset
        assert isinstance(record, RewardReady)
        given: dict[str, float] = {}
        for item in record.items:  # of one that is named twice the first counts
            given.setdefault(item.trajectory_id, item.raw_reward)
        for name, reward in given.items():
            row, state = self.rows.get(name), run.trajectories.get(name)
            if row is not None and state is not None and state.reward_offset == offset:
                row.reward = reward
            elif (fact := reward_of(run, name)) is not None and fact.offset == offset:
                self._early[name] = (offset, reward)
                if row is not None and row.status is None:
                    row.reward = reward

    def _rewarded(self, run: Run, name: str, row: Row) -> None:
        """By a reward that came before it."""
        state, (offset, reward) = run.trajectories.get(name), self._early.get(name, (None, 0.0))
        if state is not None and offset is not None and offset == state.reward_offset:
            row.reward = reward
            del self._early[name]

    def reward_failed(self, derived: Derived, run: Run) -> None:
        record, decision = derived.record, derived.decision
        assert isinstance(record, RewardFailed)
        row = self.rows.get(record.trajectory_id)
        if decision.outcome is Outcome.PENDING:
            self._early_failures[record.trajectory_id] = record.reason.value
        elif decision.outcome is Outcome.ACCEPTED and row is not None:
            row.cause = record.reason.value

    def taken_out(self, derived: Derived, run: Run) -> None:
        """By Discarded or Quarantine, whose reason is the decision's detail."""
        for row in self._changed(derived.decision.items):
            row.cause = self._once(derived.decision.detail)

    def asked(self, derived: Derived, run: Run) -> None:
        """By Reserve or Admit."""
        for item in derived.decision.items:
            row = self.rows.get(item.trajectory_id)
            if row is not None:
                row.refuse(item.reason)

    def committed(self, derived: Derived, run: Run) -> None:
        record = derived.record
        assert isinstance(record, Commit)
        for drop in record.dropped:
            row = self.rows.get(drop.trajectory_id)
            if row is not None and drop.disposition is Disposition.DISCARD and drop.trajectory_id in self._moved:
                row.cause = self._once(f"dropped: {drop.reason}")

    def learner_started(self, derived: Derived, run: Run) -> None:
        """What is forgotten is named by no update any more that is undone."""
        if derived.decision.outcome is not Outcome.ACCEPTED:
            return
        undone = {one.update_id for one in run.updates.values() if one.status is UpdateStatus.ROLLED_BACK}
        for name, row in self.rows.items() if undone else ():
            if row.status is TrajectoryStatus.CONSUMED and row.update_id in undone and name not in run.trajectories:
                row.undo_forgotten()

    def closed(self, derived: Derived, run: Run) -> None:
        """The ledger forgets all of the run but its configuration and what happened."""
        self._closed = {name: state for name, state in self.changes.trajectories.items() if state is not None}
        self._policies = {version: policy for version, policy in self.changes.policies.items() if policy is not None}

    @property
    def _moved(self) -> dict[str, TrajectoryState | None]:
        return self.changes.trajectories

    def _changed(self, items: Iterable[ItemDecision]) -> Iterable[Row]:
        names = dict.fromkeys(item.trajectory_id for item in items if item.trajectory_id in self._moved)
        return [self.rows[name] for name in names]


_SAYS_SOMETHING = (Outcome.ACCEPTED, Outcome.REJECTED, Outcome.PENDING)

_NOTES: dict[str, Callable[[Seen, Derived, Run], None]] = {
    "Dispatched": Seen.dispatched,
    "Generated": Seen.generated,
    "GenerationFailed": Seen.generation_failed,
    "RewardReady": Seen.reward_ready,
    "RewardFailed": Seen.reward_failed,
    "Discarded": Seen.taken_out,
    "Quarantine": Seen.taken_out,
    "Reserve": Seen.asked,
    "Admit": Seen.asked,
    "Commit": Seen.committed,
    "LearnerStarted": Seen.learner_started,
    "RunClosed": Seen.closed,
}
