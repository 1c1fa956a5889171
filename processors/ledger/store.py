"""The ledger's state: the tables of a run, each with what is asked of it beside its rows."""

from bisect import bisect_left, bisect_right, insort
from collections.abc import Iterable, Iterator
from typing import Any, TypeVar

from rollbook.processors.ledger.groups import Groups, add, is_ready, versions_of
from rollbook.processors.ledger.table import Journal, Table
from rollbook.processors.lifecycle import LIVE
from rollbook.schemas.records.decision import Tally
from rollbook.schemas.records.ledger import (
    CheckpointState,
    ContractState,
    LearnerState,
    PendingFact,
    PolicyState,
    RunConfig,
    RunHead,
    TrajectoryState,
    TrajectoryStatus,
    UpdateState,
    UpdateStatus,
    WorkerState,
)
from rollbook.schemas.records.run import Enforcement

K = TypeVar("K", str, int)
L = TypeVar("L", str, int)
NO_CHAIN = "0" * 64


class Trajectories(Table[str, TrajectoryState]):
    """Trajectories, with the groups that can be claimed and counts by behavior version and state."""

    def __init__(self, run_id: str, journal: Journal) -> None:
        super().__init__(run_id, "trajectory", TrajectoryState, journal)
        self.groups = Groups()
        self._by_version: dict[tuple[int, TrajectoryStatus], int] = {}
        self._with_span: dict[int, set[str]] = {}
        self._ready: dict[tuple[int, ...], int] = {}
        self.live = 0

    def held(self, trajectory_id: str) -> TrajectoryState:
        """A trajectory that an update holds."""
        trajectory = self.get(trajectory_id)
        assert trajectory is not None, "what an update holds is never forgotten"
        return trajectory

    def members(self, group_id: str) -> list[TrajectoryState]:
        """The known members of a group, by place in the group."""
        return self._in_place(self.groups.members(group_id))

    def ready_members(self, group_id: str) -> list[TrajectoryState]:
        """The members of a group that can be trained on, by place in the group."""
        return self._in_place(self.groups.ready(group_id))

    def _in_place(self, ids: list[str]) -> list[TrajectoryState]:
        return sorted((self._rows[member] for member in ids), key=lambda t: (t.sample_index, t.generated_offset))

    def claimable_groups(self) -> list[str]:
        """Groups that are complete, wait for nothing, and have a rewarded member to train on; by name."""
        return sorted(name for shape in self.groups.shapes() for _, name in self.groups.claimable_of(shape))

    def by_version(self) -> list[tuple[int, TrajectoryStatus, int]]:
        """(oldest behavior version, state, count), sorted; live states only."""
        return sorted((version, status, count) for (version, status), count in self._by_version.items())

    def ready(self) -> list[tuple[tuple[int, ...], int]]:
        """(versions of all model spans, count) of what waits to be trained on, sorted: with a rollback the oldest
        version need not be the one furthest behind."""
        return sorted(self._ready.items())

    def live_with(self, versions: Iterable[int]) -> list[TrajectoryState]:
        """Live trajectories with a span of one of these versions, by id."""
        found = {key for version in versions for key in self._with_span.get(version, ())}
        return [self._rows[key] for key in sorted(found)]

    def _index(self, key: str, before: TrajectoryState | None, after: TrajectoryState | None) -> None:
        if before is not None and after is not None and _alike(before, after):
            return
        spans_before = () if before is None else self._count(before, -1)
        spans_after = () if after is None else self._count(after, 1)
        if spans_before != spans_after:
            self._index_spans(key, spans_before, spans_after)
        self.groups.change(before, after)

    def _count(self, trajectory: TrajectoryState, by: int) -> tuple[int, ...]:
        """Count it, and say under which versions it can be found: those of its spans while it lives."""
        if trajectory.status not in LIVE:
            return ()
        versions = versions_of(trajectory)
        self.live += by
        add(self._by_version, (versions[0], trajectory.status), by)
        if is_ready(trajectory):
            add(self._ready, versions, by)
        return versions

    def _index_spans(self, key: str, before: Iterable[int], after: Iterable[int]) -> None:
        was, now = set(before), set(after)  # of one version a trajectory can have spans of several hashes
        for version in was - now:
            _relate(self._with_span, version, key, -1)
        for version in now - was:
            _relate(self._with_span, version, key, 1)


