"""The log in Kafka: committed records, read without a group, so that nobody else's reading is disturbed."""

import time
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from types import TracebackType

from confluent_kafka import KafkaError, KafkaException, TopicPartition

from rollbook.infra.settings import Settings
from rollbook.replay.history.cursor import Cursor, Gone
from rollbook.replay.history.source import Bounds, LogClosed, OutOfRange, StoredRecord, place_of
from rollbook.schemas.errors import BadInput, EnvironmentFault

_REQUEST_S = 5.0
# A jump costs as much as reading some records through.
_READ_THROUGH = 64
# A leader being elected, or a topic just made, is a matter of moments.
_SETTLING = (KafkaError.NOT_LEADER_FOR_PARTITION, KafkaError.LEADER_NOT_AVAILABLE)
_PAUSE_S = 0.05
_UNKNOWN = (KafkaError.UNKNOWN_TOPIC_OR_PART, KafkaError._UNKNOWN_TOPIC, KafkaError._UNKNOWN_PARTITION)


class KafkaLog:
    """A `LogSource` over a cluster; a context manager. Reads may be interleaved: each has a consumer of its own, and
    consumers are kept for the next one."""

    def __init__(self, settings: Settings) -> None:
        self._settings = settings
        self._idle: list[Cursor] = []
        self._bounds: dict[tuple[str, int], Bounds] = {}
        self._is_closed = False

    def partitions(self, topic: str) -> int:
        """How many partitions a topic has."""
        with self._cursor() as cursor:
            present = cursor.partitions()
        if topic not in present:
            raise BadInput(self._settings.missing(topic))
        return present[topic]

    def bounds(self, topic: str, partition: int) -> Bounds:
        """The offsets to be had now; the end is the last stable offset, since the reader is read_committed."""
        if partition >= self.partitions(topic):
            raise self._unknown(topic, partition)
        with self._cursor() as cursor:
            try:
                first, end = _watermarks(cursor, TopicPartition(topic, partition))
            except KafkaException as fault:
                if fault.args[0].code() in _UNKNOWN:
                    raise self._unknown(topic, partition) from None
                raise self._unreadable(topic, partition, fault) from None
        found = self._bounds[topic, partition] = Bounds(first, end)
        return found

    def offset_at(self, topic: str, partition: int, timestamp_ms: int) -> int | None:
        """The offset of the first record with this timestamp or a later one; None where there is none."""
        end = self.bounds(topic, partition).end
        with self._cursor() as cursor:
            try:
                # To a broker a time below zero is no time, but a question of its own: for the end, or the beginning.
                (found,) = cursor.consumer.offsets_for_times(
                    [TopicPartition(topic, partition, max(0, timestamp_ms))], timeout=_REQUEST_S
                )
            except KafkaException as fault:
                raise self._unreadable(topic, partition, fault) from None
        if not 0 <= found.offset < end:
            return None
        # The broker may find a transaction's marker, which is stamped later than the records behind it.
        records = self.read(topic, partition, found.offset, end)
        return next((record.offset for record in records if record.timestamp_ms >= timestamp_ms), None)

    def read(self, topic: str, partition: int, start: int, end: int) -> Iterator[StoredRecord]:
        """The records of [start, end) in order, streamed."""
        place = f"{topic}:{partition}:{start}-{end}"
        self._check(place, topic, partition, start, end)
        with self._cursor() as cursor:
            try:
                cursor.jump(topic, partition, start)
                while (record := cursor.take(end)) is not None:
                    yield record
                    self._check_open()
            except Gone:
                raise OutOfRange(
                    place, f"offset {cursor.position} is not retained any more", self.bounds(topic, partition)
                ) from None

    def read_at(self, topic: str, partition: int, offsets: Iterable[int]) -> Iterator[StoredRecord]:
        """The records at these offsets, each once, in ascending order."""
        wanted = sorted(set(offsets))
        if not wanted:
            return
        self._check(place_of(topic, partition, wanted[0]), topic, partition, wanted[0], wanted[0] + 1)
        self._check(place_of(topic, partition, wanted[-1]), topic, partition, wanted[-1], wanted[-1] + 1)
        with self._cursor() as cursor:
            cursor.jump(topic, partition, wanted[0])
            for offset in wanted:
                yield self._take_at(cursor, topic, partition, offset)
                self._check_open()

    def _take_at(self, cursor: Cursor, topic: str, partition: int, offset: int) -> StoredRecord:
        if offset - cursor.position > _READ_THROUGH:
            cursor.jump(topic, partition, offset)
        try:
            while (record := cursor.take(offset + 1)) is not None:
                if record.offset == offset:
                    return record
        except Gone:
            pass
        place = place_of(topic, partition, offset)
        raise OutOfRange(place, "no record is there (any more)", self.bounds(topic, partition))

    def close(self) -> None:
        self._is_closed = True
        while self._idle:
            self._idle.pop().close()

    def __enter__(self) -> "KafkaLog":
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    @contextmanager
    def _cursor(self) -> Iterator[Cursor]:
        self._check_open()
        cursor = self._idle.pop() if self._idle else Cursor(self._settings)
        try:
            yield cursor
        finally:
            cursor.rest()
            if self._is_closed:
                cursor.close()
            else:
                self._idle.append(cursor)

    def _check_open(self) -> None:
        if self._is_closed:
            raise LogClosed(f"the log on {self._settings.bootstrap_servers}")

    def _check(self, place: str, topic: str, partition: int, start: int, end: int) -> None:
        """Against the bounds that are known; against those of now only where these do not suffice."""
        known = self._bounds.get((topic, partition))
        if known is None or end > known.end:
            known = self.bounds(topic, partition)
        if start < known.first:
            raise OutOfRange(place, f"offset {start} is not retained any more", known)
        if end > known.end:
            raise OutOfRange(place, f"offset {end - 1} is beyond the end", known)

    def _unreadable(self, topic: str, partition: int, fault: KafkaException) -> EnvironmentFault:
        problem = self._settings.hidden(fault.args[0].str())
        return EnvironmentFault(
            f"{topic}:{partition} on {self._settings.bootstrap_servers} cannot be read ({problem}): see that the "
            "broker is up, and that the user may read the topic"
        )

    def _unknown(self, topic: str, partition: int) -> BadInput:
        return BadInput(
            f"partition {topic}:{partition} does not exist on {self._settings.bootstrap_servers}: see `rollbook topics "
            "describe` for those that do"
        )


def _watermarks(cursor: Cursor, place: TopicPartition) -> tuple[int, int]:
    deadline = time.monotonic() + _REQUEST_S
    while True:
        try:
            return cursor.consumer.get_watermark_offsets(place, timeout=_REQUEST_S)
        except KafkaException as fault:
            if fault.args[0].code() not in _SETTLING or time.monotonic() > deadline:
                raise
            time.sleep(_PAUSE_S)
