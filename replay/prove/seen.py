"""What is noted while a run's decisions are derived: its policies, its commits, and the rows that were asked for.

Memory grows with policies and updates, not with trajectories: of those only what was asked for is kept, and rows that
were trained on before the log knew them.
"""

import hashlib
from collections.abc import Callable
from dataclasses import dataclass, field, replace

from rollbook.processors.ledger.store import Run
from rollbook.processors.ledger.verdict import UPDATES_ROLLED_BACK
from rollbook.replay.audit.decisions import Derived
from rollbook.replay.prove.asked import Asked
from rollbook.replay.prove.proof import ProvenPolicy, Standing
from rollbook.schemas.records.decision import ItemDecision, Outcome
from rollbook.schemas.records.ledger import TrajectoryStatus, UpdateStatus
from rollbook.schemas.records.policy import PolicyPrepared
from rollbook.schemas.records.rollout import Generated
from rollbook.schemas.records.run import Enforcement, RunConfigured
from rollbook.schemas.records.update import Commit

_STANDING = {
    UpdateStatus.OPEN: Standing.NOT_COMMITTED,
    UpdateStatus.STARTED: Standing.NOT_COMMITTED,
    UpdateStatus.COMMITTED: Standing.COMMITTED,
    UpdateStatus.ABORTED: Standing.ABORTED,
    UpdateStatus.ROLLED_BACK: Standing.ROLLED_BACK,
}
_GENERATED_LATER = (None, TrajectoryStatus.DISPATCHED.value)


@dataclass(slots=True)
class Committed:
    """Whose an update is, where its Commit and the decision on it lie, digests of both, and where it was undone."""

    update_id: str
    learner_id: str
    offset: int
    decision_offset: int
    sha256: str
    decision_sha256: str
    undone_offset: int | None = None


@dataclass(frozen=True, slots=True)
class Matched:
    """A row of a task that was asked for."""

    asked: str
    trajectory_id: str
    generated_offset: int


@dataclass(slots=True)
class Offsets:
    """Where a row that was trained on early came to be known."""

    generated: int | None
    reward: int | None


