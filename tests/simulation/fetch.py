"""Reading partitions: positions that pass markers and what was aborted, and readers without a group."""

from collections.abc import Iterator
from dataclasses import dataclass, field

from confluent_kafka import Message, TopicPartition

from rollbook.tests.simulation.broker import Broker
from rollbook.tests.simulation.log import Entry, PartitionLog, Place
from rollbook.tests.simulation.scheduler import Process

INVALID = -1001
LOG_APPEND_TIME = 2


@dataclass(slots=True)
class Fetched:
    """Where a partition is read, and what the last answer said of its end."""

    log: PartitionLog
    position: int
    paused: bool = False
    ends: tuple[int, int] = (INVALID, INVALID)
    delivered: Message | None = None


@dataclass(slots=True)
class Reading:
    """Partitions that are read."""

    broker: Broker
    committed: bool = True
    places: dict[Place, Fetched] = field(default_factory=dict)

    def add(self, place: TopicPartition) -> None:
        log = self.broker.logs[place.topic, int(place.partition)]
        self.places[log.place] = Fetched(log, max(0, int(place.offset)))

    def remove(self, place: TopicPartition) -> None:
        self.places.pop((place.topic, int(place.partition)), None)

    @property
    def ready(self) -> bool:
        """Whether a fetch would bring something."""
        return self.broker.up and any(
            not found.paused and found.position < self._end(found.log) for found in self.places.values()
        )

    def fetch(self, most: int) -> list[Message]:
        """What one answer brings: a part of what is there, in the order of each partition."""
        messages: list[Message] = []
        if not self.broker.up:
            return messages
        source = self.broker.scheduler.random
        for place in sorted(self.places, key=lambda _: source.random()):
            found = self.places[place]
            found.ends = (0, self._end(found.log))
            if not found.paused and len(messages) < most:
                limit = min(most - len(messages), 1 + int(source.random() ** 2 * 60))
                messages += self._of(found, limit)
        return messages

    def _of(self, found: Fetched, limit: int) -> Iterator[Message]:
        faults = self.broker.faults
        if found.delivered is not None and faults.strikes("messages delivered twice", faults.profile.again):
            limit -= 1
            yield found.delivered
        for entry in found.log.visible(found.position, committed=self.committed):
            if not limit:
                return
            limit -= 1
            found.position = entry.offset + 1
            found.delivered = _message(found.log.place, entry)
            yield found.delivered
        found.position = max(found.position, self._end(found.log))  # past markers and what was aborted

    def _end(self, log: PartitionLog) -> int:
        return log.stable_end if self.committed else log.end


def _message(place: Place, entry: Entry) -> Message:
    return Message(
        topic=place[0],
        partition=place[1],
        offset=entry.offset,
        key=entry.key,
        value=entry.value,
        timestamp=(LOG_APPEND_TIME, entry.timestamp),
        headers=list(entry.headers),
    )


class SimReader:
    """A consumer of partitions that it is told."""

    def __init__(self, broker: Broker, process: Process, *, committed: bool) -> None:
        self._broker = broker
        self._process = process
        self._reading = Reading(broker, committed)

    def assign(self, places: list[TopicPartition]) -> None:
        for place in places:
            self._reading.add(place)

    def consume(self, most: int, timeout: float) -> list[Message]:
        self._broker.scheduler.wait(timeout, lambda: self._reading.ready)
        return self._reading.fetch(most)

    def position(self, places: list[TopicPartition]) -> list[TopicPartition]:
        return [
            TopicPartition(
                place.topic, place.partition, self._reading.places[place.topic, int(place.partition)].position
            )
            for place in places
        ]

    def get_watermark_offsets(self, place: TopicPartition, timeout: float = 5.0) -> tuple[int, int]:
        log = self._broker.logs[place.topic, int(place.partition)]
        committed = self._reading.committed
        return self._broker.ask(
            self._process.name,
            f"watermarks of {place.topic}:{place.partition}",
            timeout,
            lambda: (0, log.stable_end if committed else log.end),
        )

    def close(self) -> None:
        self._reading.places.clear()
