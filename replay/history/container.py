"""The file that a history is exported into: an Avro object container, which any Avro reader opens.

One Avro record is one record of a topic, its bytes untouched. The file's metadata says which ranges it holds
(`rollbook.history`, with its digest), under which schemas their values were written (`rollbook.schemas`, by
fingerprint), and, once it is finished, how many records each range has with a digest over them (`rollbook.totals`).
"""

import hashlib
import json
import os
import re
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from functools import cache
from importlib.metadata import version
from pathlib import Path
from typing import IO, Annotated, Any, Self

import fastavro
from fastavro.schema import to_parsing_canonical_form
from pydantic import BaseModel, ConfigDict, Field, ValidationError, model_validator

from rollbook.infra.settings import Topic
from rollbook.replay.history.source import StoredRecord
from rollbook.schemas.codec import shipped_schemas
from rollbook.schemas.errors import BadInput
from rollbook.schemas.text import visible
from rollbook.schemas.wording import worded

FORMAT = 1
_HISTORY, _SCHEMAS, _TOTALS = "rollbook.history", "rollbook.schemas", "rollbook.totals"
_HISTORY_DIGEST = "rollbook.history.sha256"
"""Files of earlier have none: then nothing vouches for what they say they hold."""
_UNFINISHED = "unfinished"
_COUNT_DIGITS, _DIGEST_DIGITS = 20, 64
_TOTAL = re.compile(rf"(?P<count>[0-9]{{{_COUNT_DIGITS}}})(?P<digest>[0-9a-f]{{{_DIGEST_DIGITS}}})")
_SYNC = b"rollbook-history"
"""Always the same: the same range gives the same bytes."""
_BLOCK_BYTES = 256 * 1024

CODEC = "deflate"
_CODEC, _SCHEMA = "avro.codec", "avro.schema"
"""Where a container says them of itself. Its reader believes them: another schema than ours makes it recurse or count
without an end, another codec unpacks what was not measured."""
RECORD = fastavro.parse_schema(
    {
        "type": "record",
        "name": "StoredRecord",
        "namespace": "rollbook.history",
        "fields": [
            {"name": "topic", "type": "string"},
            {"name": "partition", "type": "int"},
            {"name": "offset", "type": "long"},
            {"name": "timestamp_ms", "type": "long"},
            {"name": "key", "type": ["null", "bytes"]},
            {"name": "value", "type": ["null", "bytes"]},
            {
                "name": "headers",
                "type": {
                    "type": "array",
                    "items": {
                        "type": "record",
                        "name": "Header",
                        "fields": [{"name": "key", "type": "string"}, {"name": "value", "type": ["null", "bytes"]}],
                    },
                },
            },
        ],
    }
)


_TopicName = Annotated[str, Field(pattern=r"^[A-Za-z0-9._-]+$")]
_Digest = Annotated[str, Field(pattern=r"^[0-9a-f]{64}$")]


class Section(BaseModel):
    """The committed records of offsets [start, end) of a partition. `run`: only those of this run, so that others are
    gaps; `only_referenced`: only the payloads that the file's other records name."""

    model_config = ConfigDict(frozen=True)

    topic: _TopicName
    partition: int = Field(ge=0)
    start: int = Field(ge=0)
    end: int = Field(ge=0)
    run: str | None = None
    only_referenced: bool = False

    def __str__(self) -> str:
        return f"{self.topic}:{self.partition}:{self.start}-{self.end}"


class AnchorNote(BaseModel):
    """The last section holds the ledger's rows as they are before this offset of the lifecycle topic. `next_decision`:
    behind the last decision before; `run`: of this run alone; `digest`: over the offset and the rows."""

    model_config = ConfigDict(frozen=True)

    lifecycle: _TopicName
    partition: int = Field(ge=0)
    topic_partitions: int = Field(ge=1)
    next_offset: int = Field(ge=1)  # before offset 0 there is no state
    next_decision: int = Field(default=0, ge=0)
    run: str | None = None
    digest: _Digest

    def follows(self, section: Section) -> bool:
        """Whether it is the state behind a section of the lifecycle topic."""
        mine = self.lifecycle, self.partition, self.next_offset, self.run
        return mine == (section.topic, section.partition, section.end, section.run)


