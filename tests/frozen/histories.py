"""Recorded histories: what they fold to, what an audit and a replay say of them, and the bundles that they become.

All below `tests/data/histories` are taken, so that none is forgotten.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import fastavro

from rollbook.infra.settings import Settings, Topic
from rollbook.processors.ledger.fold import Ledger, SourceRecord
from rollbook.replay.history.ranges import OffsetRange
from rollbook.replay.history.source import StoredRecord
from rollbook.schemas.codec import decode_as
from rollbook.schemas.records.decision import Decision
from rollbook.tests.frozen.folded import parts, schemas_of, written_by
from rollbook.tests.frozen.reports import said_of
from rollbook.tests.frozen.table import Entry, Table, digest
from rollbook.tests.replay.memory_log import MemoryLog

FOLDER = Path(__file__).parents[1] / "data" / "histories"
_PAYLOADS = "-payloads"


@dataclass(frozen=True, slots=True)
class History:
    """One recorded partition: its records with the decisions that they got, as a log."""

    settings: Settings
    log: MemoryLog
    records: tuple[SourceRecord, ...]
    decisions: tuple[bytes, ...]
    topic_partitions: int
    has_payloads: bool

    @property
    def partition(self) -> int:
        return self.records[0].partition

    @property
    def range(self) -> OffsetRange:
        return OffsetRange(self.settings.topic(Topic.LIFECYCLE), self.partition)


def names() -> tuple[str, ...]:
    """All that were ever recorded."""
    paths = (path.relative_to(FOLDER).with_suffix("") for path in FOLDER.rglob("*.avro"))
    return tuple(sorted(path.as_posix() for path in paths if not path.name.endswith(_PAYLOADS)))


def read(name: str) -> History:
    """The history of a name, with its payloads where these were recorded; it refers to them under its own prefix."""
    path = FOLDER / f"{name}.avro"
    settings = Settings(topic_prefix=f"{path.stem}.")
    lifecycle, decisions, payloads = map(settings.topic, (Topic.LIFECYCLE, Topic.DECISIONS, Topic.PAYLOADS))
    rows, metadata = _rows(path)
    partition, count = (int(metadata[key]) for key in ("partition", "topic_partitions"))
    log = MemoryLog(count)
    source = [StoredRecord(lifecycle, partition, row["offset"], 0, row["key"], row["lifecycle"]) for row in rows]
    said = [
        StoredRecord(decisions, partition, at, 0, decode_as(Decision, row["decision"]).run_id.encode(), row["decision"])
        for at, row in enumerate(rows)
    ]
    log.put(lifecycle, partition, source[-1].offset + 1, source)
    log.put(decisions, partition, len(said), said)
    beside = path.with_name(f"{path.stem}{_PAYLOADS}.avro")
    for row in _rows(beside)[0] if beside.exists() else ():
        assert log.append(payloads, row["partition"], row["key"], row["value"]) == row["offset"]
    records = tuple(SourceRecord(partition, one.offset, one.key, one.value) for one in source)
    return History(settings, log, records, tuple(row["decision"] for row in rows), count, beside.exists())


def _rows(path: Path) -> tuple[list[Any], Mapping[str, str]]:
    with path.open("rb") as file:
        reader = fastavro.reader(file)
        return list(reader), reader.metadata


def frozen(name: str) -> Entry:
    """Everything that must come out again."""
    history, schemas = read(name), schemas_of(HISTORIES, name)
    return {
        "schemas": schemas,
        "records": len(history.records),
        "lifecycle": digest(part for one in history.records for part in parts(one.key, one.value)),
        "recorded_decisions": digest(history.decisions),
        **_folded(history, schemas),
        **said_of(history.log, history.settings, history.range, payloads=history.has_payloads),
    }


def _folded(history: History, schemas: Mapping[str, str]) -> Entry:
    found = written_by(Ledger(history.partition, history.topic_partitions), history.records, schemas)
    return {
        "decisions": digest(found.decisions),
        "ledger": digest(found.rows),
        "snapshots": digest(found.snapshots),
        "written": {"rows": len(found.rows) // 4, "snapshots": len(found.snapshots)},
    }


def histories() -> Mapping[str, Callable[[], Entry]]:
    return {name: partial(frozen, name) for name in names()}


HISTORIES = Table("histories", histories)
