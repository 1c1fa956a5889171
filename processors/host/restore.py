"""Opening a partition: the compacted ledger topic back into a `Ledger`, and where the fold stands.

In this order: the group's committed offset, once no transaction of a predecessor is open on it; then the end of the
ledger partition; then everything up to there. Whatever committed before the first step is read by the last.
"""

import logging
from collections.abc import Callable
from dataclasses import dataclass

from confluent_kafka import OFFSET_BEGINNING, Consumer, KafkaException, TopicPartition

from rollbook.infra.settings import Settings, Topic
from rollbook.processors.host.clients import TRANSACTION_TIMEOUT_MS, retried
from rollbook.processors.host.clock import Clock
from rollbook.processors.host.decided import first_undecided
from rollbook.processors.host.errors import HostStopped
from rollbook.processors.host.kafka import Kafka
from rollbook.processors.host.logs import at
from rollbook.processors.ledger.fold import Ledger
from rollbook.processors.ledger.rebuild import Rebuild

logger = logging.getLogger("rollbook.processor")

REQUEST_TIMEOUT_S = 5.0
STUCK_AFTER_S = 1.0
GIVE_UP_AFTER_S = 120.0


@dataclass(frozen=True, slots=True)
class Restored:
    """A partition's ledger and the first lifecycle offset that it does not contain."""

    ledger: Ledger
    next_offset: int
    rows: int


class Stopped(Exception):
    """The process was asked to end in the middle of a restore."""


