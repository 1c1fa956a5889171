"""The number of partitions, fixed for the life of a prefix, since a run lies by it: what is added to the log alone does
not count."""

from confluent_kafka import Consumer

from rollbook.infra.settings import Settings, Topic
from rollbook.processors.host.clients import retried
from rollbook.processors.host.clock import Clock
from rollbook.processors.host.errors import HostStopped, PartitionUnusable
from rollbook.processors.host.reading import REQUEST_TIMEOUT_S


def count_partitions(consumer: Consumer, settings: Settings, clock: Clock) -> int:
    """Those that log and ledger both have. Raises `HostStopped`."""

    def count(name: str) -> int:
        def ask() -> int:
            return len(consumer.list_topics(name, timeout=REQUEST_TIMEOUT_S).topics[name].partitions)

        found = retried(clock, f"partitions of {name}", ask)
        if not found:
            raise HostStopped(settings.missing(name))
        return int(found)

    return min(count(settings.topic(topic)) for topic in (Topic.LIFECYCLE, Topic.LEDGER))


def must_be_one_of(count: int, lifecycle: str, partition: int) -> None:
    """Raises `PartitionUnusable` for one that was added."""
    if partition >= count:
        raise PartitionUnusable(
            f"{lifecycle}:{partition}: the topic was given more than its {count} partitions, so that clients which "
            "start now put runs into others: set ROLLBOOK_TOPIC_PREFIX to a new prefix for new runs"
        )
