"""Small histories by the hundred: those that the tests of the fold tell, in which every row of the table of records and
states is met, and walks over all record types. They are kept as records alone, each as a log of its own.

    python -m rollbook.tests.frozen.situations tests NAME
    python -m rollbook.tests.frozen.situations walks NAME

record those of today under a name. What is recorded is never made anew, since tests change.
"""

import sys
from collections.abc import Callable, Iterable, Iterator, Mapping
from functools import partial
from itertools import groupby
from pathlib import Path
from typing import Any

import fastavro
import pytest

from rollbook.processors.ledger.fold import Ledger, NewerFoldVersion, SourceRecord
from rollbook.tests.frozen.folded import Written, schemas_of, written_by
from rollbook.tests.frozen.table import Entry, Table, digest
from rollbook.tests.processors.log import Log

FOLDER = Path(__file__).parents[1] / "data" / "situations"
SEARCHES = ("exhaustive", "walk")
"""Checks that make up histories by the thousand."""
WALKS = 24
_SCHEMA = fastavro.parse_schema(
    {
        "type": "record",
        "name": "Situation",
        "fields": [
            {"name": "source", "type": "string"},
            {"name": "number", "type": "int"},
            {"name": "partition", "type": "int"},
            {"name": "topic_partitions", "type": "int"},
            {"name": "offset", "type": "long"},
            {"name": "key", "type": ["null", "bytes"]},
            {"name": "lifecycle", "type": ["null", "bytes"]},
        ],
    }
)


def names() -> tuple[str, ...]:
    """All that were ever recorded."""
    return tuple(sorted(path.stem for path in FOLDER.glob("*.avro")))


def read(name: str) -> list[Any]:
    """The rows of a recording."""
    with (FOLDER / f"{name}.avro").open("rb") as file:
        return list(fastavro.reader(file))


def frozen(name: str, source: str, rows: list[Any]) -> Entry:
    """Of each history of a source the digest of all that must come out again."""
    schemas = schemas_of(SITUATIONS, f"{name} {source}")
    histories = groupby(rows, key=lambda row: int(row["number"]))
    return {"schemas": schemas, "histories": {str(number): _of(list(own), schemas) for number, own in histories}}


def _of(rows: list[Any], schemas: Mapping[str, str]) -> str:
    place = rows[0]["partition"], rows[0]["topic_partitions"]
    records = [SourceRecord(place[0], row["offset"], row["key"], row["lifecycle"]) for row in rows]
    found: Written = written_by(Ledger(*place), records, schemas)
    return digest(part for parts in (found.decisions, found.rows, found.snapshots) for part in parts)[:16]


def situations() -> Mapping[str, Callable[[], Entry]]:
    """By recording and source."""
    return {
        f"{name} {source}": partial(frozen, name, source, list(rows))
        for name in names()
        for source, rows in groupby(read(name), key=lambda row: str(row["source"]))
    }


SITUATIONS = Table("situations", situations)


def told_by_tests() -> Iterator[tuple[str, Log]]:
    """Each history that a test of the fold tells, with the name of its file."""
    from rollbook.tests.processors.proof.checks import checks

    told: list[Log] = []
    begin = Log.__post_init__

    def beginning(log: Log) -> None:
        begin(log)
        told.append(log)

    for check in checks():
        if not check.source.startswith(SEARCHES):
            told.clear()
            with pytest.MonkeyPatch.context() as patch:
                patch.setattr(Log, "__post_init__", beginning)
                check.run()
            yield from ((check.source, log) for log in told)


def told_by_walks() -> Iterator[tuple[str, Log]]:
    """Long runs that chance leads, with several workers and learners, late records, crashes and clones."""
    from rollbook.tests.processors.proof import walks

    for seed in range(WALKS):
        log = Log()
        walks.run(log, walks.deep(seed))
        yield "walks", log


def record(path: Path, told: Iterable[tuple[str, Log]]) -> int:
    """Write what is told today, each history once; how many records these are."""
    seen: set[tuple[SourceRecord, ...]] = set()
    by_source: dict[str, list[Log]] = {}
    for source, log in told:
        records = tuple(log.records)
        if records and records not in seen and _can_be_folded(log):
            seen.add(records)
            by_source.setdefault(source, []).append(log)
    rows = [
        {
            "source": source,
            "number": number,
            "partition": log.partition,
            "topic_partitions": log.topic_partitions,
            "offset": one.offset,
            "key": one.key,
            "lifecycle": one.value,
        }
        for source in sorted(by_source)
        for number, log in enumerate(by_source[source])
        for one in log.records
    ]
    path.parent.mkdir(exist_ok=True)
    with path.open("xb") as file:
        # One block: they resemble one another.
        fastavro.writer(
            file,
            _SCHEMA,
            rows,
            codec="xz",
            codec_compression_level=9,
            sync_interval=1 << 30,
            sync_marker=b"rollbook-history",
        )
    return len(rows)


def _can_be_folded(log: Log) -> bool:
    """Without what a test had put in the place of the rules."""
    ledger = Ledger(log.partition, log.topic_partitions)
    try:
        for one in log.records:
            ledger.fold(one)
    except NewerFoldVersion:
        return False
    return True


TOLD = {"tests": told_by_tests, "walks": told_by_walks}

if __name__ == "__main__":
    of, name = sys.argv[1:]
    file = FOLDER / f"{name}.avro"
    print(f"{record(file, TOLD[of]()):,} records, {file.stat().st_size:,} bytes")
