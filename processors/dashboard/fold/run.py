"""What the dashboard keeps of one run, and how it answers for it."""

from collections import deque
from collections.abc import Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass
from itertools import islice

from rollbook.processors.dashboard.answers import (
    Activation,
    Now,
    RunLine,
    Series,
    Size,
    Totals,
    UpdateLine,
    WorkerLine,
)
from rollbook.processors.dashboard.answers import Window as WindowAnswer
from rollbook.processors.dashboard.fold.board import Board
from rollbook.processors.dashboard.fold.figures import fields_of, ready_fields, ready_of
from rollbook.processors.dashboard.fold.places import Times
from rollbook.processors.dashboard.fold.recent import Recent
from rollbook.processors.dashboard.fold.updates import Updates
from rollbook.processors.dashboard.fold.windows import KEPT, LENGTH_MS, Counts, Key, Windows
from rollbook.schemas.codec import ContractViolation, UndecodableRecord, decode_as, unwrap
from rollbook.schemas.records.decision import FreshnessSnapshot

_MOST_WAITING = 1_024
_MOST_WAITING_BYTES = 2 * 1024 * 1024
_FINE_SEQUENCES = 10_000
_COARSE_SEQUENCES = 20_000


@dataclass(slots=True)
class _Snapshot:
    """The newest one, and what it was last read into."""

    sequence: int
    value: bytes
    read: FreshnessSnapshot | None = None


