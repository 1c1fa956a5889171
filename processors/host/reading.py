"""Reading a partition from one offset to another, by a consumer of its own that belongs to no group."""

from collections.abc import Iterable, Iterator
from typing import Any, TypeAlias

from confluent_kafka import Message, TopicPartition

from rollbook.processors.host.clients import retried
from rollbook.processors.host.clock import Clock
from rollbook.processors.host.errors import Action, HostStopped, consuming, remedy
from rollbook.processors.host.kafka import Kafka

Place: TypeAlias = tuple[str, int]
"""A topic and one of its partitions."""

REQUEST_TIMEOUT_S = 5.0
STILL_S = 30.0


def ends_of(kafka: Kafka, clock: Clock, places: Iterable[Place]) -> list[tuple[int, int]]:
    """The last stable offset and the end of each place."""

    def end(topic: str, partition: int, *, committed: bool) -> int:
        place, asker = TopicPartition(topic, partition), kafka.asker(committed=committed)
        what = f"watermarks of {topic}:{partition}"
        _, offset = retried(clock, what, lambda: asker.get_watermark_offsets(place, timeout=REQUEST_TIMEOUT_S))
        return int(offset)

    return [(end(*place, committed=True), end(*place, committed=False)) for place in places]


def first_of(kafka: Kafka, clock: Clock, place: Place) -> int:
    """The first offset that is retained: what was sealed may have left the topic."""
    asker = kafka.asker(committed=True)
    what = f"watermarks of {place[0]}:{place[1]}"
    offset, _ = retried(
        clock, what, lambda: asker.get_watermark_offsets(TopicPartition(*place), timeout=REQUEST_TIMEOUT_S)
    )
    return int(offset)


def taken(reader: Any) -> list[Message]:
    """What there is by now; none after 50 ms without any. To ask at once for as many as there may be would wait
    those out wherever there are fewer."""
    first = reader.consume(1, 0.05)
    return first + reader.consume(5_000, 0.0) if first else []


def records(kafka: Kafka, clock: Clock, start: TopicPartition, end: int, *, committed: bool) -> Iterator[Message]:
    """What lies from `start` up to `end`, which must be readable. Raises `HostStopped` when it does not go on."""
    reader = kafka.reader(committed=committed)
    try:
        reader.assign([start])
        at, since = int(start.offset), clock.monotonic()
        while at < end:
            for message in taken(reader):
                error = message.error()
                if error is None:
                    yield message
                elif consuming(error) is Action.STOP:
                    raise HostStopped(f"reading {start.topic}:{start.partition}: {error.str()}: {remedy(error)}")
            now, position = clock.monotonic(), max(0, int(reader.position([start])[0].offset))
            if position > at:
                at, since = position, now
            elif now - since > STILL_S:
                raise HostStopped(
                    f"reading {start.topic}:{start.partition} stands still at offset {at} of {end}: check the broker"
                )
    finally:
        reader.close()


def key_and_value(record: Message) -> tuple[bytes, bytes | None]:
    """Of a record of the ledger topic."""
    key, value = record.key(), record.value()
    assert isinstance(key, bytes), "the processor writes every ledger record with a key"
    assert not isinstance(value, str), "values are bytes"
    return key, value
