"""The connection that a client publishes through: idempotent, quiet, bounded in time, served by a background thread."""

import logging
import threading
import time
from collections import deque
from collections.abc import Callable, Collection
from types import TracebackType

from confluent_kafka import KafkaError, KafkaException, Message, Producer

from rollbook.infra.settings import LIFECYCLE_MAX_BYTES, PAYLOAD_MAX_BYTES, Settings, Topic
from rollbook.producers.errors import ClientClosed, DeliveryBroken, DeliveryFailed
from rollbook.producers.sending.process import Ownership
from rollbook.schemas.errors import EnvironmentFault

CONNECT_TIMEOUT_S = 5.0
DELIVERY_TIMEOUT_S = 120.0
_OVERHEAD_BYTES = 32 * 1024
_POLL_S = 0.05
_GIVE_UP_S = 1.0
_ASK_S = 1.0
"""After so long a refusal is known; librdkafka itself would try until the end."""
_REMEMBERED = 32
_LOG = logging.getLogger("rollbook.producers")
OnDelivered = Callable[[int | None, DeliveryFailed | None], None]
"""Told where a record lies, or why it does not; called from the connection's thread and never raises. Neither: it has
arrived, but the acknowledgement that said where was lost, and the one for its retry does not say it again."""


class Connection:
    """An open connection to the cluster. Raises EnvironmentFault when nothing answers there, or does not let us in, or
    topics are missing.

    Records go to the partition that the caller names: client libraries disagree about the partition of a key.
    """

    def __init__(
        self,
        settings: Settings,
        *,
        connect_timeout_s: float = CONNECT_TIMEOUT_S,
        delivery_timeout_s: float = DELIVERY_TIMEOUT_S,
    ) -> None:
        self._settings = settings
        self._ownership = Ownership("connection")
        self._last_fault = ""
        self._faults: deque[KafkaError] = deque(maxlen=_REMEMBERED)
        self._producer = Producer(
            settings.client(
                {
                    "enable.idempotence": True,
                    "acks": "all",
                    "compression.type": "zstd",
                    "linger.ms": 0.5,
                    "message.max.bytes": max(LIFECYCLE_MAX_BYTES, PAYLOAD_MAX_BYTES) + _OVERHEAD_BYTES,
                    "delivery.timeout.ms": int(delivery_timeout_s * 1000),
                    "reconnect.backoff.max.ms": 1000,
                    # The outbox bounds what waits, in one place; these are only not to be in its way.
                    "queue.buffering.max.messages": 0,
                    "queue.buffering.max.kbytes": 2_147_483_647,
                    # librdkafka writes its troubles to stderr unless told not to.
                    "log_level": 0,
                    "error_cb": self._note_fault,
                }
            )
        )
        self._ownership.keep(self._producer)
        self._partitions = partition_counts(self._producer, settings, connect_timeout_s, self._faults)
        self._stopping = threading.Event()
        self._thread = threading.Thread(target=self._serve, name="rollbook-publisher", daemon=True)
        self._thread.start()

    def check(self) -> None:
        """Raises ForkedClient in a forked child, ClientClosed after `close`."""
        self._ownership.check()
        if self._stopping.is_set():
            raise ClientClosed("the client is closed: use it inside its with block")

    @property
    def closed(self) -> bool:
        return self._stopping.is_set()

    @property
    def is_its_thread(self) -> bool:
        """Whether the caller is called by the connection: from a delivery report."""
        return threading.current_thread() is self._thread

    @property
    def inherited(self) -> bool:
        """Whether this process is a forked child of the one that made the connection."""
        return self._ownership.inherited

    def topic(self, topic: Topic) -> str:
        """The topic's full name."""
        return self._settings.topic(topic)

    def partitions(self, topic: Topic) -> int:
        """How many partitions the topic has; read once, since it is fixed for the life of the prefix."""
        return self._partitions[topic]

    def produce(self, topic: Topic, partition: int, key: str, value: bytes, on_delivered: OnDelivered) -> None:
        """Hand a record over; returns at once. Raises DeliveryFailed when it cannot even be queued."""
        self.check()
        name = self._settings.topic(topic)

        def report(error: KafkaError | None, message: Message) -> None:
            try:
                if error is not None:
                    on_delivered(None, self._failure(name, partition, error))
                else:
                    self._last_fault = ""  # what was the matter is over
                    on_delivered(message.offset(), None)
            except Exception:  # a defect of ours; raised here it would end the thread and strand every other record
                _LOG.exception("while taking in a delivery report of %s:%d", name, partition)

        try:
            self._producer.produce(name, value, key.encode(), partition, on_delivery=report)
        except KafkaException as fault:
            raise self._failure(name, partition, fault.args[0]) from fault

    def close(self) -> None:
        """Give up what is still queued (reported as failed) and let go. Flush first."""
        if self._ownership.inherited:
            return
        self._stopping.set()
        if not self.is_its_thread:
            self._thread.join()

    def __enter__(self) -> "Connection":
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def _serve(self) -> None:
        while not self._stopping.is_set():
            self._producer.poll(_POLL_S)
        self._producer.purge()
        self._producer.flush(_GIVE_UP_S)  # what was given up is told of to the last record

    def _note_fault(self, error: KafkaError) -> None:
        self._faults.append(error)
        if error.code() != KafkaError._ALL_BROKERS_DOWN or not self._last_fault:  # why they are is told beside it
            self._last_fault = error.str()

    def _failure(self, topic: str, partition: int, error: KafkaError) -> DeliveryFailed:
        last = f" (last trouble: {self._last_fault})" if self._last_fault else ""
        # Once its sequence numbers are in doubt an idempotent producer publishes nothing any more.
        broken = error.fatal()
        remedy = "make a new client" if broken else "see that the broker is up"
        return (DeliveryBroken if broken else DeliveryFailed)(
            f"{topic}:{partition} on {self._settings.bootstrap_servers}: {error.str()}{last}: {remedy} and publish the "
            "event again; should it have arrived after all, the ledger sees a duplicate"
        )


def partition_counts(
    client: Producer, settings: Settings, timeout_s: float, faults: Collection[KafkaError]
) -> dict[Topic, int]:
    """Partitions of each topic of the prefix; `faults` is what the client's error_cb collects. Raises EnvironmentFault
    with the remedy."""
    present = _topics(client, settings, timeout_s, faults)
    for topic in (Topic.LIFECYCLE, Topic.PAYLOADS, Topic.DECISIONS):
        if settings.topic(topic) not in present:
            raise EnvironmentFault(settings.missing(settings.topic(topic)))
    return {topic: present[settings.topic(topic)] for topic in Topic if settings.topic(topic) in present}


def _topics(client: Producer, settings: Settings, timeout_s: float, faults: Collection[KafkaError]) -> dict[str, int]:
    end = time.monotonic() + timeout_s
    while True:
        try:
            # All topics, not those by name: asking for one by name can create it.
            found = client.list_topics(timeout=max(0.1, min(_ASK_S, end - time.monotonic()))).topics
        except KafkaException as fault:
            client.poll(0)  # what went wrong on the way is only told from here
            if time.monotonic() >= end or any(map(settings.is_refusal, faults)):
                raise settings.unreachable(faults, timeout_s) from fault
        else:
            return {name: len(topic.partitions) for name, topic in found.items()}