class RunView:
    """One run: its windows and totals, its updates, policies and newest decisions, its newest snapshot."""

    def __init__(self, run_id: str, partition: int) -> None:
        self.run_id = run_id
        self.partition = partition
        self.sequence = 0
        self.since = 0
        self.first_ms = 0
        self.last_ms = 0
        self.closed = False
        self.names_all = True
        """Whether no decision has changed more trajectories than it names."""
        self.totals: Counts = {}
        self.windows = Windows()
        self.updates = Updates()
        self.board = Board()
        self.recent = Recent()
        self._sequences = Times(_FINE_SEQUENCES, _COARSE_SEQUENCES)
        self._waiting: deque[tuple[int, bytes]] = deque()
        """Snapshots that are ahead of the decisions that were read: of too many each second one."""
        self._waiting_bytes = 0
        self._leases: dict[str, int] = {}
        self._newest: _Snapshot | None = None
        self._written_ms = 0
        """By the processor's clock: what is known where a run's decisions have left the topic."""

    def seen(self, sequence: int, at_ms: int) -> None:
        """A decision was read."""
        if not self.sequence:
            self.first_ms, self.since = at_ms, sequence
        self.sequence = sequence
        self.last_ms = at_ms
        self._sequences.mark(sequence, at_ms)

    def count(self, at_ms: int, counts: Mapping[Key, int], revision: int) -> None:
        """What happened within one second."""
        for key, count in counts.items():
            self.totals[key] = self.totals.get(key, 0) + count
        self.windows.add(at_ms, counts, revision)

    def offer(self, sequence: int, value: bytes, written_ms: int) -> None:
        """A snapshot was read; `settle` puts it to its time."""
        self._written_ms = written_ms
        if self._newest is None or sequence >= self._newest.sequence:
            self._newest = _Snapshot(sequence, value)
        self._waiting.append((sequence, value))
        self._waiting_bytes += len(value)
        if len(self._waiting) > _MOST_WAITING or self._waiting_bytes > _MOST_WAITING_BYTES:
            self._waiting = deque(list(self._waiting)[-1::-2][::-1])
            self._waiting_bytes = sum(len(one) for _, one in self._waiting)

    def settle(self, revision: int) -> None:
        """Put the snapshots whose decisions were read into the windows of these: of each second the last one."""
        last: dict[int, tuple[int, bytes]] = {}
        while self._waiting and self._waiting[0][0] <= self.sequence:
            found = self._waiting.popleft()
            self._waiting_bytes -= len(found[1])
            at_ms = self._sequences.of(found[0])
            if at_ms is not None:
                last[at_ms - at_ms % 1_000] = found
        for at_ms, (sequence, value) in last.items():
            with suppress(UndecodableRecord):
                self.windows.ready(at_ms, ready_of(sequence, unwrap(value).fields), revision)

    @property
    def snapshot(self) -> FreshnessSnapshot | None:
        """The newest one."""
        newest = self._newest
        if newest is not None and newest.read is None:
            with suppress(UndecodableRecord, ContractViolation):
                newest.read = decode_as(FreshnessSnapshot, newest.value)
        return None if newest is None else newest.read

    def snapshot_ms(self) -> int | None:
        """When its last decision was; None: not read yet."""
        newest = self._newest
        return None if newest is None or newest.sequence > self.sequence else self._sequences.of(newest.sequence)

    def line(self) -> RunLine:
        """The run in a list."""
        snapshot = self.snapshot
        active = None if snapshot is None else snapshot.active_policy
        return RunLine(
            run_id=self.run_id,
            first_ms=self.first_ms or self._written_ms,
            last_ms=self.last_ms or self._written_ms,
            decisions=self.sequence,
            since=self.since,
            closed=self.closed,
            active_version=None if active is None else active.version,
            ready=None if snapshot is None else all_ready(snapshot),
            stale=None if snapshot is None else snapshot.ready_stale,
        )

    def now(self, times: Times) -> Now:
        """The run at this moment. `times` are those of its partition of the lifecycle topic."""
        workers = tuple(self._workers(times))
        return Now(
            run=self.line(),
            snapshot=self.snapshot,
            snapshot_ms=self.snapshot_ms(),
            totals=Totals(**fields_of(self.totals)),
            updates=self.open_updates(times),
            activation=Activation(workers=workers, policies=self.board.lines(workers)),
            decisions=tuple(islice(self.recent.lines(self.partition), 50)),
        )

    def series(self, size: Size, since: int | None, revision: int) -> Series:
        """Its windows of a length."""
        return Series(
            run_id=self.run_id,
            size=size,
            size_ms=LENGTH_MS[size],
            kept=KEPT[size],
            revision=revision,
            windows=tuple(
                WindowAnswer.model_construct(start_ms=start, **fields_of(window.counts), **ready_fields(window.ready))
                for start, window in self.windows.changed(size, since)
            ),
        )

    def open_updates(self, times: Times) -> tuple[UpdateLine, ...]:
        """The open updates and the newest that have ended."""
        if self.closed:
            self.updates.end_all(self.last_ms)
        elif self.snapshot is not None:
            self.updates.agree(self.snapshot, self.last_ms)
        return self.updates.lines(self.leases(times))

    def leases(self, times: Times) -> dict[str, int]:
        """Until when the leases of open updates run; of one whose last sign of life was not read yet what was known."""
        snapshot = self.snapshot
        found: dict[str, int] = {}
        for one in () if snapshot is None else snapshot.updates:
            since = times.of(one.last_activity_offset)
            if one.lease_ms and since is not None:
                found[one.update_id] = since + one.lease_ms
            elif one.lease_ms and one.update_id in self._leases:
                found[one.update_id] = self._leases[one.update_id]
        self._leases = found
        return found

    def _workers(self, times: Times) -> Iterator[WorkerLine]:
        snapshot = self.snapshot
        for one in () if snapshot is None else snapshot.workers:
            yield WorkerLine(
                worker_id=one.worker_id,
                required=one.required,
                version=None if one.serves is None else one.serves.version,
                artifact_hash="" if one.serves is None else one.serves.artifact_hash,
                serves_active=one.serves_active,
                failure=one.failure,
                reported_ms=None if one.offset is None else times.of(one.offset),
            )


def all_ready(snapshot: FreshnessSnapshot) -> int:
    """All that wait to be trained on."""
    return (
        snapshot.ready_fresh
        + snapshot.ready_tolerated
        + snapshot.ready_stale
        + snapshot.ready_future
        + snapshot.ready_unknown
    )
