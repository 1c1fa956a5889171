"""A Kafka consumer as a cursor over one partition at a time: jump to an offset, take the next committed record."""

import time
from collections import deque
from typing import cast

from confluent_kafka import Consumer, KafkaError, KafkaException, Message, TopicPartition

from rollbook.infra.settings import Settings
from rollbook.replay.history.source import StoredRecord, place_of
from rollbook.schemas.errors import EnvironmentFault

_POLL_S = 0.2
_BATCH = 1_000
_STALLED_S = 30.0
_QUEUE_KIB = 16 * 1024
_REQUEST_S = 5.0
_ASK_S = 1.0
"""After so long a refusal is known; librdkafka itself would try until the end."""
_REMEMBERED = 32


class Gone(Exception):
    """The partition does not have the offset that was jumped to, or lost it while it was read."""


class Cursor:
    """Holds at most 16 MiB of records that were fetched ahead."""

    def __init__(self, settings: Settings) -> None:
        self._settings = settings
        self._faults: deque[KafkaError] = deque(maxlen=_REMEMBERED)
        self.consumer = Consumer(
            settings.client(
                {
                    # Demanded by the library; nothing is committed under it.
                    "group.id": f"{settings.topic_prefix}history",
                    "isolation.level": "read_committed",
                    "enable.auto.commit": False,
                    "auto.offset.reset": "error",
                    "enable.partition.eof": True,
                    "allow.auto.create.topics": False,
                    "queued.max.messages.kbytes": _QUEUE_KIB,
                    "fetch.wait.max.ms": 10,
                    "fetch.queue.backoff.ms": 5,
                    "reconnect.backoff.max.ms": 1000,
                    # librdkafka writes its troubles to stderr unless told not to; those that matter are raised.
                    "log_level": 0,
                    "error_cb": self._faults.append,
                }
            )
        )
        self._ahead: deque[Message] = deque()
        self._topic = ""
        self._partition = 0
        self.position = 0
        """Every record below it was taken, or jumped over."""

    def jump(self, topic: str, partition: int, offset: int) -> None:
        """Go to an offset. Measured: without the unassign, one jump in a few stalls for up to two seconds."""
        self._ahead.clear()
        self.consumer.unassign()
        self.consumer.assign([TopicPartition(topic, partition, offset)])
        self._topic, self._partition, self.position = topic, partition, offset

    def take(self, end: int) -> StoredRecord | None:
        """The next record below `end`, or None when there is none: the gaps of markers and aborted records are passed.

        `end` must be committed, or this waits for it. Raises Gone, and EnvironmentFault when nothing comes for long.
        """
        quiet_since = time.monotonic()
        while self.position < end:
            if not self._ahead and not self._fetch():
                self._check_progress(quiet_since)
                continue
            message = self._ahead.popleft()
            error = message.error()
            if error is not None:
                self._note(error, message)
                continue
            record = _stored(message)
            if record.offset >= end:
                self._ahead.appendleft(message)
                self.position = end
                return None
            self.position = record.offset + 1
            return record
        return None

    def partitions(self) -> dict[str, int]:
        """How many each topic has. Raises EnvironmentFault."""
        end = time.monotonic() + _REQUEST_S
        while True:
            try:
                # All topics, not one by name: asking for one by name can create it.
                found = self.consumer.list_topics(timeout=max(0.1, min(_ASK_S, end - time.monotonic()))).topics
            except KafkaException:
                self.consumer.poll(0)  # what went wrong on the way is only told from here
                if time.monotonic() >= end or any(map(self._settings.is_refusal, self._faults)):
                    raise self._settings.unreachable(self._faults, _REQUEST_S) from None
            else:
                self._faults.clear()
                return {name: len(topic.partitions) for name, topic in found.items()}

    def rest(self) -> None:
        """Stop fetching."""
        self._ahead.clear()
        self.consumer.unassign()

    def close(self) -> None:
        self.consumer.close()

    def _fetch(self) -> bool:
        first = self.consumer.poll(_POLL_S)
        if first is None:
            return False
        self._ahead.append(first)
        self._ahead.extend(self.consumer.consume(_BATCH, 0))
        return True

    def _note(self, error: KafkaError, message: Message) -> None:
        """The partition's end moves the position past trailing markers; other faults are librdkafka's to repair."""
        if error.code() == KafkaError._PARTITION_EOF:
            self.position = max(self.position, message.offset() or 0)
        elif error.code() in (KafkaError._AUTO_OFFSET_RESET, KafkaError.OFFSET_OUT_OF_RANGE):
            raise Gone

    def _check_progress(self, quiet_since: float) -> None:
        if time.monotonic() - quiet_since > _STALLED_S:
            where = place_of(self._topic, self._partition, self.position)
            raise EnvironmentFault(
                f"{where} on {self._settings.bootstrap_servers}: nothing came for {_STALLED_S:.0f} s: see that the "
                "broker is up, then try again"
            )


def _stored(message: Message) -> StoredRecord:
    topic, partition, offset = message.topic(), message.partition(), message.offset()
    assert topic is not None, "a consumed record has a topic"
    assert partition is not None, "a consumed record has a partition"
    assert offset is not None, "a consumed record has an offset"
    given = cast(list[tuple[str, str | bytes | None]], message.headers() or [])
    headers = tuple((name, _bytes(text)) for name, text in given)
    key, value = _bytes(message.key()), _bytes(message.value())
    return StoredRecord(topic, partition, offset, message.timestamp()[1], key, value, headers)


def _bytes(data: str | bytes | None) -> bytes | None:
    return data.encode() if isinstance(data, str) else data
