"""A log in memory with the same interface as Kafka's, gaps of markers included: for tests that plant contradictions."""

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field, replace

from rollbook.replay.history.source import Bounds, OutOfRange, StoredRecord, place_of
from rollbook.schemas.errors import BadInput


@dataclass
class _Partition:
    first: int = 0
    end: int = 0
    records: dict[int, StoredRecord] = field(default_factory=dict)


class MemoryLog:
    """Topics appear with their first record. `reads` counts the records handed out, by topic."""

    def __init__(self, partitions: int = 1) -> None:
        self._count = partitions
        self._kept: dict[tuple[str, int], _Partition] = {}
        self.reads: dict[str, int] = {}

    def append(self, topic: str, partition: int, key: bytes, value: bytes) -> int:
        """Write a record; returns its offset."""
        kept = self._kept.setdefault((topic, partition), _Partition())
        offset = kept.end
        kept.records[offset] = StoredRecord(topic, partition, offset, 1_000 + offset, key, value)
        kept.end += 1
        return offset

    def marker(self, topic: str, partition: int) -> None:
        """An offset without a record, as the end of a transaction leaves it."""
        self._kept[topic, partition].end += 1

    def lose(self, topic: str, partition: int, below: int) -> None:
        """Retention: what lies below is gone."""
        kept = self._kept[topic, partition]
        kept.first = below
        kept.records = {offset: record for offset, record in kept.records.items() if offset >= below}

    def cut(self, topic: str, partition: int, end: int) -> None:
        """The tail is gone, as after an unclean election of a leader."""
        kept = self._kept[topic, partition]
        kept.end = end
        kept.records = {offset: record for offset, record in kept.records.items() if offset < end}

    def tamper(self, topic: str, partition: int, offset: int, value: bytes) -> None:
        """Put other bytes in a record's place."""
        kept = self._kept[topic, partition]
        kept.records[offset] = replace(kept.records[offset], value=value)

    def put(self, topic: str, partition: int, end: int, records: Iterable[StoredRecord]) -> None:
        """A whole partition at once, its records at their own offsets."""
        self._kept[topic, partition] = _Partition(0, end, {record.offset: record for record in records})

    def remove(self, topic: str, partition: int, offset: int) -> None:
        """One record is gone."""
        del self._kept[topic, partition].records[offset]

    def drop(self, topic: str, partition: int) -> None:
        """The partition is gone."""
        del self._kept[topic, partition]

    def filled(self, topic: str) -> list[int]:
        """The partitions of a topic that hold anything."""
        return sorted(partition for name, partition in self._kept if name == topic)

    def partitions(self, topic: str) -> int:
        if not any(known == topic for known, _ in self._kept):
            raise BadInput(f"topic {topic} does not exist")
        return self._count

    def bounds(self, topic: str, partition: int) -> Bounds:
        if (topic, partition) not in self._kept:
            raise BadInput(f"partition {topic}:{partition} does not exist")
        kept = self._kept[topic, partition]
        return Bounds(kept.first, kept.end)

    def offset_at(self, topic: str, partition: int, timestamp_ms: int) -> int | None:
        records = self._kept[topic, partition].records.values()
        return min((record.offset for record in records if record.timestamp_ms >= timestamp_ms), default=None)

    def read(self, topic: str, partition: int, start: int, end: int) -> Iterator[StoredRecord]:
        bounds = self.bounds(topic, partition)
        if start < bounds.first or end > bounds.end:
            raise OutOfRange(f"{topic}:{partition}:{start}-{end}", "not to be had", bounds)
        records = self._kept[topic, partition].records
        for offset in range(start, end):
            if offset in records:
                self.reads[topic] = self.reads.get(topic, 0) + 1
                yield records[offset]

    def read_at(self, topic: str, partition: int, offsets: Iterable[int]) -> Iterator[StoredRecord]:
        bounds = self.bounds(topic, partition)
        for offset in sorted(set(offsets)):
            record = self._kept[topic, partition].records.get(offset)
            if record is None:
                raise OutOfRange(place_of(topic, partition, offset), "no record is there", bounds)
            yield record
