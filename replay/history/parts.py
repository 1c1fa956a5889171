"""A section of an exported file, read from any of its offsets on; and several that overlap, read as one."""

from bisect import bisect_right
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from heapq import merge
from pathlib import Path
from typing import IO, cast

import fastavro

from rollbook.replay.history.container import Running, Section, Total, stored
from rollbook.replay.history.ofrun import is_of_run
from rollbook.replay.history.source import LogClosed, StoredRecord
from rollbook.replay.text import visible
from rollbook.schemas.errors import BadInput

_READ_BYTES = 64 * 1024


class _Window:
    """A container's header, then its bytes from a position to an end: a whole container to who reads it."""

    def __init__(self, file: IO[bytes], header: bytes, position: int, end: int) -> None:
        self._file, self._ahead, self._position, self._end = file, header, position, end

    @property
    def is_closed(self) -> bool:
        return self._file.closed

    def read(self, size: int) -> bytes:
        while len(self._ahead) < size and self._position < self._end:
            # Several readers may stand at different places of one file.
            self._file.seek(self._position)
            data = self._file.read(min(max(size, _READ_BYTES), self._end - self._position))
            if not data:
                break
            self._position += len(data)
            self._ahead += data
        data, self._ahead = self._ahead[:size], self._ahead[size:]
        return data


@dataclass(slots=True)
class Part:
    """A section of one file: of each of its blocks the position there, and its first record's offset."""

    path: Path
    file: IO[bytes]
    header: bytes
    section: Section
    total: Total
    positions: list[int] = field(default_factory=list)
    firsts: list[int] = field(default_factory=list)
    end: int = 0
    found: Total | None = None
    """When that was looked through."""

    def block_of(self, offset: int) -> int:
        return max(0, bisect_right(self.firsts, offset) - 1)

    def read(self, start: int, end: int | None = None) -> Iterator[StoredRecord]:
        """The records at offsets [start, end), or from `start` on."""
        if not self.positions:
            return
        window = _Window(self.file, self.header, self.positions[self.block_of(start)], self.end)
        for record in _records(window, self.path):
            if end is not None and record.offset >= end:
                return
            if record.offset >= start:
                yield record

    def total_found(self) -> Total:
        """What it really holds of what it says; looked through once."""
        if self.found is None:
            running = Running()
            for record in self.read(0):
                if self._belongs(record):
                    running.taken(record)
            self.found = running.total
        return self.found

    def _belongs(self, record: StoredRecord) -> bool:
        """Nobody would look at another one: it is read by where the section says that it lies."""
        of = self.section
        return (
            (record.topic, record.partition) == (of.topic, of.partition)
            and of.start <= record.offset < of.end
            and (of.run is None or is_of_run(record, of.run))
        )


class Cursor:
    """Looks offsets up in a part, ascending: it reads on where they are near, and jumps where they are not."""

    def __init__(self, part: Part) -> None:
        self.part = part
        self._records: Iterator[StoredRecord] = iter(())
        self._latest: StoredRecord | None = None

    def at(self, offset: int) -> StoredRecord | None:
        if not self.part.section.start <= offset < self.part.section.end:
            return None
        latest = self._latest
        if latest is None or self.part.block_of(offset) > self.part.block_of(latest.offset) + 1:
            self._records = self.part.read(offset)
            latest = next(self._records, None)
        while latest is not None and latest.offset < offset:
            latest = next(self._records, None)
        self._latest = latest
        return latest if latest is not None and latest.offset == offset else None


def overlapping(parts: Sequence[Part]) -> Iterator[list[Part]]:
    """Those that have offsets in common together; `parts` are in the order of their first offsets."""
    together: list[Part] = []
    for part in parts:
        if together and part.section.start >= max(one.section.end for one in together):
            yield together
            together = []
        together.append(part)
    if together:
        yield together


_From = tuple[StoredRecord, Part]


def once(parts: Sequence[Part], start: int, end: int) -> Iterator[StoredRecord]:
    """Their records at offsets [start, end) in order, each once. Raises BadInput where they differ."""

    def of(part: Part) -> Iterator[_From]:
        return ((record, part) for record in part.read(start, end))

    latest: _From | None = None
    for found in merge(*map(of, parts), key=lambda one: one[0].offset):
        if latest is not None and latest[0].offset == found[0].offset:
            check_same(latest, found)
        else:
            latest = found
            yield found[0]


def check_same(one: _From, other: _From) -> None:
    """Raises BadInput where two parts have different records at one place."""
    if one[0] != other[0]:
        raise BadInput(
            f"{visible(one[1].path)} and {visible(other[1].path)} hold different records at {one[0].place}: they are "
            "not of the same log, or one was changed; give those alone that belong together"
        )


def _records(window: _Window, path: Path) -> Iterator[StoredRecord]:
    try:
        for row in fastavro.reader(cast(IO[bytes], window)):
            if window.is_closed:
                break
            yield stored(row)
        else:
            return
    except Exception as error:  # bytes that were changed
        if not window.is_closed:
            raise BadInput(f"{visible(path)} does not read to its end ({error!r}): export it again") from None
    raise LogClosed(visible(path))
