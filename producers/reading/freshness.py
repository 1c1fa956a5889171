"""Follows the freshness of a run, for whoever generates: how many more trajectories still find their update.

with FreshnessReader(settings, run_id) as freshness:
    while freshness.capacity() == 0:
        time.sleep(0.5)

Nothing here waits for the broker: a thread of its own reads, and answers come from what it has read last.
"""

import time

from confluent_kafka import KafkaError, KafkaException, Message, TopicPartition

from rollbook.infra.settings import Settings, Topic
from rollbook.producers import given
from rollbook.producers.reading.follower import Follower
from rollbook.producers.reading.reader import partition_count, watermarks
from rollbook.schemas.codec import ContractViolation, UndecodableRecord, decode_as
from rollbook.schemas.errors import EnvironmentFault
from rollbook.schemas.partition import partition_of
from rollbook.schemas.records.decision import FreshnessSnapshot

_FROM_THE_END = 500
"""Offsets from the topic's end at which reading begins: a run that goes on has a snapshot with each batch of records,
and a reader must not go through those of all others first."""
_POLL_S = 0.1
_ASK_S = 2.0
_AGAIN_S = 0.5


class FreshnessReader(Follower):
    """The newest `FreshnessSnapshot` of one run. Raises nothing where the broker is not there: it goes on trying, what
    was read last stays, `age_s` grows and `fault` says why."""

    def __init__(self, settings: Settings, run_id: str) -> None:
        self._settings = given.settings(settings)
        super().__init__(
            settings, "freshness reader", gone="the freshness reader is closed: use it inside its with block"
        )
        self._run_id = given.a(str, run_id, "FreshnessSnapshot", "run_id")
        self._topic = settings.topic(Topic.FRESHNESS)
        self._read: FreshnessSnapshot | None = None
        self._read_at = 0.0
        self._fault = ""
        self._begin("rollbook-freshness")

    @property
    def latest(self) -> FreshnessSnapshot | None:
        """The snapshot that was read last; None before the first."""
        self._check()
        return self._read

    def capacity(self) -> int | None:
        """How many more trajectories can be generated now without going stale, by all workers together. None: not known
        (yet), and no reason to wait. Advice, from the last snapshot: the gates decide."""
        latest = self.latest
        return None if latest is None else latest.capacity

    def age_s(self) -> float | None:
        """How long ago the last snapshot was read; None before the first. A run in which nothing happens has no new
        ones."""
        self._check()
        return None if self._read is None else time.monotonic() - self._read_at

    @property
    def fault(self) -> str:
        """What keeps it from reading; empty while it reads."""
        return self._fault

    def _serve(self) -> None:
        placed = False
        while not self._stopping.is_set():
            try:
                if not placed:
                    self._assign()
                    placed, self._fault = True, ""
                message = self._consumer.poll(_POLL_S)
                placed = message is None or self._take(message)
            except (EnvironmentFault, KafkaException) as fault:
                self._fault, placed = str(fault), False
                self._stopping.wait(_AGAIN_S)

    def _assign(self) -> None:
        count = partition_count(self._consumer, self._settings, self._topic, _ASK_S)
        place = TopicPartition(self._topic, partition_of(self._run_id, count))
        low, end = watermarks(self._consumer, self._settings, place, _ASK_S)
        self._consumer.assign([TopicPartition(self._topic, place.partition, max(low, end - _FROM_THE_END))])

    def _take(self, message: Message) -> bool:
        """Read a message; False where reading has to begin anew."""
        error = message.error()
        if error is not None:  # everything else heals: librdkafka connects again by itself
            return not (error.fatal() or error.code() == KafkaError._AUTO_OFFSET_RESET)
        if message.key() != self._run_id.encode():
            return True
        try:
            self._read = decode_as(FreshnessSnapshot, message.value() or b"")
        except (UndecodableRecord, ContractViolation) as problem:
            self._fault = f"{self._topic}:{message.partition()}@{message.offset()} is no snapshot ({problem})"
            return True
        self._read_at, self._fault = time.monotonic(), ""
        return True
