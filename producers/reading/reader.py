"""Consumers that belong to no group, and where a partition begins and ends."""

import time
from collections import deque

from confluent_kafka import Consumer, KafkaError, KafkaException, TopicPartition

from rollbook.infra.settings import Settings
from rollbook.schemas.errors import EnvironmentFault

_PAUSE_S = 0.05
_ASK_S = 1.0
"""After so long a refusal is known; librdkafka itself would try until the end."""
_REMEMBERED = 32


class Reader(Consumer):
    """A consumer that remembers what troubled its connections."""

    def __init__(self, settings: Settings, config: dict[str, object]) -> None:
        self.faults: deque[KafkaError] = deque(maxlen=_REMEMBERED)
        super().__init__(settings.client({**config, "error_cb": self.faults.append}))


def group_less_consumer(settings: Settings, **config: object) -> Reader:
    """A quiet consumer for partitions that are assigned by hand; it commits nothing and never guesses an offset."""
    return Reader(
        settings,
        {
            "group.id": "rollbook-reader",  # demanded by the library; nothing is ever committed under it
            "enable.auto.commit": False,
            "auto.offset.reset": "error",
            "fetch.queue.backoff.ms": 5,
            "reconnect.backoff.max.ms": 1000,
            "allow.auto.create.topics": False,
            "log_level": 0,
            **{name.replace("_", "."): value for name, value in config.items()},
        },
    )


def committed_consumer(settings: Settings) -> Reader:
    """One that sees committed records only, as soon as they are there."""
    return group_less_consumer(settings, isolation_level="read_committed", fetch_wait_max_ms=100)


def partition_count(consumer: Reader, settings: Settings, topic: str, deadline_s: float) -> int:
    """Partitions of a topic. Raises EnvironmentFault when they cannot be had in time, or there is no such topic."""
    end = time.monotonic() + deadline_s
    while True:
        try:
            # All topics, not this one by name: asking for one by name can create it.
            present = consumer.list_topics(timeout=_within(end)).topics
        except KafkaException as fault:
            _check_let_in(consumer, settings, deadline_s)
            if time.monotonic() >= end:
                raise settings.unreachable(consumer.faults, deadline_s) from fault
            continue
        if topic not in present:
            raise EnvironmentFault(settings.missing(topic))
        return len(present[topic].partitions)


def watermarks(consumer: Reader, settings: Settings, place: TopicPartition, deadline_s: float) -> tuple[int, int]:
    """First offset retained and next offset to be written, of a consumer that is given its place afterwards. Raises
    EnvironmentFault when they cannot be had in time."""
    end = time.monotonic() + deadline_s
    while True:
        try:
            found = consumer.get_watermark_offsets(place, timeout=_within(end))
        except KafkaException as fault:
            _check_let_in(consumer, settings, deadline_s)
            # A leader being elected, or a topic just made, is a matter of moments.
            if time.monotonic() + _PAUSE_S < end:
                time.sleep(_PAUSE_S)
                continue
            problem = settings.hidden(fault.args[0].str())
            raise EnvironmentFault(
                f"{place.topic}:{place.partition} on {settings.bootstrap_servers} cannot be read ({problem}): see that "
                "the broker is up and that `rollbook topics create` has been run"
            ) from None
        if found is not None:
            consumer.faults.clear()
            return found


def _check_let_in(consumer: Reader, settings: Settings, waited_s: float) -> None:
    """After a request that failed: raises EnvironmentFault where the reason is that the broker does not let us in."""
    consumer.poll(0)  # what went wrong on the way is only told from here
    if any(map(settings.is_refusal, consumer.faults)):
        raise settings.unreachable(consumer.faults, waited_s)


def _within(end: float) -> float:
    return max(0.1, min(_ASK_S, end - time.monotonic()))
