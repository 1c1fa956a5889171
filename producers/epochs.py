"""Reads a learner's current epoch from the ledger topic: for a supervisor that starts the next process."""

import time

from confluent_kafka import KafkaException, TopicPartition

from rollbook.infra.settings import Settings, Topic
from rollbook.processors.ledger.keys import key_of
from rollbook.producers.decisions import follow
from rollbook.producers.reading import watermarks
from rollbook.schemas.codec import decode_as
from rollbook.schemas.errors import EnvironmentFault
from rollbook.schemas.partition import partition_of
from rollbook.schemas.records.ledger import LearnerState

_POLL_S = 0.1


def current_epoch(settings: Settings, run_id: str, learner_id: str, *, deadline_s: float = 30.0) -> int:
    """The learner's epoch as the ledger last committed it; 0 when it never started. Raises EnvironmentFault.

    It is what the next `Trainer.start` must expect. A process that lost the race (EpochConflict) must not use it to try
    again itself: whoever decides that a learner is to be taken over does.
    """
    topic = settings.topic(Topic.LEDGER)
    key = key_of(run_id, "learner", learner_id)
    consumer = follow(settings)
    end = time.monotonic() + deadline_s
    latest: bytes | None = None
    try:
        metadata = consumer.list_topics(timeout=deadline_s).topics.get(topic)
        if metadata is None:
            raise EnvironmentFault(f"topic {topic} does not exist: run `rollbook topics create`")
        place = TopicPartition(topic, partition_of(run_id, len(metadata.partitions)))
        low, high = watermarks(consumer, settings, place, deadline_s)
        consumer.assign([TopicPartition(topic, place.partition, low)])
        # The position passes transaction markers and compacted tails, which have no message.
        while consumer.position([place])[0].offset < high and low < high:
            message = consumer.poll(_POLL_S)
            if message is not None and message.error() is None and message.key() == key:
                latest = message.value()
            if time.monotonic() > end:
                raise EnvironmentFault(f"{topic} was not read within {deadline_s:g} s: see that the broker is up")
    except KafkaException as fault:
        raise EnvironmentFault(
            f"{topic} on {settings.bootstrap_servers} cannot be read ({fault.args[0].str()}): see that the broker is up"
        ) from fault
    finally:
        consumer.close()
    return decode_as(LearnerState, latest).epoch if latest else 0
