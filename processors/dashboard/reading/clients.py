"""The Kafka clients of the dashboard, which belong to no group and write nothing, and how they are tuned."""

from collections import deque
from collections.abc import Callable

from confluent_kafka import Consumer, KafkaError
from confluent_kafka.admin import AdminClient

from rollbook.infra.settings import Settings

GROUP = "rollbook-reader"
"""librdkafka wants a name, and asks who coordinates it; nothing is ever committed under it."""
_REMEMBERED = 32
_QUIET = {"log_level": 0, "reconnect.backoff.max.ms": 1_000, "allow.auto.create.topics": False}
_READING = {
    "group.id": GROUP,
    "isolation.level": "read_committed",
    "enable.auto.commit": False,
    "enable.auto.offset.store": False,
    "auto.offset.reset": "error",
    "fetch.queue.backoff.ms": 5,
}
# Enough to keep a fold of 100,000 records/s busy, and no more: what waits here is memory, and grows with nothing else.
_AHEAD = {
    "enable.partition.eof": True,
    "fetch.wait.max.ms": 100,
    "fetch.message.max.bytes": 1_048_576,
    "queued.min.messages": 20_000,
    "queued.max.messages.kbytes": 16_384,
}


class Faults:
    """What troubled the connections of our clients: the newest of it."""

    def __init__(self) -> None:
        self.heard: deque[KafkaError] = deque(maxlen=_REMEMBERED)
        self.all_down = False

    def __call__(self, error: KafkaError) -> None:
        self.heard.append(error)
        if error.code() == KafkaError._ALL_BROKERS_DOWN:
            self.all_down = True

    def clear(self) -> None:
        self.heard.clear()
        self.all_down = False


def follower(settings: Settings, tell: Callable[[KafkaError], None]) -> Consumer:
    """For the two topics from their beginning on; it also tells when it is at a partition's end."""
    return Consumer(settings.client({**_READING, **_QUIET, **_AHEAD, "error_cb": tell}))


def picker(settings: Settings) -> Consumer:
    """For single records at offsets that are known: it reads little ahead."""
    few = {"fetch.message.max.bytes": 65_536, "queued.min.messages": 1, "queued.max.messages.kbytes": 16_384}
    return Consumer(settings.client({**_READING, **_QUIET, **few, "fetch.wait.max.ms": 50}))


def asker(settings: Settings, tell: Callable[[KafkaError], None]) -> AdminClient:
    """For questions about topics and offsets."""
    return AdminClient(settings.client({**_QUIET, "error_cb": tell}))
