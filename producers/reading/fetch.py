"""Reads single records by partition and offset: what a decision or a reference points at."""

import time
from collections.abc import Collection
from types import TracebackType
from typing import NamedTuple

from confluent_kafka import KafkaError, TopicPartition

from rollbook.infra.settings import Settings
from rollbook.producers.errors import PayloadLost
from rollbook.producers.reading.reader import group_less_consumer, watermarks
from rollbook.producers.sending.process import Ownership
from rollbook.schemas.errors import EnvironmentFault

_POLL_S = 0.1


class Place(NamedTuple):
    """Where a record lies within its topic."""

    partition: int
    offset: int


class Fetcher:
    """Reads records whose places are known; they must have been written outside transactions.

    `skip` is how many records in between are rather read and dropped than jumped over: a jump costs a round trip.
    """

    def __init__(self, settings: Settings) -> None:
        self._settings = settings
        self._ownership = Ownership("record reader")
        self._consumer = group_less_consumer(
            settings,
            fetch_wait_max_ms=10,
            fetch_message_max_bytes=8 * 1024 * 1024,
            queued_max_messages_kbytes=16 * 1024,
        )
        self._ownership.keep(self._consumer)

    def fetch(self, topic: str, places: Collection[Place], *, skip: int, deadline_s: float) -> dict[Place, bytes]:
        """The values of the records at these places. Raises PayloadLost, or EnvironmentFault when it takes too long."""
        self._ownership.check()
        end = time.monotonic() + deadline_s
        found: dict[Place, bytes] = {}
        for partition in sorted({place.partition for place in places}):
            offsets = sorted({place.offset for place in places if place.partition == partition})
            self._check_retained(topic, partition, offsets, deadline_s)
            position: int | None = None
            for offset in offsets:
                if position is None or not position <= offset <= position + skip:
                    # Without letting go first, an assignment to the same partition was seen to stall for 0.5 to 1.9 s.
                    self._consumer.unassign()
                    self._consumer.assign([TopicPartition(topic, partition, offset)])
                found[Place(partition, offset)] = self._read_to(topic, partition, offset, end)
                position = offset + 1
        if places:
            self._consumer.unassign()
        return found

    def close(self) -> None:
        if not self._ownership.inherited:
            self._consumer.close()

    def __enter__(self) -> "Fetcher":
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def _check_retained(self, topic: str, partition: int, offsets: list[int], deadline_s: float) -> None:
        low, high = watermarks(self._consumer, self._settings, TopicPartition(topic, partition), deadline_s)
        for offset in offsets:
            if not low <= offset < high:
                raise _lost(topic, partition, offset, f"retained are {low} to {high}")

    def _read_to(self, topic: str, partition: int, offset: int, end: float) -> bytes:
        while time.monotonic() < end:
            message = self._consumer.poll(_POLL_S)
            if message is None:
                continue
            error = message.error()
            if error is not None:
                if error.code() == KafkaError._AUTO_OFFSET_RESET:
                    raise _lost(topic, partition, offset, error.str())
                continue  # librdkafka connects again by itself
            at = message.offset()
            assert at is not None
            if at > offset:
                raise _lost(topic, partition, offset, f"the next record is {at}")
            if at == offset:
                return message.value() or b""
        raise EnvironmentFault(
            f"{topic}:{partition}@{offset} on {self._settings.bootstrap_servers} was not read in time: see that the "
            "broker is up, and try again"
        )


def _lost(topic: str, partition: int, offset: int, problem: str) -> PayloadLost:
    return PayloadLost(
        f"{topic}:{partition}@{offset} is not there any more ({problem}): discard its trajectory (payload_lost), and "
        "raise the topic's retention"
    )
