"""A partition's ledger, put together again from the records of the compacted ledger topic. Pure: the caller reads them.

The host restores with it, and so does whoever only looks.
"""

from rollbook.processors.ledger.fold import Ledger
from rollbook.processors.ledger.keys import POSITION, decode_position, parse_key, restore_row
from rollbook.schemas.records.ledger import Position


class Rebuild:
    """What the records taken so far make. `run_id` keeps one run alone, and the partition's `Position`."""

    def __init__(self, partition: int, topic_partitions: int, run_id: str | None = None) -> None:
        self.ledger = Ledger(partition, topic_partitions)
        self.position: Position | None = None
        self.records = 0
        self._run_id = run_id

    def take(self, key: bytes, value: bytes | None) -> None:
        """The next record of the topic; without a value it removes its key."""
        run_id, kind, name = parse_key(key)
        if kind == POSITION:
            self.position = None if value is None else decode_position(value)
        elif self._run_id is None or run_id == self._run_id:
            restore_row(self.ledger.run(run_id), kind, name, value)
        self.records += 1

    @property
    def next_offset(self) -> int:
        """The first lifecycle offset that is not in the ledger."""
        return 0 if self.position is None else self.position.next_offset
