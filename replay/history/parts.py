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
from rollbook.replay.history.source import LogClosed, NotTheLog, StoredRecord
from rollbook.schemas.text import plural, visible

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
    is_told: bool = False
    """Whoever reads it knows what it holds, and reads it nevertheless."""

    def block_of(self, offset: int) -> int:
        return max(0, bisect_right(self.firsts, offset) - 1)

    def read(self, start: int, end: int | None = None) -> Iterator[StoredRecord]:
        """The records at offsets [start, end), or from `start` on. Raises NotTheLog where they are not those that were
        exported: behind the last one where they are all, at one of elsewhere at once; else before the first, which
        costs a look through all."""
        is_whole = start <= self.section.start and (end is None or end >= self.section.end)
        if not is_whole:
            self.check()
        counted = _Counted(self.section) if self.found is None else None
        for record in self._each(start):
            if counted is not None and not counted.take(record) and not self.is_told:
                raise self._changed()
            if end is not None and record.offset >= end:
                if counted is None:
                    return
            elif record.offset >= start:
                yield record
        if counted is not None:
            self.found = counted.total
            self.check()

    def total_found(self) -> Total:
        """What it really holds of what it says; looked through once."""
        if self.found is None:
            counted = _Counted(self.section)
            for record in self._each(0):
                counted.take(record)
            self.found = counted.total
        return self.found

    def check(self) -> None:
        """Raises NotTheLog where it does not hold what was exported."""
        if not self.is_told and self.total_found() != self.total:
            raise self._changed()

    def _changed(self) -> NotTheLog:
        return NotTheLog(
            f"{visible(self.path, limit=4096)}: {self.section} does not hold the "
            f"{plural(self.total.records, 'record')} that were exported: the file was changed; export it again"
        )

    def _each(self, start: int) -> Iterator[StoredRecord]:
        """From the block on that has the offset."""
        if self.positions:
            yield from _records(
                _Window(self.file, self.header, self.positions[self.block_of(start)], self.end), self.path
            )


class _Counted:
    """The total of those records of a section that belong there: nobody would look at another one, since it is read by
    where the section says that it lies."""

    def __init__(self, section: Section) -> None:
        self._section = section
        self._running = Running()
        self._next = section.start

    def take(self, record: StoredRecord) -> bool:
        """Whether it belongs there."""
        of = self._section
        belongs = (
            (record.topic, record.partition) == (of.topic, of.partition)
            and self._next <= record.offset < of.end
            and (of.run is None or is_of_run(record, of.run))
        )
        if belongs:
            self._running.taken(record)
            self._next = record.offset + 1
        return belongs

    @property
    def total(self) -> Total:
        return self._running.total


class Cursor:
    """Looks offsets up in a part, ascending: it reads on where they are near, and jumps where they are not."""

    def __init__(self, part: Part) -> None:
        self.part = part
        self._records: Iterator[StoredRecord] = iter(())
        self._latest: StoredRecord | None = None

    def at(self, offset: int) -> StoredRecord | None:
        if not self.part.section.start <= offset < self.part.section.end:
            return None
        self.part.check()
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
    """Their records at offsets [start, end) in order, each once. Raises NotTheLog where they differ."""

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
    """Raises NotTheLog where two parts have different records at one place."""
    if one[0] != other[0]:
        raise NotTheLog(
            f"{visible(one[1].path)} and {visible(other[1].path)} hold different records at {one[0].place}: they are "
            "not of the same log, or one was changed; give those alone that belong together"
        )


def broken(error: Exception) -> str:
    """What a reader of containers met in bytes that were cut or changed, in words."""
    if isinstance(error, EOFError | StopIteration):
        return "it was cut short"
    return f"bytes were changed: {visible(error)}" if str(error) else "bytes were changed"


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
            raise NotTheLog(f"{visible(path)} does not read to its end ({broken(error)}): export it again") from None
    raise LogClosed(visible(path))