ANCHOR = "anchor"
"""What stands for a topic in the section of an anchor's rows."""


class Contents(BaseModel):
    """What a file holds. `partitions`: of each topic of the cluster, by its full name, which begins with the prefix.
    `payload_ends`: where those partitions of the payloads topic ended that are in it to their end, or of which its
    records name what lies behind."""

    model_config = ConfigDict(frozen=True)

    format: int = FORMAT
    writer: str = Field(default_factory=lambda: f"rollbook {version('rollbook')}")
    topic_prefix: Annotated[str, Field(pattern=r"^[A-Za-z0-9._-]+$")]
    partitions: Mapping[_TopicName, Annotated[int, Field(ge=1)]]
    sections: tuple[Section, ...]
    anchor: AnchorNote | None = None
    payload_ends: Mapping[int, int] = {}

    @model_validator(mode="after")
    def _fits_together(self) -> Self:
        for one in (one for one in self.sections if one.topic != ANCHOR):
            if not one.topic.startswith(self.topic_prefix):
                raise ValueError(f"{one} is of no topic with prefix {self.topic_prefix}")
            if one.start > one.end or one.partition >= self.partitions.get(one.topic, 0):
                raise ValueError(f"{one} is no range of the cluster's")
        of_anchors = [at for at, one in enumerate(self.sections) if one.topic == ANCHOR]
        if of_anchors != ([] if self.anchor is None else [len(self.sections) - 1]):
            raise ValueError("the rows of an anchor are the last section")
        if self.anchor is not None and not any(map(self.anchor.follows, self.sections)):
            raise ValueError("the anchor does not stand behind the records of the file")
        if self.anchor is not None and self.anchor.next_decision not in (0, *self._decided_to(self.anchor.partition)):
            raise ValueError("the anchor does not stand behind the decisions of the file")
        if self.anchor is not None and self.anchor.topic_partitions != self.partitions[self.anchor.lifecycle]:
            raise ValueError("the anchor is of another number of partitions")
        return self

    def _decided_to(self, partition: int) -> Iterator[int]:
        """Where decisions end. Seals of earlier did not note it: 0."""
        for one in self.sections:
            if topic_of(one.topic, self.topic_prefix) is Topic.DECISIONS and one.partition == partition:
                yield one.end

    def is_of_cluster(self, other: "Contents") -> bool:
        """Whether both can be of one cluster, by the topics that both say something of."""
        shared = self.partitions.keys() & other.partitions.keys()
        return self.topic_prefix == other.topic_prefix and all(
            self.partitions[topic] == other.partitions[topic] for topic in shared
        )


@dataclass(frozen=True, slots=True)
class Total:
    """What a section holds, for whoever wants to know whether anything is missing or changed."""

    records: int
    digest: str


class Running:
    """A total in the making: sha256 over each record's place, time, key, value and headers."""

    def __init__(self) -> None:
        self._records = 0
        self._digest = hashlib.sha256()

    def taken(self, record: StoredRecord) -> StoredRecord:
        """The record, counted."""
        self._records += 1
        self._digest.update(record.offset.to_bytes(8, "big") + record.timestamp_ms.to_bytes(8, "big", signed=True))
        headers = [part for key, value in record.headers for part in (key.encode(), value)]
        for part in (record.key, record.value, *headers):
            self._digest.update(b"-" if part is None else len(part).to_bytes(8, "big") + part)
        return record

    @property
    def total(self) -> Total:
        return Total(self._records, self._digest.hexdigest())


def write(path: Path, contents: Contents, sections: Iterable[Iterable[StoredRecord]]) -> tuple[Total, ...]:
    """Write each section's records, streamed, into a file that does not exist yet."""
    running = [Running() for _ in contents.sections]
    empty = _UNFINISHED.ljust(len(contents.sections) * (_COUNT_DIGITS + _DIGEST_DIGITS) + len(_UNFINISHED), ".")
    history = contents.model_dump_json()
    metadata = {_HISTORY: history, _HISTORY_DIGEST: _sha256(history), _SCHEMAS: _schemas(), _TOTALS: empty}
    with path.open("x+b") as file:
        _append(file, (), metadata)
    with path.open("a+b") as file:
        # One call a section: each begins with a block of its own, so that a reader can jump there.
        for so_far, records in zip(running, sections, strict=True):
            _append(file, map(so_far.taken, records), metadata)
    totals = tuple(one.total for one in running)
    text = "".join(f"{one.records:0{_COUNT_DIGITS}d}{one.digest}" for one in totals).ljust(len(empty), ".")
    with path.open("r+b") as file:
        header = file.read(sum(map(len, metadata.values())) + _BLOCK_BYTES)
        file.seek(header.index(empty.encode()))
        file.write(text.encode())
        file.flush()
        os.fsync(file.fileno())
    return totals


