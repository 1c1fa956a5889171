"""How far a partition is decided, as its decisions say: they vouch for the ledger where the group's offset does not."""

from confluent_kafka import TopicPartition

from rollbook.processors.host.clients import retried
from rollbook.processors.host.clock import Clock
from rollbook.processors.host.kafka import Kafka
from rollbook.schemas.codec import decode_as
from rollbook.schemas.records.decision import Decision

_FIRST_LOOK = 100
_REQUEST_S = 5.0
_STILL_S = 5.0


def first_undecided(kafka: Kafka, clock: Clock, topic: str, partition: int) -> int | None:
    """The first lifecycle offset without a committed decision; None where a transaction is open that may hold more."""
    place = TopicPartition(topic, partition)
    asked = kafka.reader(committed=False)
    try:
        low, end = retried(
            clock,
            f"watermarks of {topic}:{partition}",
            lambda: asked.get_watermark_offsets(place, timeout=_REQUEST_S),
        )
    finally:
        asked.close()
    look = _FIRST_LOOK
    while True:
        start = max(low, end - look)
        whole, last = _last_of(kafka, clock, TopicPartition(topic, partition, start), end)
        if not whole:
            return None
        if last is not None:
            return decode_as(Decision, last).source.offset + 1
        if start <= low:
            return 0
        look *= 10  # so far there were only markers and what was aborted


def _last_of(kafka: Kafka, clock: Clock, start: TopicPartition, end: int) -> tuple[bool, bytes | None]:
    """Whether all of the range could be read, and the last committed record in it."""
    last: bytes | None = None
    reader = kafka.reader()
    try:
        reader.assign([start])
        position, since = -1, clock.monotonic()
        while position < end:
            for message in reader.consume(1_000, 0.05):
                if message.error() is None and message.value() is not None:
                    last = message.value()
            now = max(int(reader.position([start])[0].offset), -1)
            if now > position:
                position, since = now, clock.monotonic()
            elif clock.monotonic() - since > _STILL_S:
                return start.offset >= end, last
    finally:
        reader.close()
    return True, last
