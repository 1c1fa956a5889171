"""The independent reader, streaming: nothing of the processor is imported, and no topic is held in memory."""

from collections.abc import Iterator
from typing import Any

from confluent_kafka import OFFSET_BEGINNING, Consumer, TopicPartition

from rollbook.tests.recount import Record

ASK_S = 30.0


def end_of(bootstrap: str, topic: str, partition: int) -> int:
    """The partition's real end, whatever is open there."""
    consumer = _consumer(bootstrap, committed=False)
    try:
        return int(consumer.get_watermark_offsets(TopicPartition(topic, partition), timeout=ASK_S)[1])
    finally:
        consumer.close()


def stream(bootstrap: str, topic: str, partition: int, *, committed: bool = True) -> Iterator[Record]:
    """A partition from its first record to its end as of now."""
    end = end_of(bootstrap, topic, partition)
    consumer = _consumer(bootstrap, committed=committed)
    place = TopicPartition(topic, partition, OFFSET_BEGINNING)
    try:
        consumer.assign([place])
        while end and consumer.position([place])[0].offset < end:
            for message in consumer.consume(1_000, 0.2):
                assert message.error() is None, message.error()
                offset: Any = message.offset()
                if offset < end:
                    yield Record(partition, offset, _bytes(message.key()), message.value())
    finally:
        consumer.close()


def _bytes(key: str | bytes | None) -> bytes:
    return key.encode() if isinstance(key, str) else key  # type: ignore[return-value]  # a key may be missing


def _consumer(bootstrap: str, *, committed: bool) -> Consumer:
    return Consumer(
        {
            "bootstrap.servers": bootstrap,
            "group.id": "soak-reader",
            "isolation.level": "read_committed" if committed else "read_uncommitted",
            "enable.auto.commit": False,
            "auto.offset.reset": "error",
            "log_level": 0,
            "queued.max.messages.kbytes": 16_384,
        }
    )


def source_of(decision: bytes) -> tuple[int, int]:
    """Partition and offset of the record that a decision is about, read from its first fields alone."""
    length, at = _long(decision, 10)  # the mark, the schema's fingerprint, then run_id
    _, at = _long(decision, at + length)
    partition, at = _long(decision, at)
    return partition, _long(decision, at)[0]


def _long(data: bytes, at: int) -> tuple[int, int]:
    """An Avro long and what comes behind it."""
    number = shift = 0
    while True:
        byte = data[at]
        at += 1
        number |= (byte & 0x7F) << shift
        if byte < 0x80:
            return (number >> 1) ^ -(number & 1), at
        shift += 7


class Reservations:
    """At every prefix at most one live reservation of a trajectory: who holds what, by run."""

    def __init__(self) -> None:
        self._live: dict[str, dict[str, str]] = {}
        self.made = 0

    def take(self, decision: dict[str, Any]) -> None:
        """The next decision of the partition."""
        if decision["outcome"] != "accepted":
            return
        run, update = decision["run_id"], decision["update_id"]
        if decision["record_type"] == "RunClosed":
            self._live.pop(run, None)
            return
        live = self._live.setdefault(run, {})
        aborted = {
            name
            for change in decision["mass_changes"]
            if change["predicate"] == "updates aborted"
            for name in change["first_ids"]
        }
        for name in [name for name, holder in live.items() if holder in aborted]:
            del live[name]
        for item in decision["items"]:
            name, before, after = item["trajectory_id"], item["state_before"], item["state_after"]
            if after == "reserved" != before:
                assert name not in live, f"{run}: {name} is reserved by {live[name]} and by {update}"
                live[name] = update
                self.made += 1
            elif before == "reserved" != after:
                live.pop(name, None)
