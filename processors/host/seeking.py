"""Has the consumer read on from where the ledgers stand, after a transaction that failed."""

from collections.abc import Callable
from typing import Any

from confluent_kafka import KafkaError, KafkaException, Message, TopicPartition

from rollbook.processors.host.clients import retried
from rollbook.processors.host.clock import Clock
from rollbook.processors.host.errors import HostStopped

SEEK_S = 60.0
"""How long a partition may neither be sought nor be taken away."""


def read_on(
    consumer: Any,
    clock: Clock,
    topic: str,
    ours: Callable[[], dict[int, int]],
    poll: Callable[[], Message | None],
    told: Callable[[Message], None],
) -> None:
    """Seek every partition of ours (with its offset, as of now). One that the group has taken away cannot be sought:
    that comes with a poll. Records that the poll brings are passed by, and their partition is sought again; its errors
    are `told`. Raises HostStopped."""
    deadline = clock.monotonic() + SEEK_S
    wanted = sorted(ours())
    while wanted:
        partition = wanted[0]
        offset = ours().get(partition)
        if offset is None or _sought(consumer, clock, TopicPartition(topic, partition, offset)):
            wanted.pop(0)
            continue
        if clock.monotonic() > deadline:
            raise HostStopped(
                f"{topic}:{partition} cannot be read from offset {offset}, and was not taken away: start the processor "
                "again"
            )
        message = poll()
        if message is not None and message.error() is not None:
            told(message)
        elif message is not None and (other := message.partition()) is not None and other not in wanted:
            wanted.append(other)


def _sought(consumer: Any, clock: Clock, place: TopicPartition) -> bool:
    """False where the consumer says that it does not have the partition."""

    def seek() -> bool:
        try:
            consumer.seek(place)
        except KafkaException as error:
            if error.args[0].code() == KafkaError._STATE:
                return False
            raise
        return True

    return bool(retried(clock, f"seeking in {place.topic}:{place.partition}", seek))
