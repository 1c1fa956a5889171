"""What must be true of the topics when a soak is over, a partition at a time, in bounded memory.

The reader shares no code with the processor. Beside it runs a fold outside of any host: it must give the same bytes.
"""

from collections import Counter
from collections.abc import Iterable, Iterator
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass, field
from itertools import zip_longest
from multiprocessing import get_context

from rollbook.infra.settings import Settings, Topic
from rollbook.processors.ledger.fold import Ledger, SourceRecord
from rollbook.processors.ledger.keys import key_of, position_key
from rollbook.schemas.codec import encode
from rollbook.tests.recount import Chains, Codec, Record
from rollbook.tests.soak.reader import Reservations, stream


@dataclass(frozen=True, slots=True)
class Task:
    """One partition to check."""

    settings: Settings
    partition: int
    partitions: int


@dataclass(slots=True)
class Findings:
    """What a check found. `aborted` are decisions that lie in the log and that no reader may see."""

    events: int = 0
    outcomes: Counter[str] = field(default_factory=Counter)
    types: Counter[str] = field(default_factory=Counter)
    reservations: int = 0
    dead_letters: int = 0
    aborted: int = 0
    ledger_rows: int = 0
    violations: list[str] = field(default_factory=list)

    def add(self, other: "Findings") -> None:
        """Those of another partition, too."""
        self.events += other.events
        self.outcomes += other.outcomes
        self.types += other.types
        self.reservations += other.reservations
        self.dead_letters += other.dead_letters
        self.aborted += other.aborted
        self.ledger_rows += other.ledger_rows
        self.violations += other.violations


def check_all(settings: Settings, partitions: int, jobs: int) -> Findings:
    """All partitions, several at a time."""
    found = Findings()
    tasks = [Task(settings, partition, partitions) for partition in range(partitions)]
    with ProcessPoolExecutor(jobs, mp_context=get_context("spawn")) as pool:
        for one in pool.map(check_partition, tasks):
            found.add(one)
    return found


def check_partition(task: Task) -> Findings:
    """Decisions, dead letters and ledger of one partition; a violation ends the partition's check."""
    found = Findings()
    try:
        ledger, undecodable = _decisions(task, found)
        _dead_letters(task, undecodable, found)
        _ledger(task, ledger, found)
        _hidden(task, found)
    except AssertionError as broken:
        found.violations.append(f"partition {task.partition}: {broken}")
    return found


def _topic(task: Task, topic: Topic, *, partition: int | None = None, committed: bool = True) -> Iterator[Record]:
    at = task.partition if partition is None else partition
    return stream(task.settings.bootstrap_servers, task.settings.topic(topic), at, committed=committed)


def _decisions(task: Task, found: Findings) -> tuple[Ledger, list[int]]:
    """Exactly one decision a record, in order, chained, of the bytes that a fold outside gives."""
    chains, reservations, undecodable = Chains(Codec()), Reservations(), list[int]()
    ledger = Ledger(task.partition, task.partitions)
    for source, record in zip_longest(_topic(task, Topic.LIFECYCLE), _topic(task, Topic.DECISIONS)):
        assert record is not None, f"offset {source.offset} has no decision"
        assert source is not None, f"a decision at {record.offset} behind the last record's"
        decision = chains.check(source, record)
        reservations.take(decision)
        folded = ledger.fold(SourceRecord(source.partition, source.offset, source.key, source.value))
        ledger.journal.keep()
        assert folded.encoded == record.value, f"offset {source.offset}: other bytes than those of a fold outside"
        if folded.undecodable is not None:
            undecodable.append(source.offset)
        found.events += 1
        found.outcomes[decision["outcome"]] += 1
        found.types[decision["record_type"] or "undecodable"] += 1
    found.reservations = reservations.made
    return ledger, undecodable


def _dead_letters(task: Task, undecodable: list[int], found: Findings) -> None:
    """One for each undecodable record of the partition, in order, naming its place. Where a broker lost markers one may
    be there again with the same bytes."""
    ours = f"{task.partition}:".encode()
    found_letters = ((one.key, one.value) for one in _topic(task, Topic.DEAD_LETTERS, partition=0))
    letters = [key for key, _ in dict.fromkeys(found_letters) if key.startswith(ours)]
    assert letters == [b"%s%d" % (ours, offset) for offset in undecodable], "dead letters are not the undecodable ones"
    found.dead_letters = len(letters)


def _ledger(task: Task, ledger: Ledger, found: Findings) -> None:
    """What the ledger topic holds in the end is the fold of the log, byte for byte, and where it stands."""
    rows: dict[bytes, bytes] = {}
    for record in _topic(task, Topic.LEDGER):
        if record.value is None:
            rows.pop(record.key, None)
        else:
            rows[record.key] = record.value
    stands = rows.pop(position_key(task.partition), None)
    if found.events:
        assert stands is not None, "the ledger topic has no position"
        stood = Codec().decode(stands)[1]["next_offset"]
        assert stood == found.events, f"the ledger stands at {stood}, not at {found.events}"
    for key, value in _rows(ledger):
        assert rows.pop(key, None) == value, f"{key!r}: the ledger topic has another row than the fold"
        found.ledger_rows += 1
    assert not rows, f"{next(iter(rows))!r}: the ledger topic has a row that the fold has not"


def _rows(ledger: Ledger) -> Iterable[tuple[bytes, bytes]]:
    for run in ledger.runs.values():
        for table in run.tables():
            for key, row in table._rows.items():
                yield key_of(run.run_id, table.kind, key), encode(row)


def _hidden(task: Task, found: Findings) -> None:
    """How many decisions of aborted transactions lie in the log; none of them was among those read above."""
    found.aborted = sum(1 for _ in _topic(task, Topic.DECISIONS, committed=False)) - found.events
