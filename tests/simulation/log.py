"""A partition of a topic: records and transaction markers by offset, the last stable offset, compaction."""

from bisect import bisect_left
from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from typing import TypeAlias

Place: TypeAlias = tuple[str, int]
"""A topic and one of its partitions."""

Headers: TypeAlias = tuple[tuple[str, bytes], ...]


@dataclass(eq=False, slots=True)
class Txn:
    """One transaction: how it was decided, and in which partitions its marker lies."""

    owner: str
    started: float
    places: list[Place] = field(default_factory=list)
    offsets: dict[int, int] = field(default_factory=dict)
    committed: bool | None = None
    marked: set[Place] = field(default_factory=set)
    offsets_marked: bool = False


@dataclass(frozen=True, slots=True)
class Entry:
    """A record, or a marker (`marker`)."""

    offset: int
    key: bytes | None
    value: bytes | None
    timestamp: int
    txn: Txn | None = None
    marker: bool = False
    headers: Headers = ()


class PartitionLog:
    """The entries in order. Offsets have gaps where markers lay or compaction took something away."""

    def __init__(self, topic: str, partition: int) -> None:
        self.place: Place = (topic, partition)
        self.end = 0
        self._entries: list[Entry] = []
        self._offsets: list[int] = []
        self._open: dict[int, tuple[Txn, int]] = {}

    def append(
        self,
        key: bytes | None,
        value: bytes | None,
        timestamp: int,
        txn: Txn | None = None,
        *,
        marker: bool = False,
        headers: Headers = (),
    ) -> None:
        """Add an entry; the first one of a transaction opens it here, its marker ends it."""
        if txn is not None:
            if marker:
                self._open.pop(id(txn), None)
                txn.marked.add(self.place)
            else:
                self._open.setdefault(id(txn), (txn, self._adopt(txn)))
        self._entries.append(Entry(self.end, key, value, timestamp, txn, marker, headers))
        self._offsets.append(self.end)
        self.end += 1

    def _adopt(self, txn: Txn) -> int:
        """Where the transaction begins here: a partition knows producers, not transactions, so that what hangs of an
        earlier one of the same producer ends as this one does."""
        hanging = [
            (older, first) for older, first in self._open.values() if older.owner == txn.owner and older is not txn
        ]
        for older, _ in hanging:
            del self._open[id(older)]
            self._entries = [replace(entry, txn=txn) if entry.txn is older else entry for entry in self._entries]
        return min((first for _, first in hanging), default=self.end)

    @property
    def stable_end(self) -> int:
        """The last stable offset."""
        return min((first for _, first in self._open.values()), default=self.end)

    @property
    def hides(self) -> bool:
        """Whether something lies behind the last stable offset that was not aborted."""
        first = bisect_left(self._offsets, self.stable_end)
        return any(not e.marker and (e.txn is None or e.txn.committed is not False) for e in self._entries[first:])

    def visible(self, position: int, *, committed: bool = True) -> Iterator[Entry]:
        """What a reader sees from a position on."""
        end = self.stable_end if committed else self.end
        for at in range(bisect_left(self._offsets, position), len(self._entries)):
            entry = self._entries[at]
            if entry.offset >= end:
                return
            if not entry.marker and not (committed and entry.txn is not None and not entry.txn.committed):
                yield entry

    def compact(self) -> int:
        """Take away what a later committed record of the same key replaces, and what was aborted; how many."""
        last: dict[bytes | None, int] = {entry.key: entry.offset for entry in self.visible(0)}
        end = self.stable_end

        def stays(entry: Entry) -> bool:
            if entry.offset >= end or entry.marker or entry.offset == self.end - 1:
                return True
            aborted = entry.txn is not None and not entry.txn.committed
            return not aborted and last.get(entry.key) == entry.offset

        before = len(self._entries)
        self._entries = [entry for entry in self._entries if stays(entry)]
        self._offsets = [entry.offset for entry in self._entries]
        return before - len(self._entries)
