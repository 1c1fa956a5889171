"""Restoring a partition: the compacted ledger topic back into a `Ledger`, and where the fold stands."""

import logging
import time
from dataclasses import dataclass

from confluent_kafka import OFFSET_BEGINNING, Consumer, KafkaException, Producer, TopicPartition

from rollbook.infra.settings import Settings, Topic
from rollbook.processors.host.clients import reader, retried, transactional_producer
from rollbook.processors.host.errors import HostStopped
from rollbook.processors.ledger.fold import Ledger
from rollbook.processors.ledger.rebuild import Rebuild
from rollbook.schemas.records.ledger import Position

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


def restore(settings: Settings, name: str, partition: int, topic_partitions: int) -> Restored:
    """Read the ledger partition to its high watermark as of now (its position passes trailing markers)."""
    rebuild = Rebuild(partition, topic_partitions)
    source = TopicPartition(settings.topic(Topic.LEDGER), partition, OFFSET_BEGINNING)
    consumer = reader(settings)
    try:
        _, high = retried(
            f"watermarks of {source.topic}:{partition}",
            lambda: consumer.get_watermark_offsets(source, timeout=REQUEST_TIMEOUT_S),
        )
        consumer.assign([source])
        progress = _Progress(settings, name, partition)
        while progress.at < high:
            for message in consumer.consume(5_000, 0.05):
                error = message.error()
                if error is not None:
                    raise HostStopped(f"restoring {source.topic}:{partition}: {error.str()}")
                key = message.key()
                assert isinstance(key, bytes), "the processor writes every ledger record with a key"
                value = message.value()
                assert not isinstance(value, str), "values are bytes"
                rebuild.take(key, value)
            progress.note(_position_of(consumer, source), rebuild.position)
    finally:
        consumer.close()
    return Restored(rebuild.ledger, rebuild.next_offset, rebuild.records)


def _position_of(consumer: Consumer, source: TopicPartition) -> int:
    found = consumer.position([source])[0].offset
    return max(0, int(found))  # negative: nothing was read yet


class _Progress:
    """Notices a restore that stands still, and ends the transaction that a dead predecessor left open before it."""

    def __init__(self, settings: Settings, name: str, partition: int) -> None:
        self.at = 0
        self._settings = settings
        self._name = name
        self._partition = partition
        self._since = self._began = time.monotonic()
        self._fenced: str | None = None
        self._fence: Producer | None = None

    def note(self, at: int, position: Position | None) -> None:
        """Take the consumer's position and the last `Position` read."""
        now = time.monotonic()
        if at > self.at:
            self.at, self._since = at, now
            return
        owner = None if position is None else position.transactional_id
        if now - self._since > STUCK_AFTER_S and owner not in (None, self._name, self._fenced):
            assert owner is not None
            logger.warning("partition %d: ending the open transaction of %s", self._partition, owner)
            self._fence = transactional_producer(self._settings, owner)
            self._fenced = owner
        if now - self._began > GIVE_UP_AFTER_S and now - self._since > GIVE_UP_AFTER_S:
            raise HostStopped(
                f"restoring partition {self._partition} of {self._settings.topic(Topic.LEDGER)} stands still at offset "
                f"{at}: a transaction is open there that nobody ends; see `kafka-transactions.sh list`"
            )


def start_offset(consumer: Consumer, settings: Settings, partition: int, restored: Restored) -> int:
    """Where to consume from: `Position` is the truth, the group's offset only has to agree with it."""
    source = TopicPartition(settings.topic(Topic.LIFECYCLE), partition)
    committed = retried(
        f"group offset of {source.topic}:{partition}",
        lambda: consumer.committed([source], timeout=REQUEST_TIMEOUT_S)[0].offset,
    )
    if committed >= 0 and committed != restored.next_offset:
        raise HostStopped(
            f"{source.topic}:{partition}: the group's offset is {committed}, the ledger stands at "
            f"{restored.next_offset}: somebody reset one of them; reset the group's offset to {restored.next_offset}"
        )
    try:
        low, _ = consumer.get_watermark_offsets(source, timeout=REQUEST_TIMEOUT_S)
    except KafkaException as error:
        raise HostStopped(f"watermarks of {source.topic}:{partition}: {error.args[0].str()}") from None
    if restored.next_offset < low:
        raise HostStopped(
            f"{source.topic}:{partition}: offset {restored.next_offset} is next, but the topic begins at {low}: "
            "records were deleted before they were decided; set retention.ms=-1 and start a new topic prefix"
        )
    return restored.next_offset
