"""What the recorded histories and archives hold, as input to begin with."""

from collections.abc import Iterator, Sequence
from functools import cache
from itertools import islice
from pathlib import Path
from typing import Any

import fastavro

from rollbook.processors.ledger.fold import SourceRecord
from rollbook.schemas.codec import PREFIX_LENGTH

DATA = Path(__file__).parents[1] / "data"
ARCHIVES = tuple(sorted((DATA / "archives").glob("*/*.avro")))
_OF_EACH = 3


@cache
def rows(name: str) -> tuple[dict[str, Any], ...]:
    """The rows of a container file below the folder of recorded data."""
    with (DATA / name).open("rb") as file:
        return tuple(fastavro.reader(file))  # type: ignore[arg-type]  # rows are dictionaries


@cache
def log(name: str) -> tuple[SourceRecord, ...]:
    """The lifecycle records of a recorded history."""
    partition, _ = place(name)
    return tuple(
        SourceRecord(partition, row["offset"], row["key"], row["lifecycle"]) for row in rows(f"histories/{name}.avro")
    )


def place(name: str) -> tuple[int, int]:
    """A recorded history's partition, and how many its topic has."""
    with (DATA / f"histories/{name}.avro").open("rb") as file:
        metadata = fastavro.reader(file).metadata
    return int(metadata["partition"]), int(metadata["topic_partitions"])


@cache
def values() -> tuple[bytes, ...]:
    """A few records under each schema: lifecycle, decisions, payloads, and of the ledger and freshness."""
    kept: dict[bytes, list[bytes]] = {}
    for value in _all_values():
        of = kept.setdefault(value[:PREFIX_LENGTH], [])
        if len(of) < _OF_EACH and value not in of and len(value) < 5_000:
            of.append(value)
    return tuple(value for of in kept.values() for value in of)


def of_topic(name: str, most: int = 40) -> tuple[tuple[bytes, bytes], ...]:
    """Keys and values that archives hold of a topic, and of an anchor's rows; spread over them all."""
    found = [
        (row["key"] or b"", row["value"] or b"")
        for path in ARCHIVES
        for row in rows(str(path.relative_to(DATA)))
        if row["topic"].endswith(name)
    ]
    return tuple(islice(found, 0, None, max(1, len(found) // most)))


def lifecycle() -> Sequence[bytes]:
    """Records of every kind, also such as were refused."""
    return [record.value or b"" for name in ("every-record", "walk-gate", "walk-observe") for record in log(name)[::3]]


def decisions() -> Sequence[bytes]:
    """Decisions of several kinds, spread over a recorded history."""
    return [row["decision"] for name in ("every-record", "walk-gate") for row in rows(f"histories/{name}.avro")[::4]]


def _all_values() -> Iterator[bytes]:
    for path in sorted((DATA / "histories").glob("**/*.avro")):
        for row in rows(str(path.relative_to(DATA))):
            yield from (row[name] for name in ("lifecycle", "decision", "value") if row.get(name))
    for path in ARCHIVES:
        yield from (row["value"] for row in rows(str(path.relative_to(DATA))) if row["value"])
