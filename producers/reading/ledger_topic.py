"""Reads current states of one run from the ledger topic, as the processor last committed them."""

import time
from collections.abc import Iterator

from confluent_kafka import KafkaException, TopicPartition

from rollbook.infra.settings import Settings, Topic
from rollbook.processors.ledger.keys import parse_key
from rollbook.producers import given
from rollbook.producers.reading.reader import committed_consumer, partition_count, watermarks
from rollbook.schemas.codec import decode
from rollbook.schemas.errors import EnvironmentFault
from rollbook.schemas.partition import partition_of
from rollbook.schemas.types import Part

_POLL_S = 0.1


def read_states(settings: Settings, run_id: str, kinds: frozenset[str], *, deadline_s: float) -> list[Part]:
    """The run's states of these kinds, each the latest; the whole partition is read. Raises EnvironmentFault."""
    latest: dict[bytes, bytes | None] = {}
    for key, value in _rows(settings, run_id, deadline_s):
        named_run, kind, _ = parse_key(key)
        if named_run == run_id and kind in kinds:
            latest[key] = value
    return [decode(value) for value in latest.values() if value is not None]


def _rows(settings: Settings, run_id: str, deadline_s: float) -> Iterator[tuple[bytes, bytes | None]]:
    topic = given.settings(settings).topic(Topic.LEDGER)
    given.a(str, run_id, "LearnerStarted", "run_id")
    consumer = committed_consumer(settings)
    end = time.monotonic() + deadline_s
    try:
        count = partition_count(consumer, settings, topic, deadline_s)
        place = TopicPartition(topic, partition_of(run_id, count))
        low, high = watermarks(consumer, settings, place, deadline_s)
        consumer.assign([TopicPartition(topic, place.partition, low)])
        # The position passes transaction markers and compacted tails, which have no message.
        while low < high and consumer.position([place])[0].offset < high:
            message = consumer.poll(_POLL_S)
            key = message.key() if message is not None and message.error() is None else None
            if message is not None and key is not None:
                yield key, message.value()
            if time.monotonic() > end:
                raise EnvironmentFault(f"{topic} was not read within {deadline_s:g} s: see that the broker is up")
    except KafkaException as fault:
        raise EnvironmentFault(
            f"{topic} on {settings.bootstrap_servers} cannot be read ({fault.args[0].str()}): see that the broker is up"
        ) from fault
    finally:
        consumer.close()
