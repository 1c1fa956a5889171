"""All that the dashboard knows: committed decisions and snapshots, folded into memory in the order of the log.

Pure but for what it is given, and not safe for threads: who shares it holds a lock. Each record counts once, however
often it is read: what lies before a partition's position is skipped.
"""

from collections.abc import Iterator, Sequence
from functools import cache
from itertools import islice
from typing import NamedTuple, Protocol

from rollbook.processors.dashboard.answers import Decisions, Now, Runs, Series, Size, Step
from rollbook.processors.dashboard.fold import counting, lean
from rollbook.processors.dashboard.fold.counting import ACCEPTED, FACTS, WITH_ROWS, Tally
from rollbook.processors.dashboard.fold.lean import Head, Rest
from rollbook.processors.dashboard.fold.places import Mentions, Times
from rollbook.processors.dashboard.fold.run import RunView
from rollbook.processors.ledger.verdict import UPDATES_ROLLED_BACK
from rollbook.processors.metric import MOST_RUNS
from rollbook.schemas.codec import (
    MARKER,
    PREFIX_LENGTH,
    ContractViolation,
    UndecodableRecord,
    decode_as,
    shipped_schemas,
)
from rollbook.schemas.records.decision import Decision, FreshnessSnapshot

_MOST_LEFT_OUT = 10_000
_MOST = 2**62
_PSEUDO = "~"
"""What the names of partitions begin with, under which records of no run are decided."""
_OF_UPDATES = frozenset((b"Reserve", b"Admit", b"UpdateStarted", b"Commit", b"Abort", b"Renew", b"LeaseExpired"))
_OF_POLICIES = frozenset((b"PolicyPrepared", b"PolicyCommitted", b"PolicyAbandoned", b"Activate", b"ActivationAck"))
_OTHERS = frozenset(
    (b"RunConfigured", b"LearnerStarted", b"RunClosed", b"Abort", b"LeaseExpired", b"Activate", b"PolicyAbandoned")
)
"""Few, and each may change many things at once."""
_READ = WITH_ROWS | _OF_UPDATES | _OF_POLICIES
_JUDGED = (b"ok", b"policy_drift")
_OF_TRAJECTORIES = ("trajectories ", "items omitted", "facts ")
_ENDED = {"updates aborted": Step.ABORTED, UPDATES_ROLLED_BACK: Step.ROLLED_BACK}


class Stored(Protocol):
    """A record, as a Kafka client hands it out."""

    def partition(self) -> int | None: ...
    def offset(self) -> int | None: ...
    def timestamp(self) -> tuple[int, int]: ...
    def key(self) -> bytes | None: ...
    def value(self) -> bytes | None: ...


class Remembered(NamedTuple):
    """Where decisions about a trajectory lie: on this partition of the decisions topic, at these offsets. `complete`:
    none was forgotten, and none changed very many trajectories without naming each."""

    partition: int
    offsets: tuple[int, ...]
    complete: bool


class _Partition:
    """What is kept of one."""

    def __init__(self) -> None:
        self.next_decision = 0
        self.next_snapshot = 0
        self.times = Times()
        self.newest_ms = 0
        self.mentions = Mentions()


