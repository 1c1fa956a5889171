"""A log that tells how far it was read, for commands that read a long topic and say nothing meanwhile."""

from collections.abc import Iterable, Iterator

from rollbook.replay.history.source import Bounds, LogSource, StoredRecord
from rollbook.replay.progress import Watch

_EVERY = 1_000


class WatchedLog:
    """A LogSource: another one, whose reading is told to `watch`."""

    def __init__(self, log: LogSource, watch: Watch) -> None:
        self._log = log
        self._watch = watch

    def partitions(self, topic: str) -> int:
        return self._log.partitions(topic)

    def bounds(self, topic: str, partition: int) -> Bounds:
        return self._log.bounds(topic, partition)

    def offset_at(self, topic: str, partition: int, timestamp_ms: int) -> int | None:
        return self._log.offset_at(topic, partition, timestamp_ms)

    def read(self, topic: str, partition: int, start: int, end: int) -> Iterator[StoredRecord]:
        what, size = f"{topic}:{partition}", end - start
        for count, stored in enumerate(self._log.read(topic, partition, start, end)):
            if count % _EVERY == 0:
                self._watch(what, stored.offset - start, size)
            yield stored
        self._watch(what, size, size)

    def read_at(self, topic: str, partition: int, offsets: Iterable[int]) -> Iterator[StoredRecord]:
        return self._log.read_at(topic, partition, offsets)
