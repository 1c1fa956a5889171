"""Opening a partition: the compacted ledger topic back into a `Ledger`, and where the fold stands.

In this order: the group's committed offset, once no transaction of a predecessor is open on it; nothing open in the
partition's places; the end of the ledger partition, and everything up to there; the last decision, which must agree.
Whatever committed before the first step is read by the last.
"""

import gc
import hashlib
import logging
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass

from confluent_kafka import OFFSET_INVALID, Consumer, KafkaError, KafkaException, Message, TopicPartition

from rollbook.infra.settings import Settings, Topic
from rollbook.processors.host.clients import retried
from rollbook.processors.host.clock import Clock
from rollbook.processors.host.decided import foreign, last_decision
from rollbook.processors.host.errors import HostStopped, PartitionUnusable
from rollbook.processors.host.kafka import Kafka
from rollbook.processors.host.logs import at
from rollbook.processors.host.reading import ends_of, first_of, key_and_value, records, taken
from rollbook.processors.host.takeover import GIVE_UP_AFTER_S, Stopped, Takeover
from rollbook.processors.host.transaction import Transactions
from rollbook.processors.ledger.fold import Ledger
from rollbook.processors.ledger.rebuild import Rebuild
from rollbook.schemas.records.decision import Decision

logger = logging.getLogger("rollbook.processor")

REQUEST_TIMEOUT_S = 5.0
ASK_TIMEOUT_S = 2.0
HELD = (KafkaError._TIMED_OUT, KafkaError.UNSTABLE_OFFSET_COMMIT)
"""Of a group's offset: librdkafka asks again while it is unstable, until the time is over."""

NEVER = OFFSET_INVALID
STUCK_AFTER_S = 1.0
SAY_S = 10.0
MOST_READINGS = 4
"""Of a partition whose places move; an instance that is none of the group's any more hears of it only afterwards."""


@dataclass(frozen=True, slots=True)
class Restored:
    """A partition's ledger and the first lifecycle offset that it does not contain."""

    ledger: Ledger
    next_offset: int
    rows: int


@contextmanager
def _no_collection() -> Iterator[None]:
    """Rows have no cycles: to look for some among so many takes a quarter of a restore."""
    was = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if was:
            gc.enable()


