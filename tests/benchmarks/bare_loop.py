"""What the host is measured beside: consume, produce, commit, nothing in between, with clients tuned as the host's."""

import threading
from collections.abc import Iterator
from contextlib import contextmanager

from confluent_kafka import TopicPartition

from rollbook.infra.settings import Settings, Topic
from rollbook.processors.host.batch import MAX_RECORDS
from rollbook.processors.host.clients import group_consumer, transactional_producer
from rollbook.processors.host.loop import Host

SESSION_MS = 6_000


class BareLoop:
    """Answers each record of partition 0 with its own bytes, exactly once."""

    def __init__(self, settings: Settings) -> None:
        self._settings = settings
        self.decided = 0

    def run(self, stop: threading.Event) -> None:
        """Work until `stop` is set."""
        source, target = self._settings.topic(Topic.LIFECYCLE), self._settings.topic(Topic.DECISIONS)
        producer = transactional_producer(self._settings, f"{self._settings.topic_prefix}bare")
        consumer = group_consumer(self._settings, f"{self._settings.topic_prefix}bare", SESSION_MS)
        consumer.assign([TopicPartition(source, 0, 0)])
        try:
            while not stop.is_set():
                first = consumer.poll(0.1)
                if first is None:
                    continue
                messages = [first, *consumer.consume(MAX_RECORDS - 1, 0)]
                metadata = consumer.consumer_group_metadata()
                producer.begin_transaction()
                for message in messages:
                    producer.produce(target, message.value(), message.key(), 0, timestamp=message.timestamp()[1])
                end = messages[-1].offset()
                assert end is not None, "a consumed record has an offset"
                producer.send_offsets_to_transaction([TopicPartition(source, 0, end + 1)], metadata, 10)
                producer.commit_transaction(10)
                self.decided += len(messages)
        finally:
            consumer.close()


@contextmanager
def running(loop: BareLoop | Host) -> Iterator[None]:
    """The loop in a thread of its own."""
    stop = threading.Event()
    failures: list[BaseException] = []

    def work() -> None:
        try:
            loop.run(stop)
        except BaseException as failure:
            failures.append(failure)

    thread = threading.Thread(target=work, name=type(loop).__name__)
    thread.start()
    try:
        yield
    finally:
        stop.set()
        thread.join(60)
    if failures:
        raise failures[0]