def _alike(before: TrajectoryState, after: TrajectoryState) -> bool:
    """Whether they are the same in all that the indexes know beside the id and the place in a group, which stay."""
    return (
        before.status is after.status
        and before.policies == after.policies
        and before.apart == after.apart
        and before.purpose is after.purpose
        and before.generated_offset == after.generated_offset
    )


class Pending(Table[str, PendingFact]):
    """Kept facts, with those that can make room for others by age."""

    def __init__(self, run_id: str, journal: Journal) -> None:
        super().__init__(run_id, "pending", PendingFact, journal)
        self._by_age: list[tuple[int, str]] = []
        self.trainings = 0

    def oldest(self, count: int) -> list[PendingFact]:
        """The oldest rewards and failures, as many as asked for and as there are; nothing else makes room."""
        return [self._rows[key] for _, key in self._by_age[: max(0, count)]]

    def _index(self, key: str, before: PendingFact | None, after: PendingFact | None) -> None:
        for fact, by in ((before, -1), (after, 1)):
            if fact is None or fact.record_type == "PolicyCommitted":
                continue
            if fact.record_type == "Commit":
                self.trainings += by
                continue
            if by > 0:
                insort(self._by_age, (fact.offset, key))
            else:
                del self._by_age[bisect_left(self._by_age, (fact.offset, key))]


class Policies(Table[int, PolicyState]):
    """Policies by version, with those that add an update and those made from a version."""

    def __init__(self, run_id: str, journal: Journal) -> None:
        super().__init__(run_id, "policy", PolicyState, journal)
        self._versions: list[int] = []
        self._adding: dict[str, set[int]] = {}
        self._heirs: dict[int, set[int]] = {}

    def adding(self, update_id: str) -> frozenset[int]:
        """Versions that add this update to what they were made from."""
        return frozenset(self._adding.get(update_id, ()))

    def heirs(self, version: int) -> frozenset[int]:
        """Versions made from this one."""
        return frozenset(self._heirs.get(version, ()))

    def between(self, first: int, last: int) -> Iterator[PolicyState]:
        """Policies from one version to another, both included, in their order."""
        for at in range(bisect_left(self._versions, first), bisect_right(self._versions, last)):
            yield self._rows[self._versions[at]]

    def downwards(self, below: int) -> Iterator[PolicyState]:
        """Policies below a version, the newest first."""
        for at in range(bisect_left(self._versions, below) - 1, -1, -1):
            yield self._rows[self._versions[at]]

    def _index(self, key: int, before: PolicyState | None, after: PolicyState | None) -> None:
        if before is None and after is not None:
            insort(self._versions, key)
        if after is None and before is not None:
            del self._versions[bisect_left(self._versions, key)]
        for policy, by in ((before, -1), (after, 1)):
            for update_id in () if policy is None else policy.update_ids:
                _relate(self._adding, update_id, key, by)
            if policy is not None and policy.source_version is not None:
                _relate(self._heirs, policy.source_version, key, by)


def _relate(index: dict[K, set[L]], of: K, key: L, by: int) -> None:
    if by > 0:
        index.setdefault(of, set()).add(key)
        return
    index[of].discard(key)
    if not index[of]:
        del index[of]


class Updates(Table[str, UpdateState]):
    """Updates, with each learner's open ones and the number of its standing commits; these by their order, too."""

    def __init__(self, run_id: str, journal: Journal) -> None:
        super().__init__(run_id, "update", UpdateState, journal)
        self._open: dict[str, set[str]] = {}
        self._committed: dict[str, int] = {}
        self._by_commit: list[tuple[int, str]] = []

    def open_of(self, learner_id: str) -> list[UpdateState]:
        """Open and started updates of a learner, by first Reserve."""
        return sorted((self._rows[u] for u in self._open.get(learner_id, ())), key=lambda u: u.opened_sequence)

    def all_open(self) -> list[UpdateState]:
        """Open and started updates of all learners, by first Reserve."""
        return sorted((self._rows[u] for ids in self._open.values() for u in ids), key=lambda u: u.opened_sequence)

    def committed_of(self, learner_id: str) -> int:
        """How many committed updates of a learner stand."""
        return self._committed.get(learner_id, 0)

    def last_committed(self, count: int) -> list[UpdateState]:
        """The last of the commits that stand, as many as asked for and as there are, by commit order."""
        return [self._rows[name] for _, name in self._by_commit[-count:]]

    def _index(self, key: str, before: UpdateState | None, after: UpdateState | None) -> None:
        for update, by in ((before, -1), (after, 1)):
            if update is None or update.learner is None:
                continue
            learner_id = update.learner.learner_id
            if update.status is UpdateStatus.COMMITTED:
                add(self._committed, learner_id, by)
                place = (update.commit_order, key)
                if by > 0:
                    insort(self._by_commit, place)
                else:
                    del self._by_commit[bisect_left(self._by_commit, place)]
            elif is_open(update):
                ids = self._open.setdefault(learner_id, set())
                if by > 0:
                    ids.add(key)
                else:
                    ids.discard(key)