class Opening:
    """Opens one partition for a processor instance."""

    def __init__(
        self,
        settings: Settings,
        kafka: Kafka,
        clock: Clock,
        name: str,
        partition: int,
        topic_partitions: int,
        stopping: Callable[[], bool],
    ) -> None:
        self._settings = settings
        self._kafka = kafka
        self._clock = clock
        self._name = name
        self._partition = partition
        self._topic_partitions = topic_partitions
        self._stopping = stopping
        self._source = TopicPartition(settings.topic(Topic.LIFECYCLE), partition)
        self._fence: tuple[str, object] | None = None  # kept: its end would not undo the fence, its life costs little

    def open(self, group: Consumer) -> Restored:
        """The restored partition. Where group offset and ledger disagree, both are read once more: a predecessor's
        transaction may have ended in between. Then the decisions say who is right: where they agree with the ledger,
        the group is wrong (somebody reset its offset, or a broker died within a transaction), and the next transaction
        mends it."""
        for _ in range(2):
            committed, restored = self._read(group)
            if committed < 0 or committed == restored.next_offset:
                return restored
        decisions = self._settings.topic(Topic.DECISIONS)
        decided = first_undecided(self._kafka, self._clock, decisions, self._partition)
        places = f"the group's offset is {committed}, the ledger stands at {restored.next_offset}"
        if decided == restored.next_offset:
            logger.warning("%s, and so do the decisions: going on there", places, extra=at(self._partition))
            return restored
        seen = "an offset that an open transaction hides" if decided is None else decided
        raise HostStopped(
            f"{self._source.topic}:{self._partition}: {places}, and decisions go to {seen}: the ledger topic was "
            "changed by hand or belongs to another log; restore it, or start a new topic prefix"
        )

    def _read(self, group: Consumer) -> tuple[int, Restored]:
        committed = self._committed(group)
        restored = self._restore()
        low, _ = retried(
            self._clock,
            f"watermarks of {self._source.topic}:{self._partition}",
            lambda: group.get_watermark_offsets(self._source, timeout=REQUEST_TIMEOUT_S),
        )
        if restored.next_offset < low:
            raise HostStopped(
                f"{self._source.topic}:{self._partition}: offset {restored.next_offset} is next, but the topic begins "
                f"at {low}: records were deleted before they were decided; set retention.ms=-1 and start a new topic "
                "prefix"
            )
        return committed, restored

    def _committed(self, group: Consumer) -> int:
        """The group's offset. Kafka does not tell it while a transaction on it is open; a dead owner's is ended."""
        try:
            return self._ask(group, STUCK_AFTER_S)
        except KafkaException:
            self._end_transaction_of(self._blocking_owner())
        what = f"group offset of {self._source.topic}:{self._partition}"
        return int(retried(self._clock, what, lambda: self._ask(group, REQUEST_TIMEOUT_S)))

    def _ask(self, group: Consumer, timeout_s: float) -> int:
        found = group.committed([self._source], timeout=timeout_s)[0]
        if found.error is not None:
            raise KafkaException(found.error)
        return int(found.offset)

    def _blocking_owner(self) -> str | None:
        """Whose open transaction lies behind the last stable offset: the first thing it wrote there is its `Position`.
        The last committed one would name whoever owned the partition before."""
        place = TopicPartition(self._settings.topic(Topic.LEDGER), self._partition)
        place.offset, end = self._end(place, stable=True), self._end(place, stable=False)
        found = Rebuild(self._partition, self._topic_partitions)
        consumer = self._kafka.reader(committed=False)
        began = self._clock.monotonic()
        try:
            consumer.assign([place])
            while found.position is None and consumer.position([place])[0].offset < end:
                self._take(consumer, found)
                if self._clock.monotonic() - began > REQUEST_TIMEOUT_S:
                    break
        finally:
            consumer.close()
        return None if found.position is None else found.position.transactional_id

    def _end_transaction_of(self, owner: str | None) -> None:
        if owner is None or owner == self._name or (self._fence is not None and self._fence[0] == owner):
            return
        logger.warning("ending the open transaction of %s", owner, extra=at(self._partition))
        self._fence = (owner, self._kafka.producer(owner, TRANSACTION_TIMEOUT_MS))

    def _restore(self) -> Restored:
        rebuild = self._rebuild()
        return Restored(rebuild.ledger, rebuild.next_offset, rebuild.records)

    def _rebuild(self) -> Rebuild:
        """Read the ledger partition to its end as of now, past whatever is open there."""
        rebuild = Rebuild(self._partition, self._topic_partitions)
        place = TopicPartition(self._settings.topic(Topic.LEDGER), self._partition, OFFSET_BEGINNING)
        end = self._end(place, stable=False)
        consumer = self._kafka.reader()
        try:
            consumer.assign([place])
            at, since, began = 0, self._clock.monotonic(), self._clock.monotonic()
            while at < end:
                if self._stopping():
                    raise Stopped
                self._take(consumer, rebuild)
                now, position = self._clock.monotonic(), max(0, int(consumer.position([place])[0].offset))
                if position > at:
                    at, since = position, now
                elif now - since > STUCK_AFTER_S:
                    self._end_transaction_of(self._blocking_owner())
                if now - since > GIVE_UP_AFTER_S:
                    raise HostStopped(
                        f"restoring {place.topic}:{self._partition} stands still at offset {at} after "
                        f"{now - began:.0f} s: a transaction is open there that nobody ends; see "
                        "`kafka-transactions.sh list`"
                    )
        finally:
            consumer.close()
        return rebuild

    def _end(self, place: TopicPartition, *, stable: bool) -> int:
        """The last stable offset of a partition, or its real end."""
        asked = self._kafka.reader(committed=stable)
        try:
            _, end = retried(
                self._clock,
                f"watermarks of {place.topic}:{place.partition}",
                lambda: asked.get_watermark_offsets(place, timeout=REQUEST_TIMEOUT_S),
            )
        finally:
            asked.close()
        return int(end)

    def _take(self, consumer: Consumer, rebuild: Rebuild) -> None:
        for message in consumer.consume(5_000, 0.05):
            error = message.error()
            if error is not None:
                if error.fatal():
                    raise HostStopped(f"restoring partition {self._partition}: {error.str()}: check the broker")
                logger.warning("restoring: %s", error.str(), extra=at(self._partition))
                continue
            key, value = message.key(), message.value()
            assert isinstance(key, bytes), "the processor writes every ledger record with a key"
            assert not isinstance(value, str), "values are bytes"
            rebuild.take(key, value)