def _append(file: IO[bytes], records: Iterable[StoredRecord], metadata: dict[str, str]) -> None:
    fastavro.writer(
        file,
        RECORD,
        map(_row, records),
        codec=CODEC,
        sync_interval=_BLOCK_BYTES,
        metadata=metadata,
        sync_marker=_SYNC,
    )


def contents_of(metadata: Mapping[str, str], place: str) -> tuple[Contents, tuple[Total, ...]]:
    """What a file says it holds. Raises BadInput for one that is no export, of a newer format, or not finished."""
    if _HISTORY not in metadata:
        raise BadInput(f"{place} is no exported history: make one with `rollbook history export`")
    if metadata.get(_CODEC) != CODEC or not _is_ours(metadata.get(_SCHEMA, "")):
        raise BadInput(
            f"{place} is no export: its records are not of the schema and codec of exports; do not trust it, and "
            "export the history again from the cluster"
        )
    try:
        contents = Contents.model_validate_json(metadata[_HISTORY])
    except ValidationError as error:
        problem = error.errors()[0]
        told = (".".join(map(str, problem["loc"])), worded(problem))
        raise _damaged(place, visible(": ".join(filter(None, told)))) from None
    if metadata.get(_HISTORY_DIGEST, digest := _sha256(metadata[_HISTORY])) != digest:
        raise _damaged(place, f"{_HISTORY} is not what was written there")
    if contents.format > FORMAT:
        raise BadInput(f"{place} is of format {contents.format}, and this rollbook reads up to {FORMAT}: upgrade it")
    totals = tuple(_totals(metadata.get(_TOTALS, _UNFINISHED), len(contents.sections), place))
    return contents, totals


def _is_ours(schema: str) -> bool:
    try:
        return bool(to_parsing_canonical_form(json.loads(schema)) == to_parsing_canonical_form(RECORD))
    except Exception:  # whatever fastavro meets in what is no schema
        return False


def _totals(text: str, sections: int, place: str) -> Iterator[Total]:
    if text.startswith(_UNFINISHED):
        raise BadInput(f"{place} was never finished: its export was cut short; export it again")
    width = _COUNT_DIGITS + _DIGEST_DIGITS
    for start in range(0, sections * width, width):
        one = _TOTAL.fullmatch(text[start : start + width])
        if one is None:
            raise _damaged(place, _TOTALS)
        yield Total(int(one["count"]), one["digest"])


def _damaged(place: str, what: str) -> BadInput:
    return BadInput(f"{place} is a damaged export ({what}): export it again")


def _sha256(text: str) -> str:
    return hashlib.sha256(text.encode()).hexdigest()


def stored(row: Any) -> StoredRecord:
    return StoredRecord(
        topic=row["topic"],
        partition=row["partition"],
        offset=row["offset"],
        timestamp_ms=row["timestamp_ms"],
        key=row["key"],
        value=row["value"],
        headers=tuple((header["key"], header["value"]) for header in row["headers"]),
    )


def _row(record: StoredRecord) -> dict[str, Any]:
    return {
        "topic": record.topic,
        "partition": record.partition,
        "offset": record.offset,
        "timestamp_ms": record.timestamp_ms,
        "key": record.key,
        "value": record.value,
        "headers": [{"key": key, "value": value} for key, value in record.headers],
    }


@cache
def _schemas() -> str:
    """Every schema under which a value can have been written, by the fingerprint that the value begins with."""
    return json.dumps(dict(shipped_schemas()), sort_keys=True)


def topic_of(name: str, prefix: str) -> Topic | None:
    """Which of the topics a full name is."""
    return next((topic for topic in Topic if name == f"{prefix}{topic.value}"), None)