def is_open(update: UpdateState) -> bool:
    """Whether the update has not ended."""
    return update.status in (UpdateStatus.OPEN, UpdateStatus.STARTED)


def behavior_version(trajectory: TrajectoryState) -> int:
    """The oldest version among the model spans of a trajectory."""
    return trajectory.policies[0].version


class Heads(Table[str, RunHead]):
    """The run's one head."""

    def __init__(self, run_id: str, journal: Journal) -> None:
        super().__init__(run_id, "run", RunHead, journal)
        self._before_the_first = RunHead(run_id=run_id, sequence=0, chain=NO_CHAIN)
        self.current = self._before_the_first
        """The head; a fresh one before the first decision."""

    def _index(self, key: str, before: RunHead | None, after: RunHead | None) -> None:
        self.current = after or self._before_the_first


class Run:
    """All that the fold knows of one run."""

    def __init__(self, run_id: str, journal: Journal) -> None:
        self.run_id = run_id
        self.heads = Heads(run_id, journal)
        self.configs: Table[int, RunConfig] = Table(run_id, "config", RunConfig, journal)
        self.contracts: Table[str, ContractState] = Table(run_id, "contract", ContractState, journal)
        self.trajectories = Trajectories(run_id, journal)
        self.pending = Pending(run_id, journal)
        self.updates = Updates(run_id, journal)
        self.learners: Table[str, LearnerState] = Table(run_id, "learner", LearnerState, journal)
        self.checkpoints: Table[str, CheckpointState] = Table(run_id, "checkpoint", CheckpointState, journal)
        self.policies = Policies(run_id, journal)
        self.workers: Table[str, WorkerState] = Table(run_id, "worker", WorkerState, journal)
        self.tallies: Table[str, Tally] = Table(run_id, "tally", Tally, journal)

    def tables(self) -> tuple[Table[Any, Any], ...]:
        """Every table of the run."""
        return (
            self.heads,
            self.configs,
            self.contracts,
            self.trajectories,
            self.pending,
            self.updates,
            self.learners,
            self.checkpoints,
            self.policies,
            self.workers,
            self.tallies,
        )

    @property
    def head(self) -> RunHead:
        """The run's head; a fresh one before the first decision."""
        return self.heads.current

    def change_head(self, **changes: object) -> None:
        """Replace fields of the head."""
        self.heads.put("", self.head.but(**changes))

    def tally(self, name: str, by: int = 1) -> None:
        """Count what has happened: figures of the whole run need more than what it has not forgotten."""
        known = self.tallies.get(name)
        self.tallies.put(name, Tally.trusted(name=name, count=by if known is None else known.count + by))

    @property
    def floor(self) -> int:
        """The version below which nothing is taken in. An observed run may go back to an older one: that is what its
        workers serve then."""
        active = self.head.active
        return min(self.head.floor, active.version) if self.observes and active is not None else self.head.floor

    @property
    def observes(self) -> bool:
        """Whether what clients report is taken as a fact, and breaches are only marked."""
        return self.head.config_version > 0 and self.config.enforcement is Enforcement.OBSERVE

    @property
    def config(self) -> RunConfig:
        """The configuration in force; only after the first RunConfigured."""
        config = self.configs.get(self.head.config_version)
        assert config is not None, "the fold refuses everything before the first RunConfigured"
        return config
