"""How far a partition is decided, as its topics say: ledger and decisions vouch for each other, the group for none."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager

from confluent_kafka import Message, TopicPartition

from rollbook.processors.host.clock import Clock
from rollbook.processors.host.errors import PartitionUnusable
from rollbook.processors.host.kafka import Kafka
from rollbook.processors.host.reading import Place, ends_of, first_of, records
from rollbook.processors.ledger.keys import decode_position, position_key
from rollbook.schemas.codec import decode_as
from rollbook.schemas.errors import BadInput
from rollbook.schemas.records.decision import Decision
from rollbook.schemas.records.ledger import Position

_FIRST_LOOK = 100


def first_undecided(kafka: Kafka, clock: Clock, decisions: str, partition: int) -> int:
    """The first lifecycle offset without a committed decision that can be read."""
    last = last_decision(kafka, clock, decisions, partition)
    return 0 if last is None else last.source.offset + 1


def last_decision(kafka: Kafka, clock: Clock, decisions: str, partition: int) -> Decision | None:
    """The last committed decision that can be read. Raises `PartitionUnusable`."""
    last = _last(kafka, clock, (decisions, partition), lambda record: True)
    with foreign(f"{decisions}:{partition}", "what is behind it cannot be trusted: start a new topic prefix"):
        return None if last is None else decode_as(Decision, last)


def last_position(kafka: Kafka, clock: Clock, ledger: str, partition: int) -> Position | None:
    """The partition's `Position`, as far as what is committed can be read."""
    key = position_key(partition)
    last = _last(kafka, clock, (ledger, partition), lambda record: record.key() == key)
    with foreign(f"{ledger}:{partition}", "restore the topic, or start a new topic prefix"):
        return None if last is None else decode_position(last)


@contextmanager
def foreign(place: str, remedy: str) -> Iterator[None]:
    """What is no record of ours stops the partition, and is told with its place."""
    try:
        yield
    except BadInput as problem:
        raise PartitionUnusable(f"{place}: {problem}; nobody but the processor may write there: {remedy}") from None


def _last(kafka: Kafka, clock: Clock, place: Place, wanted: Callable[[Message], bool]) -> bytes | None:
    """The last committed value that is wanted, looked for from the end backwards."""
    [(end, _)] = ends_of(kafka, clock, [place])
    first, look = first_of(kafka, clock, place), _FIRST_LOOK
    while True:
        start = max(first, end - look)
        last: bytes | None = None
        for record in records(kafka, clock, TopicPartition(*place, start), end, committed=True):
            value = record.value()
            assert not isinstance(value, str), "values are bytes"
            if value is not None and wanted(record):
                last = value
        if last is not None or start <= first:
            return last
        look *= 10  # so far there were only markers, other rows, and what was aborted
