"""What a seal says may leave Kafka leaves it, and the processor goes on: with the last decision as the only one."""

import time

from confluent_kafka import TopicPartition
from confluent_kafka.admin import AdminClient

from rollbook.infra.settings import Settings, Topic
from rollbook.replay.history.kafka import KafkaLog
from rollbook.schemas.codec import decode_as
from rollbook.schemas.records.decision import Decision
from rollbook.tests.conftest import PARTITIONS
from rollbook.tests.processors.history import History
from rollbook.tests.processors.hosting import host_in_thread, send

RUN = "sealed-away"


def published(settings: Settings, history: History, since: int) -> int:
    """Send what the history has come to, and wait for its decisions."""
    records = history.log.records[since:]
    with host_in_thread(settings):
        send(settings, [(one.partition, one.key or b"", one.value or b"") for one in records])
        end = time.monotonic() + 60
        while (found := last_decision(settings, history)) is None or found.sequence < len(history.log.records):
            assert time.monotonic() < end, f"not decided: {found}"
            time.sleep(0.1)
    assert found == history.log.folded[-1].decision
    return len(history.log.records)


def last_decision(settings: Settings, history: History) -> Decision | None:
    topic, partition, last = settings.topic(Topic.DECISIONS), history.log.partition, None
    with KafkaLog(settings) as log:
        bounds = log.bounds(topic, partition)
        for stored in log.read(topic, partition, bounds.first, bounds.end):
            last = stored.value
    return None if last is None else decode_as(Decision, last)


def test_the_processor_goes_on_without_what_was_sealed(settings: Settings) -> None:
    history = History(RUN, topic_partitions=PARTITIONS).opened()
    for at in range(60):
        history.ready(f"t{at}")
    sent = published(settings, history, 0)
    topic, partition = settings.topic(Topic.DECISIONS), history.log.partition
    with KafkaLog(settings) as log:
        bounds = log.bounds(topic, partition)
        *_, last = log.read(topic, partition, bounds.first, bounds.end)
    admin = AdminClient(settings.client({}))
    before = [
        TopicPartition(settings.topic(Topic.LIFECYCLE), partition, sent),
        TopicPartition(topic, partition, last.offset),
    ]
    for gone in admin.delete_records(before).values():
        gone.result(30)
    history.ready("t60")
    published(settings, history, sent)
