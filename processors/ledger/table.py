"""Tables of frozen records with an undo journal.

The fold writes into the tables as it goes; the host either keeps a batch (`Journal.keep`) once its transaction has
committed, or undoes it (`Journal.undo`). A journal in place of an overlay keeps one set of indexes (groups that can be
claimed, open updates, counts) true at every moment instead of a second one over the overlay.
"""

from collections.abc import Iterator
from typing import Any, Generic, TypeVar

from rollbook.schemas.types import Part

K = TypeVar("K", str, int)
V = TypeVar("V", bound=Part)


class Journal:
    """What changed since the last `keep` or `undo`, with the values before."""

    def __init__(self) -> None:
        self._entries: list[tuple[Table[Any, Any], Any, Any]] = []

    def note(self, table: "Table[Any, Any]", key: object, before: object) -> None:
        """Remember a value before it changes."""
        self._entries.append((table, key, before))

    def changes(self) -> Iterator[tuple["Table[Any, Any]", Any]]:
        """Each changed (table, key) once, in the order of first change."""
        seen: set[tuple[int, Any]] = set()
        for table, key, _ in self._entries:
            if (id(table), key) not in seen:
                seen.add((id(table), key))
                yield table, key

    def mark(self) -> int:
        """A point to undo to."""
        return len(self._entries)

    def keep(self) -> None:
        """The changes stand."""
        self._entries.clear()

    def undo(self, mark: int = 0) -> None:
        """Take the changes since the mark back, newest first."""
        while len(self._entries) > mark:
            table, key, before = self._entries.pop()
            table.assign(key, before)


class Table(Generic[K, V]):
    """Records of one kind in one run, by key."""

    def __init__(self, run_id: str, kind: str, model: type[V], journal: Journal) -> None:
        self.run_id = run_id
        self.kind = kind
        self.model = model
        self._journal = journal
        self._rows: dict[K, V] = {}

    def get(self, key: K) -> V | None:
        """The record, or None."""
        return self._rows.get(key)

    def __contains__(self, key: K) -> bool:
        return key in self._rows

    def __len__(self) -> int:
        return len(self._rows)

    def values(self) -> list[V]:
        """All records, by key: insertion order differs between a fold and a restore."""
        return [self._rows[key] for key in sorted(self._rows)]

    def items(self) -> list[tuple[K, V]]:
        """All records with their keys, by key."""
        return [(key, self._rows[key]) for key in sorted(self._rows)]

    def put(self, key: K, value: V) -> V:
        """Set a record."""
        before = self._rows.get(key)
        self._journal.note(self, key, before)
        self._rows[key] = value
        self._index(key, before, value)
        return value

    def drop(self, key: K) -> None:
        """Remove a record."""
        self._journal.note(self, key, self._rows.get(key))
        self.assign(key, None)

    def clear(self) -> None:
        """Remove every record."""
        for key in sorted(self._rows):
            self.drop(key)

    def assign(self, key: K, value: V | None) -> None:
        """Set or remove without a journal entry: for undo and restore."""
        before = self._rows.get(key)
        if value is None:
            self._rows.pop(key, None)
        else:
            self._rows[key] = value
        self._index(key, before, value)

    def _index(self, key: K, before: V | None, after: V | None) -> None:
        """Keep what a table knows beside its rows."""
