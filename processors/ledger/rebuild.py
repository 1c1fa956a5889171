"""A partition's ledger, put together again from the records of the compacted ledger topic. Pure: the caller reads them.

The host restores with it, and so does whoever only looks.
"""

from collections.abc import Iterator

from rollbook.processors.ledger.fold import Ledger
from rollbook.processors.ledger.keys import POSITION, decode_position, parse_key, position_key, restore_row
from rollbook.schemas.errors import BadInput
from rollbook.schemas.records.ledger import Position


class Rebuild:
    """What the records taken so far make. `run_id` keeps one run alone, and the partition's `Position`.

    Only the last record of a key is decoded: a topic that was not compacted yet holds many more records than rows."""

    def __init__(self, partition: int, topic_partitions: int, run_id: str | None = None) -> None:
        self.records = 0
        self._partition = partition
        self._topic_partitions = topic_partitions
        self._run_id = run_id
        self._latest: dict[bytes, bytes] = {}

    def take(self, key: bytes, value: bytes | None) -> None:
        """The next record of the topic; without a value it removes its key."""
        self.records += 1
        if value is None:
            self._latest.pop(key, None)
        else:
            self._latest[key] = value

    def latest(self) -> Iterator[tuple[bytes, bytes]]:
        """The rows that are left, as they lie there, by key."""
        yield from sorted(self._latest.items())

    @property
    def rows(self) -> int:
        """How many records of those taken are left."""
        return len(self._latest)

    def ledger(self) -> Ledger:
        """All rows as tables. Raises BadInput where one is no row."""
        ledger = Ledger(self._partition, self._topic_partitions)
        for key, value in self._latest.items():
            try:
                run_id, kind, name = parse_key(key)
                if kind != POSITION and self._run_id in (None, run_id):
                    restore_row(ledger.run(run_id), kind, name, value)
            except (ValueError, LookupError, BadInput) as problem:  # one that no fold has written, of a forged seal
                raise BadInput(
                    f"{key[:200]!r} is no record of the ledger ({problem}): is this rollbook older than who wrote it?"
                ) from None
        return ledger

    @property
    def position(self) -> Position | None:
        """Where the fold of the partition stood."""
        value = self._latest.get(position_key(self._partition))
        return None if value is None else decode_position(value)

    @property
    def next_offset(self) -> int:
        """The first lifecycle offset that is not in the ledger."""
        position = self.position
        return 0 if position is None else position.next_offset
