"""Reads committed decisions while the soak runs: the light check, and the clock of recoveries."""

import threading
import time
from dataclasses import dataclass

from confluent_kafka import OFFSET_BEGINNING, Consumer, TopicPartition

from rollbook.infra.settings import Settings, Topic
from rollbook.tests.soak.reader import source_of


@dataclass(slots=True)
class Recovery:
    """From a fault to the next decision of a partition that was committed after it."""

    cause: str
    partition: int
    began: float
    not_before: float = 0.0
    """Decisions read before this moment may have been committed before the fault."""
    threshold: int | None = None
    """Where the partition was restored: what is decided from here on, was decided after the fault."""
    ended: float | None = None

    @property
    def seconds(self) -> float:
        return (self.ended or self.began) - self.began


class Follower:
    """Every record has its decision in order, as far as they are read; says how far that is."""

    def __init__(self, settings: Settings, partitions: int) -> None:
        self._settings = settings
        self.next = dict.fromkeys(range(partitions), 0)
        self.violations: list[str] = []
        self.ended: list[Recovery] = []
        self._open: dict[int, list[Recovery]] = {}
        self._lock = threading.Lock()
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._work, name="follower")

    @property
    def decided(self) -> int:
        return sum(self.next.values())

    @property
    def unfinished(self) -> int:
        """Recoveries under way."""
        with self._lock:
            return sum(map(len, self._open.values()))

    def start(self) -> None:
        self._thread.start()

    def close(self) -> None:
        self._stop.set()
        self._thread.join()

    def expect(self, recovery: Recovery) -> None:
        """A fault hit a partition. A later one of the same cause, before it recovered, lengthens the first."""
        with self._lock:
            self._open.setdefault(recovery.partition, []).append(recovery)

    def restored(self, partition: int, next_offset: int, at: float) -> None:
        """An owner has read the partition's ledger, up to here."""
        with self._lock:
            for recovery in self._open.get(partition, ()):
                if recovery.threshold is None and at > recovery.began:
                    recovery.threshold = next_offset

    def _work(self) -> None:
        topic = self._settings.topic(Topic.DECISIONS)
        consumer = Consumer(
            {
                "bootstrap.servers": self._settings.bootstrap_servers,
                "group.id": "soak-follower",
                "isolation.level": "read_committed",
                "enable.auto.commit": False,
                "auto.offset.reset": "error",
                "fetch.wait.max.ms": 20,
                "reconnect.backoff.max.ms": 500,
                "log_level": 0,  # that brokers are away is no news here
            }
        )
        consumer.assign([TopicPartition(topic, partition, OFFSET_BEGINNING) for partition in self.next])
        try:
            while not self._stop.is_set():
                for message in consumer.consume(500, 0.02):
                    if message.error() is None:
                        self._take(message.partition(), message.value(), time.monotonic())  # type: ignore[arg-type]
        finally:
            consumer.close()

    def _take(self, at: int, value: bytes, now: float) -> None:
        partition, offset = source_of(value)
        expected = self.next[at]
        if (partition, offset) != (at, expected) and len(self.violations) < 20:
            self.violations.append(f"partition {at}: a decision on {partition}:{offset}, expected one on {expected}")
        self.next[at] = offset + 1
        if self._open.get(at):
            self._recovered(at, offset, now)

    def _recovered(self, partition: int, offset: int, now: float) -> None:
        with self._lock:
            left = []
            for recovery in self._open[partition]:
                by_place = recovery.threshold is not None and offset >= recovery.threshold
                by_time = bool(recovery.not_before) and now >= recovery.not_before
                if by_place or by_time:
                    recovery.ended = now
                    self.ended.append(recovery)
                else:
                    left.append(recovery)
            self._open[partition] = left