class View:
    """Everything, by run."""

    def __init__(self) -> None:
        self.revision = 0
        """Grows with all that changes."""
        self.records = 0
        self.unreadable = 0
        """Records that are no decision or snapshot; only the processor writes there."""
        self._left_out: set[str] = set()
        """Open runs that gave their place away, and have not come back."""
        self._runs: dict[str, RunView] = {}
        self._partitions: dict[int, _Partition] = {}

    def take_decisions(self, messages: Sequence[Stored]) -> None:
        """Fold records of the decisions topic."""
        self.revision += 1
        seconds: dict[tuple[bytes, int], Tally] = {}
        touched: dict[bytes, RunView] = {}
        for message in messages:
            partition, offset, value = message.partition(), message.offset(), message.value()
            assert partition is not None
            assert offset is not None
            kept = self._partition(partition)
            if offset < kept.next_decision:
                continue
            kept.next_decision = offset + 1
            self.records += 1
            value, rest, fact = value or b"", None, None
            try:
                head = lean.beginning(value)
                record_type = head[3]
                if record_type in FACTS and head[7]:
                    fact = lean.fact(value, head[7])
                if fact is None and record_type in _READ:
                    rest = lean.whole(value, head[7])
            except (UndecodableRecord, IndexError):
                self.unreadable += 1
                continue
            at_ms = message.timestamp()[1]
            kept.times.mark(head[2], at_ms)
            kept.newest_ms = at_ms
            name = head[0]
            run = touched.get(name)
            if run is None:
                run = touched[name] = self._run(name.decode(errors="replace"), partition)
            second = (name, at_ms // 1_000)
            tally = seconds.get(second)
            if tally is None:
                tally = seconds[second] = Tally()
            run.seen(head[1], at_ms)
            run.recent.add(at_ms, offset, value)
            alike = head[3:7]
            tally.heads[alike] = tally.heads.get(alike, 0) + 1
            if fact is not None:
                kept.mentions.add(fact[0], offset)
                moved = (record_type, *fact[1:4])
                tally.facts[moved] = tally.facts.get(moved, 0) + 1
            elif rest is not None:
                kept.mentions.add_all([row[0] for row in rest.rows], offset)
                if not rest.rows and rest.subject_kind == b"trajectory":
                    kept.mentions.add(rest.subject_id, offset)
                if record_type in _OF_UPDATES:
                    run.updates.take(at_ms, head, rest)
                elif record_type in _OF_POLICIES:
                    run.board.take(at_ms, head, rest)
                if record_type in WITH_ROWS:
                    self._take_rows(run, kept, tally, at_ms, head, rest)
            if record_type in _OTHERS:
                self._take_others(run, kept, at_ms, offset, head, value)
        for (name, at), tally in seconds.items():
            touched[name].count(at * 1_000, tally.sum(), self.revision)
        for run in touched.values():
            run.recent.trim()
            run.settle(self.revision)
        self._make_room()

    def take_snapshots(self, messages: Sequence[Stored]) -> None:
        """Take records of the freshness topic."""
        self.revision += 1
        touched: dict[str, RunView] = {}
        for message in messages:
            partition, offset, key, value = message.partition(), message.offset(), message.key(), message.value()
            assert partition is not None
            assert offset is not None
            kept = self._partition(partition)
            if offset < kept.next_snapshot:
                continue
            kept.next_snapshot = offset + 1
            self.records += 1
            if value is None or key is None:
                continue
            try:
                sequence = _sequence(key, value)
            except UndecodableRecord:
                self.unreadable += 1
                continue
            run = self._run(key.decode(errors="replace"), partition)
            run.offer(sequence, value, message.timestamp()[1])
            touched[run.run_id] = run
        for run in touched.values():
            run.settle(self.revision)
        self._make_room()

    def runs(self) -> Runs:
        """All runs, the one with the newest decision first; then those of which only a snapshot is left; and last what
        is decided of no run."""
        found = (run.line() for run in self._runs.values())
        lines = sorted(found, key=lambda line: (line.run_id.startswith(_PSEUDO), not line.since, -line.last_ms))
        return Runs(runs=tuple(lines), left_out=self.left_out)

    def now(self, run_id: str) -> Now | None:
        """A run at this moment; None: not known (yet)."""
        run = self._runs.get(run_id)
        return None if run is None else run.now(self._partition(run.partition).times)

    def series(self, run_id: str, size: Size, since: int | None) -> Series | None:
        """A run's windows of a length, or those of them that have changed after a revision."""
        run = self._runs.get(run_id)
        return None if run is None else run.series(size, since, self.revision)

    def decisions(self, run_id: str, most: int) -> Decisions | None:
        """The newest decisions of a run."""
        run = self._runs.get(run_id)
        return (
            None
            if run is None
            else Decisions(run_id=run_id, decisions=tuple(islice(run.recent.lines(run.partition), most)))
        )

    def remembered(self, run_id: str, trajectory_id: str) -> Remembered | None:
        """Where decisions about a trajectory lie, as far as is remembered; other runs' may be among them. None: the run
        is not known."""
        run = self._runs.get(run_id)
        if run is None:
            return None
        mentions = self._partition(run.partition).mentions
        complete = mentions.is_complete and run.names_all and run.since == 1
        return Remembered(run.partition, mentions.of(trajectory_id.encode(errors="replace")), complete)

    def figures(self) -> Iterator[tuple[RunView, Times]]:
        """Each run of which decisions are there, with the times of its partition: of one whose decisions have left the
        topic nobody knows whether it is closed."""
        for run in (run for run in self._runs.values() if run.since):
            yield run, self._partition(run.partition).times

    def _take_rows(self, run: RunView, kept: _Partition, tally: Tally, at_ms: int, head: Head, rest: Rest) -> None:
        record_type, accepted = head[3], head[4] == ACCEPTED
        counting.count_rows(tally, head, rest.rows)
        if record_type == b"Admit" and accepted:
            judged = [row for row in rest.rows if row[1] in _JUDGED]
            counting.count_judged(tally.counts, run.updates.first_judged(rest.update, judged))
        elif record_type == b"Commit" and accepted:
            for row in rest.rows:
                generated = lean.number(row[6]) if row[1] == b"trained" else None
                generated_ms = None if generated is None else kept.times.of(generated)
                if generated_ms is not None:
                    counting.count_took(tally.counts, max(0, at_ms - generated_ms))

    @staticmethod
    def _take_others(run: RunView, kept: _Partition, at_ms: int, offset: int, head: Head, value: bytes) -> None:
        """Of rare records more is needed: what begins, ends or undoes many things at once."""
        if head[4] != ACCEPTED:
            return
        try:
            decision = decode_as(Decision, value)
        except (UndecodableRecord, ContractViolation):
            return
        if head[3] == b"RunConfigured" and decision.active_policy is not None:
            run.board.begin(decision.active_policy.version, decision.active_policy.artifact_hash, at_ms)
        run.closed = run.closed or head[3] == b"RunClosed"
        for change in decision.mass_changes:
            if change.predicate in _ENDED:
                run.updates.end(change.first_ids, at_ms, _ENDED[change.predicate], decision.record_type)
            elif change.predicate == "policies orphaned":
                run.board.orphan(change.first_ids)
            elif change.predicate.startswith(_OF_TRAJECTORIES):
                run.names_all = run.names_all and change.count <= len(change.first_ids)
                for name in change.first_ids:
                    kept.mentions.add(name.encode(), offset)

    def _partition(self, partition: int) -> _Partition:
        kept = self._partitions.get(partition)
        if kept is None:
            kept = self._partitions[partition] = _Partition()
        return kept

    def _run(self, run_id: str, partition: int) -> RunView:
        run = self._runs.get(run_id)
        if run is None:
            self._left_out.discard(run_id)
            run = self._runs[run_id] = RunView(run_id, partition)
        return run

    def _make_room(self) -> None:
        """Of too many runs the closed ones go first, then those that are silent for longest, by the time of their
        partition: one partition is read before another. One that comes back begins anew."""
        runs = [run for run in self._runs.values() if not run.run_id.startswith(_PSEUDO)]
        while len(runs) > MOST_RUNS:
            first = max(runs, key=lambda run: (run.closed, self._silence_ms(run), run.run_id))
            runs.remove(first)
            del self._runs[first.run_id]
            if not first.closed and len(self._left_out) < _MOST_LEFT_OUT:
                self._left_out.add(first.run_id)

    def _silence_ms(self, run: RunView) -> int:
        return self._partition(run.partition).newest_ms - run.last_ms

    @property
    def left_out(self) -> int:
        """Open runs that are not kept, because others are busier."""
        return len(self._left_out)


def _sequence(key: bytes, value: bytes) -> int:
    """That of a snapshot. Raises UndecodableRecord for what is none, or of another run than its key."""
    if value[:PREFIX_LENGTH] not in _snapshots():
        raise UndecodableRecord("no freshness snapshot of any shipped version")
    try:
        name, sequence = lean.name_and_number(value)
    except IndexError:
        raise UndecodableRecord("a freshness snapshot that ends too early") from None
    if name != key or sequence >= _MOST:
        raise UndecodableRecord("a freshness snapshot of another run than its key")
    return sequence


@cache
def _snapshots() -> frozenset[bytes]:
    """What snapshots begin with."""
    name = FreshnessSnapshot.__name__
    return frozenset(MARKER + bytes.fromhex(schema) for schema, raw in shipped_schemas() if raw["name"] == name)
