"""Records written back to the offsets at which they lay: each must be told to have arrived at its own."""

from collections import deque
from functools import partial
from types import TracebackType

from confluent_kafka import KafkaError, KafkaException, Message, Producer, TopicPartition
from confluent_kafka.admin import AdminClient

from rollbook.infra.settings import Settings
from rollbook.replay.history.source import StoredRecord, place_of
from rollbook.schemas.errors import EnvironmentFault, RollbookError

ANEW = "delete the topics, which hold a part now, make them anew with `rollbook topics create`, and restore again"
QUEUED_MESSAGES = 100_000
_QUEUED_KIB = 64 * 1024
_DELIVERY_TIMEOUT_S = 120.0
_LARGEST_BYTES = 1_000_000_000
"""Of a record as it is unpacked, and librdkafka's own limit: the topics' is of what is packed."""
_ROOM_S, _FLUSH_S, _GIVE_UP_S = 0.1, 0.5, 1.0
_REQUEST_S = 10.0
_REMEMBERED = 32


class OffsetWriter:
    """A context manager; left in order, all has arrived where it was to. Its methods raise EnvironmentFault as soon as
    a record has not: those behind it do not lie where they lay either."""

    def __init__(self, settings: Settings) -> None:
        self._settings = settings
        self._problem: RollbookError | None = None
        self._faults: deque[KafkaError] = deque(maxlen=_REMEMBERED)
        self._producer = Producer(
            settings.client(
                {
                    "enable.idempotence": True,  # neither twice nor in another order
                    "acks": "all",
                    "compression.type": "zstd",
                    "linger.ms": 5,
                    "message.max.bytes": _LARGEST_BYTES,
                    "delivery.timeout.ms": int(_DELIVERY_TIMEOUT_S * 1000),
                    "reconnect.backoff.max.ms": 1000,
                    "queue.buffering.max.messages": QUEUED_MESSAGES,
                    "queue.buffering.max.kbytes": _QUEUED_KIB,
                    # librdkafka writes its troubles to stderr unless told not to; those that matter are raised.
                    "log_level": 0,
                    "error_cb": self._faults.append,
                }
            )
        )

    def write(self, record: StoredRecord) -> None:
        """Hand a record over; waits where too much is under way."""
        place = place_of(record.topic, record.partition, record.offset)
        while True:
            self._check()
            try:
                self._producer.produce(
                    record.topic,
                    record.value,
                    record.key,
                    record.partition,
                    on_delivery=partial(self._arrived, record.topic, record.partition, record.offset),
                    headers=list(record.headers),
                )
            except BufferError:
                self._producer.poll(_ROOM_S)
            except KafkaException as fault:
                raise self._failure(place, fault.args[0]) from None
            else:
                break
        self._producer.poll(0)

    def drop_before(self, topic: str, partition: int, offset: int) -> None:
        """Let what was written below an offset go, as retention does: not retained is not something else."""
        self.flush()
        admin = AdminClient(self._settings.client({"log_level": 0}))
        place = TopicPartition(topic, partition, offset)
        try:
            admin.delete_records([place], request_timeout=_REQUEST_S)[place].result(2 * _REQUEST_S)
        except (KafkaException, TimeoutError) as fault:
            why = self._settings.hidden(str(fault))
            raise EnvironmentFault(
                f"{topic}:{partition} below offset {offset} was not let go ({why}): see that the user may "
                f"delete records there, {ANEW}"
            ) from None

    def flush(self) -> None:
        """Wait until all has arrived, or one is told to have failed."""
        while self._producer.flush(_FLUSH_S):
            self._check()
        self._check()

    def __enter__(self) -> "OffsetWriter":
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if error is None:
            self.flush()
            return
        self._producer.purge()
        self._producer.flush(_GIVE_UP_S)

    def _arrived(self, topic: str, partition: int, offset: int, error: KafkaError | None, message: Message) -> None:
        """Raised here it would come out of whatever polls: it is kept for the next check."""
        if self._problem is not None:
            return
        place = place_of(topic, partition, offset)
        at = message.offset()
        if error is not None:
            self._problem = self._failure(place, error)
        # After a retry whose first answer was lost nobody says where it is; those around it do, and the topic's end.
        elif at is not None and at >= 0 and at != offset:
            self._problem = EnvironmentFault(
                f"{place} has come to lie at offset {at}: somebody else writes there; end all clients, {ANEW}"
            )

    def _check(self) -> None:
        if self._problem is not None:
            raise self._problem

    def _failure(self, place: str, error: KafkaError) -> EnvironmentFault:
        told = [self._settings.hidden(one.str()) for one in (error, *list(self._faults)[-1:])]
        why = " after ".join(dict.fromkeys(told))
        return EnvironmentFault(
            f"{place} on {self._settings.bootstrap_servers} was not written ({why}): see that the broker is up and "
            f"that the user may write there, {ANEW}"
        )
