"""How far a partition is decided, as its decisions say: they vouch for the ledger where the group's offset does not."""

from confluent_kafka import TopicPartition

from rollbook.processors.host.clock import Clock
from rollbook.processors.host.kafka import Kafka
from rollbook.processors.host.reading import ends_of, records
from rollbook.schemas.codec import decode_as
from rollbook.schemas.records.decision import Decision

_FIRST_LOOK = 100


def first_undecided(kafka: Kafka, clock: Clock, topic: str, partition: int) -> int:
    """The first lifecycle offset without a committed decision that can be read."""
    [(end, _)] = ends_of(kafka, clock, [(topic, partition)])
    look = _FIRST_LOOK
    while True:
        start = TopicPartition(topic, partition, max(0, end - look))
        last: bytes | None = None
        for record in records(kafka, clock, start, end, committed=True):
            value = record.value()
            assert not isinstance(value, str), "values are bytes"
            last = value or last
        if last is not None:
            return decode_as(Decision, last).source.offset + 1
        if start.offset <= 0:
            return 0
        look *= 10  # so far there were only markers and what was aborted
