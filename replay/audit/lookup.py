"""Records and payloads that an audit looks up, wherever they are to be had: in the log, or in a sealed file before
it."""

from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass
from typing import TypeVar

from rollbook.replay.history.file import FileLog
from rollbook.replay.history.source import LogSource, StoredRecord, read_there
from rollbook.schemas.errors import BadInput
from rollbook.schemas.payload_io import PayloadCorrupt, join
from rollbook.schemas.records.common import PayloadRef
from rollbook.schemas.text import plural

T = TypeVar("T")
_BYTES_AT_ONCE = 32 * 1024 * 1024
"""Of payloads that are looked up together: a recording can be of many megabytes, and rows of a few hundred bytes."""


@dataclass(frozen=True, slots=True)
class Lookup:
    """`logs`: where it is looked, one after the other."""

    logs: tuple[LogSource, ...]

    def records(self, topic: str, partition: int, offsets: Iterable[int]) -> dict[int, StoredRecord]:
        """What is there of these."""
        found: dict[int, StoredRecord] = {}
        missing = set(offsets)
        for log in self.logs:
            if missing:
                found.update((stored.offset, stored) for stored in read_there(log, topic, partition, missing))
                missing -= found.keys()
        return found

    def payloads(self, refs: Sequence[PayloadRef]) -> list[bytes | PayloadCorrupt | None]:
        """Each payload, what is wrong with it, or None where it is not there any more."""
        places: dict[tuple[str, int], list[int]] = {}
        for ref in refs:
            places.setdefault((ref.topic, ref.partition), []).extend(ref.offsets)
        chunks = {place: self.records(*place, offsets) for place, offsets in places.items()}
        return [_joined(ref, chunks[ref.topic, ref.partition]) for ref in refs]


def _joined(ref: PayloadRef, chunks: dict[int, StoredRecord]) -> bytes | PayloadCorrupt | None:
    there = [chunks[offset].value or b"" for offset in ref.offsets if offset in chunks]
    if len(there) < len(ref.offsets):
        return None
    try:
        return join(there, ref)
    except PayloadCorrupt as corrupt:
        return corrupt


def is_elsewhere(log: LogSource, topic: str, partition: int, offset: int) -> bool:
    """Whether a record that once was written need not be in a log: retention took it, or files do not reach there."""
    try:
        bounds = log.bounds(topic, partition)
    except BadInput:
        return isinstance(log, FileLog)
    return offset < bounds.first or (offset >= bounds.end and isinstance(log, FileLog))


class Written:
    """Whether a payload that is not there can ever have been. It is written before the record that names it: below the
    end of its partition, whatever retention took since; of files that is known where their export noted it."""

    def __init__(self, logs: Iterable[LogSource], topic: str) -> None:
        self._logs = tuple(logs)
        self._topic = topic
        self._ends: dict[int, int] = {}
        """Known to have been reached; a look at Kafka for each payload would cost a jump."""

    def why_not(self, topic: str, partition: int, offsets: Iterable[int]) -> str | None:
        """Why it cannot; None where it can."""
        if topic != self._topic:
            return f"payloads lie in {self._topic} alone"
        last = max(offsets)
        if last < self._ends.get(partition, 0):
            return None
        for log in self._logs:
            with suppress(BadInput):  # the topic is not in this file
                if partition >= (count := log.partitions(topic)):
                    return f"the topic has {plural(count, 'partition')}"
        end = self._end(partition)
        return f"the partition ends at {end}" if end is not None and last >= end else None

    def _end(self, partition: int) -> int | None:
        """Of files it is known where all of them noted it: another one may have been exported later."""
        files = [log.payload_ends for log in self._logs if isinstance(log, FileLog)]
        if len(files) == len(self._logs):
            return max(one[partition] for one in files) if all(partition in one for one in files) else None
        for log in self._logs:
            with suppress(BadInput):
                if not isinstance(log, FileLog):
                    self._ends[partition] = log.bounds(self._topic, partition).end
        return self._ends.get(partition)


def batches(items: Iterable[T], size_of: Callable[[T], int]) -> Iterator[list[T]]:
    """The items in order, as many together as may be looked up at once, at least one."""
    batch: list[T] = []
    total = 0
    for item in items:
        size = size_of(item)
        if batch and total + size > _BYTES_AT_ONCE:
            yield batch
            batch, total = [], 0
        batch.append(item)
        total += size
    if batch:
        yield batch
