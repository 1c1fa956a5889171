"""Consumers that belong to no group, and where a partition begins and ends."""

import time

from confluent_kafka import Consumer, KafkaException, TopicPartition

from rollbook.infra.settings import Settings
from rollbook.schemas.errors import EnvironmentFault

_PAUSE_S = 0.05


def group_less_consumer(settings: Settings, **config: object) -> Consumer:
    """A quiet consumer for partitions that are assigned by hand; it commits nothing and never guesses an offset."""
    return Consumer(
        settings.client(
            {
                "group.id": "rollbook-reader",  # demanded by the library; nothing is ever committed under it
                "enable.auto.commit": False,
                "auto.offset.reset": "error",
                "fetch.queue.backoff.ms": 5,
                "reconnect.backoff.max.ms": 1000,
                "allow.auto.create.topics": False,
                "log_level": 0,
                **{name.replace("_", "."): value for name, value in config.items()},
            }
        )
    )


def watermarks(consumer: Consumer, settings: Settings, place: TopicPartition, deadline_s: float) -> tuple[int, int]:
    """First offset retained and next offset to be written. Raises EnvironmentFault when they cannot be had in time."""
    end = time.monotonic() + deadline_s
    while True:
        try:
            found = consumer.get_watermark_offsets(place, timeout=max(0.1, end - time.monotonic()))
        except KafkaException as fault:
            # A leader being elected, or a topic just made, is a matter of moments.
            if time.monotonic() + _PAUSE_S < end:
                time.sleep(_PAUSE_S)
                continue
            raise EnvironmentFault(
                f"{place.topic}:{place.partition} on {settings.bootstrap_servers} cannot be read "
                f"({fault.args[0].str()}): see that the broker is up and that `rollbook topics create` has been run"
            ) from fault
        if found is not None:
            return found