@dataclass(slots=True)
class Seen:
    """Takes what the deriver derives of one run. `digest`: over the records, so that a second reading of them can show
    that it read the same."""

    asked: Asked | None = None
    policies: dict[int, ProvenPolicy] = field(default_factory=dict)
    commits: dict[str, Committed] = field(default_factory=dict)
    trained: dict[str, list[Matched]] = field(default_factory=dict)
    dropped: dict[str, list[Matched]] = field(default_factory=dict)
    late: dict[str, Offsets] = field(default_factory=dict)
    observed: bool = False
    digest: "hashlib._Hash" = field(default_factory=hashlib.sha256)
    _others: dict[str, Standing] = field(default_factory=dict)
    """Updates that policies name and that have no Commit so far."""
    _matched: dict[str, list[Matched]] = field(default_factory=dict)
    _trained_late: dict[str, list[str]] = field(default_factory=dict)

    def standing(self, update_id: str) -> Standing:
        """What became of an update that some policy names."""
        commit = self.commits.get(update_id)
        if commit is None:
            return self._others.get(update_id, Standing.UNKNOWN)
        return Standing.COMMITTED if commit.undone_offset is None else Standing.ROLLED_BACK

    @property
    def occurring(self) -> frozenset[str]:
        """Which of the names that ask are of tasks of the run."""
        return frozenset(one.asked for of_row in self._matched.values() for one in of_row)

    def take(self, derived: Derived, run: Run) -> None:
        """Note a record and its decision; `run` as it is behind it."""
        decision = derived.decision
        self.digest.update(bytes.fromhex(decision.source.sha256))
        note = _NOTES.get(decision.record_type)
        if note is not None and decision.outcome in (Outcome.ACCEPTED, Outcome.PENDING):
            note(self, derived, run)
        if decision.update_id in self._others:
            self._look_again(run)

    def configured(self, derived: Derived, run: Run) -> None:
        record = derived.record
        assert isinstance(record, RunConfigured), "notes are by type"
        self.observed = record.enforcement is Enforcement.OBSERVE
        if not self.policies:
            first = record.initial_policy
            self._policy(derived, ProvenPolicy(first.version, first.label, first.artifact))

    def prepared(self, derived: Derived, run: Run) -> None:
        record = derived.record
        assert isinstance(record, PolicyPrepared), "notes are by type"
        made = ProvenPolicy(
            record.version,
            record.label,
            record.artifact,
            parent_version=record.parent_version,
            rollback_of=record.rollback_of,
            update_ids=record.update_ids,
        )
        self._policy(derived, made)
        self._others |= {name: Standing.UNKNOWN for name in record.update_ids if name not in self.commits}
        self._look_again(run)

    def activated(self, derived: Derived, run: Run) -> None:
        policy = self._policy_of(derived)
        self.policies[policy.version] = replace(policy, activated_offset=derived.stored.offset)

    def abandoned(self, derived: Derived, run: Run) -> None:
        policy = self._policy_of(derived)
        self.policies[policy.version] = replace(policy, abandoned_offset=derived.stored.offset)

    def committed(self, derived: Derived, run: Run) -> None:
        record, decision = derived.record, derived.decision
        assert isinstance(record, Commit), "notes are by type"
        self._others.pop(record.update_id, None)
        self.commits[record.update_id] = Committed(
            record.update_id,
            record.learner.learner_id,
            derived.stored.offset,
            derived.decided.offset,
            decision.source.sha256,
            derived.decided.sha256,
        )
        trained = {name for step in record.steps for name in step.trajectory_ids}
        for item in decision.items:
            if item.trajectory_id in trained and _comes_later(item):
                self.late.setdefault(item.trajectory_id, Offsets(None, None))
                self._trained_late.setdefault(item.trajectory_id, []).append(record.update_id)
        for names, noted in ((trained, self.trained), ({one.trajectory_id for one in record.dropped}, self.dropped)):
            found = [matched for name in sorted(names) for matched in self._matched.get(name, ())]
            if found:
                noted[record.update_id] = found

    def learner_started(self, derived: Derived, run: Run) -> None:
        if any(change.predicate == UPDATES_ROLLED_BACK for change in derived.decision.mass_changes):
            for commit in self.commits.values():
                update = run.updates.get(commit.update_id)
                if commit.undone_offset is None and update is not None and update.status is UpdateStatus.ROLLED_BACK:
                    commit.undone_offset = derived.stored.offset
        self._look_again(run)

    def generated(self, derived: Derived, run: Run) -> None:
        self.told(derived, run)
        if self.asked is None:
            return
        record = derived.record
        assert isinstance(record, Generated), "notes are by type"
        name = record.identity.trajectory_id
        matched = [Matched(asked, name, derived.stored.offset) for asked in self.asked.names_of(record)]
        if matched:
            self._matched[name] = matched
            for update_id in self._trained_late.pop(name, ()):
                self.trained.setdefault(update_id, []).extend(matched)

    def told(self, derived: Derived, run: Run) -> None:
        """A row that was trained on before becomes known, or its reward does."""
        for item in derived.decision.items if self.late else ():
            late = self.late.get(item.trajectory_id)
            if late is not None and item.state_after != TrajectoryStatus.DISPATCHED.value:
                late.generated, late.reward = item.generated_offset, item.reward_offset

    def ended(self, derived: Derived, run: Run) -> None:
        self._look_again(run)

    def _policy(self, derived: Derived, policy: ProvenPolicy) -> None:
        where, chain = derived.stored.offset, derived.decision.chain
        self.policies[policy.version] = replace(policy, prepared_offset=where, prepared_chain=chain)

    def _policy_of(self, derived: Derived) -> ProvenPolicy:
        subject = derived.decision.subject
        assert subject is not None, "what is decided of a policy names it"
        return self.policies[int(subject.id)]

    def _look_again(self, run: Run) -> None:
        for name in self._others:
            update = run.updates.get(name)
            if update is not None:
                self._others[name] = _STANDING[update.status]


def _comes_later(item: ItemDecision) -> bool:
    return item.state_before in _GENERATED_LATER or item.reward_offset is None


_NOTES: dict[str, Callable[[Seen, Derived, Run], None]] = {
    "RunConfigured": Seen.configured,
    "PolicyPrepared": Seen.prepared,
    "Activate": Seen.activated,
    "PolicyAbandoned": Seen.abandoned,
    "Commit": Seen.committed,
    "LearnerStarted": Seen.learner_started,
    "Abort": Seen.ended,
    "Generated": Seen.generated,
    "RewardReady": Seen.told,
}
