"""Where records come from: one interface, whether they lie in Kafka or in an exported file."""

import hashlib
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import Protocol

from rollbook.schemas.errors import BadInput, RollbookError


@dataclass(frozen=True, slots=True)
class StoredRecord:
    """A committed record as it lies there. `timestamp_ms` is the topic's: the broker's clock or the writer's."""

    topic: str
    partition: int
    offset: int
    timestamp_ms: int
    key: bytes | None
    value: bytes | None
    headers: tuple[tuple[str, bytes | None], ...] = ()

    @property
    def place(self) -> str:
        """Where it lies, for people: topic:partition@offset."""
        return place_of(self.topic, self.partition, self.offset)

    @property
    def sha256(self) -> str:
        """Digest of its value."""
        return hashlib.sha256(self.value or b"").hexdigest()


@dataclass(frozen=True, slots=True)
class Bounds:
    """The offsets to be had of a partition: [first, end). Not every one holds a record: markers leave gaps."""

    first: int
    end: int

    def __str__(self) -> str:
        return f"to be had are offsets {self.first} to {self.end - 1}" if self.end > self.first else "it is empty"


class OutOfRange(BadInput):
    """Offsets that are not to be had: never written, or no longer retained."""

    def __init__(self, place: str, problem: str, bounds: Bounds) -> None:
        self.bounds = bounds
        super().__init__(f"{place}: {problem}; {bounds}")


class NotTheLog(RollbookError):
    """What files hold is not the log's: they were changed, or contradict each other. No BadInput, which a reader may
    take for a record that is not there."""


class LogClosed(RollbookError):
    """A log, or an iterator over its records, was used after its end."""

    def __init__(self, what: str) -> None:
        super().__init__(f"{what} was closed: take what you need of a log before its `with` block ends")


class LogSource(Protocol):
    """Reads committed records of partitions. All of it raises BadInput for a topic or partition that does not exist,
    and EnvironmentFault when what holds the records does not answer."""

    def partitions(self, topic: str) -> int:
        """How many partitions a topic has."""

    def bounds(self, topic: str, partition: int) -> Bounds:
        """The offsets to be had now; `end` is the first that is not committed yet."""

    def offset_at(self, topic: str, partition: int, timestamp_ms: int) -> int | None:
        """The offset of the first record with this timestamp or a later one; None where there is none."""

    def read(self, topic: str, partition: int, start: int, end: int) -> Iterator[StoredRecord]:
        """The records of [start, end) in order, streamed. Raises OutOfRange where some are not retained, or not yet
        written."""

    def read_at(self, topic: str, partition: int, offsets: Iterable[int]) -> Iterator[StoredRecord]:
        """The records at these offsets, each once, in ascending order. Raises OutOfRange where one is not there."""


def read_there(log: LogSource, topic: str, partition: int, offsets: Iterable[int]) -> Iterator[StoredRecord]:
    """The records at these offsets that are (still) to be had, each once, in ascending order; the others are left
    out."""
    wanted = sorted(set(offsets))
    read = 0
    try:
        for stored in log.read_at(topic, partition, wanted):
            read += 1
            yield stored
    except OutOfRange:  # of which one, the source may know before it reads the first
        left = wanted[read:]
        for half in (left[: len(left) // 2], left[len(left) // 2 :]) if len(left) > 1 else ():
            yield from read_there(log, topic, partition, half)
    except BadInput:  # there is no such topic or partition
        return


def place_of(topic: str, partition: int, offset: int) -> str:
    """A record's place, for people."""
    return f"{topic}:{partition}@{offset}"