class Opening:
    """Opens one partition for a processor instance."""

    def __init__(
        self,
        settings: Settings,
        kafka: Kafka,
        clock: Clock,
        own: Transactions,
        partition: int,
        topic_partitions: int,
        stopping: Callable[[], bool],
    ) -> None:
        self._settings = settings
        self._kafka = kafka
        self._clock = clock
        self._partition = partition
        self._topic_partitions = topic_partitions
        self._stopping = stopping
        self._source = TopicPartition(settings.topic(Topic.LIFECYCLE), partition)
        self._takeover = Takeover(settings, kafka, clock, own, partition, stopping)

    def open(self, group: Consumer) -> Restored:
        """The restored partition. Ledger and decisions must agree; where they or the group's offset do not, all are
        read again as long as they move, since a predecessor's transaction may have ended in between. Where they stand
        still the group is wrong (somebody reset its offset, it expired, or a broker lost a marker), and the next
        transaction mends it; where they go on moving, the partition is another's by now."""
        stood, moves = None, True
        for _ in range(MOST_READINGS):
            committed, restored, decided = self._read(group)
            if decided == restored.next_offset and (committed is None or committed in (NEVER, decided)):
                return restored
            stands = (restored.next_offset, decided)
            stood, moves = stands, stands != stood
            if not moves:
                break
        places = f"the group's offset is {committed}, the ledger stands at {restored.next_offset}"
        if decided == restored.next_offset:
            logger.warning("%s, and so do the decisions: going on there", places, extra=at(self._partition))
            return restored
        cause = (
            "another processor decides it at the same time: the group has given it to that one"
            if moves
            else "one of the two topics was changed by hand or made anew; restore it, or start a new topic prefix"
        )
        raise PartitionUnusable(
            f"{self._source.topic}:{self._partition}: {places}, and decisions go to {decided}: {cause}"
        )

    def _read(self, group: Consumer) -> tuple[int | None, Restored, int]:
        committed = self._committed(group)
        self._takeover.settle(group)
        restored = self._restore(group)
        decisions = self._settings.topic(Topic.DECISIONS)
        last = last_decision(self._kafka, self._clock, decisions, self._partition)
        decided = 0 if last is None else last.source.offset + 1
        low, _ = retried(
            self._clock,
            f"watermarks of {self._source.topic}:{self._partition}",
            lambda: group.get_watermark_offsets(self._source, timeout=REQUEST_TIMEOUT_S),
        )
        if restored.next_offset < low:
            raise PartitionUnusable(
                f"{self._source.topic}:{self._partition}: offset {restored.next_offset} is next, but the topic begins "
                f"at {low}: records were deleted before they were decided; set retention.ms=-1 and start a new topic "
                "prefix"
            )
        if last is not None and decided == restored.next_offset and last.source.offset >= low:  # else it was sealed
            self._must_be_the_log_of(last)
        return committed, restored, decided

    def _must_be_the_log_of(self, last: Decision) -> None:
        """A lifecycle topic that was made anew has other records where the old ones were decided."""
        topic, offset = str(self._source.topic), last.source.offset
        [(end, _)] = ends_of(self._kafka, self._clock, [(topic, self._partition)])
        start = TopicPartition(topic, self._partition, offset)
        found = next(records(self._kafka, self._clock, start, min(end, offset + 1), committed=True), None)
        value = None if found is None or found.offset() != offset else found.value() or b""
        if not isinstance(value, bytes) or hashlib.sha256(value).hexdigest() != last.source.sha256:
            raise PartitionUnusable(
                f"{topic}:{self._partition}: the record at offset {offset} is not the one that was decided: the "
                "topic was made anew; set ROLLBOOK_TOPIC_PREFIX to a new prefix"
            )

    def _committed(self, group: Consumer) -> int | None:
        """The group's offset. Kafka does not tell it while a transaction on it is open; a dead owner's is ended. None
        where it will never be told."""

        def ask() -> int | None:
            try:
                found = group.committed([self._source], timeout=ASK_TIMEOUT_S)[0]
                if found.error is not None:
                    raise KafkaException(found.error)
            except KafkaException as error:
                if error.args[0].code() in HELD and not self._takeover.press(group):
                    return None
                raise
            return int(found.offset)

        offset: int | None = retried(self._clock, f"group offset of {self._source.topic}:{self._partition}", ask)
        return offset

    def _restore(self, group: Consumer) -> Restored:
        rebuild = self._rebuild(group)
        mend = "write a record without value under that key, and start the processor again"
        with _no_collection(), foreign(f"{self._settings.topic(Topic.LEDGER)}:{self._partition}", mend):
            ledger = rebuild.ledger()
        return Restored(ledger, rebuild.next_offset, rebuild.records)

    def _rebuild(self, group: Consumer) -> Rebuild:
        """Read the ledger partition to its end as of now, past whatever is open there."""
        rebuild = Rebuild(self._partition, self._topic_partitions)
        topic = self._settings.topic(Topic.LEDGER)
        # An offset: for OFFSET_BEGINNING a consumer that is not connected yet asks in vain, and again after 500 ms.
        place = TopicPartition(topic, self._partition, first_of(self._kafka, self._clock, (topic, self._partition)))
        [(_, end)] = ends_of(self._kafka, self._clock, [(topic, self._partition)])
        consumer = self._kafka.reader()
        try:
            consumer.assign([place])
            at, since, began = int(place.offset), self._clock.monotonic(), self._clock.monotonic()
            said = began
            while at < end:
                if self._stopping():
                    raise Stopped
                self._take(taken(consumer), rebuild)
                now, position = self._clock.monotonic(), max(0, int(consumer.position([place])[0].offset))
                if position > at:
                    at, since = position, now
                elif now - since > STUCK_AFTER_S:
                    self._takeover.press(group)
                if now - said > SAY_S:
                    said = now
                    self._say(position, end)
                if now - since > GIVE_UP_AFTER_S:
                    raise PartitionUnusable(
                        f"restoring {place.topic}:{self._partition} stands still at offset {at} after "
                        f"{now - began:.0f} s: a transaction is open there that nobody ends; see "
                        "`kafka-transactions.sh list`"
                    )
        finally:
            consumer.close()
        return rebuild

    def _say(self, position: int, end: int) -> None:
        """That it goes on: a large ledger takes minutes."""
        logger.info("restoring: at offset %d of %d of the ledger", position, end, extra=at(self._partition))

    def _take(self, messages: list[Message], rebuild: Rebuild) -> None:
        for message in messages:
            error = message.error()
            if error is not None:
                if error.fatal():
                    raise HostStopped(f"restoring partition {self._partition}: {error.str()}: check the broker")
                logger.warning("restoring: %s", error.str(), extra=at(self._partition))
                continue
            rebuild.take(*key_and_value(message))
