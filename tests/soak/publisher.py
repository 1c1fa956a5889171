"""Clients that publish as fast as the processor decides: many runs at once over all partitions, some sent twice, and
records that nobody can decide among them."""

import random
import threading
import time
from collections import Counter
from dataclasses import dataclass

from confluent_kafka import Producer

from rollbook.infra.settings import Settings, Topic
from rollbook.tests.soak.follower import Follower
from rollbook.tests.soak.stories import RunIds, Story, run_ids, told_as

LANES = 2
CHUNK = 20
TICK_S = 0.01
TWINS = 0.15
POISON = 0.004
TWIN_LATER = 40
"""Records by which the second producer of a run is behind the first."""


@dataclass(slots=True)
class Lane:
    """A run that is being told."""

    story: Story
    run_id: str
    at: int
    twin: bool


class Publisher:
    """One thread, two producers: the second one repeats what the first one sent."""

    def __init__(
        self, settings: Settings, follower: Follower, stories: list[Story], seed: int, rate: float, backlog: int
    ) -> None:
        self._topic = settings.topic(Topic.LIFECYCLE)
        self._follower, self._stories, self._dice = follower, stories, random.Random(seed)
        self._rate, self._backlog = rate, backlog
        partitions = len(follower.next)
        self._ids: list[RunIds] = [run_ids(f"soak-{seed}", partition, partitions) for partition in range(partitions)]
        self._lanes = [[self._new(partition) for _ in range(LANES)] for partition in range(partitions)]
        self.sent = [0] * partitions
        self.counts: Counter[str] = Counter()
        self.failures: list[str] = []
        client = {
            "bootstrap.servers": settings.bootstrap_servers,
            "enable.idempotence": True,
            "linger.ms": 20,
            "compression.type": "lz4",
            "message.timeout.ms": 600_000,
            "reconnect.backoff.max.ms": 500,
            "log_level": 0,
        }
        self._producer, self._second = Producer(client), Producer(client)
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._work, name="publisher")

    def start(self) -> None:
        self._thread.start()

    def close(self) -> None:
        """Stop, and wait until everything is acknowledged."""
        self._stop.set()
        self._thread.join()
        if self._producer.flush(120) or self._second.flush(120):
            self.failures.append("not all records were acknowledged")

    def _new(self, partition: int) -> Lane:
        twin = self._dice.random() < TWINS
        return Lane(self._dice.choice(self._stories), self._ids[partition].take(), 0, twin)

    def _work(self) -> None:
        began, asked = time.monotonic(), 0.0
        partition = 0
        while not self._stop.is_set():
            allowed = (time.monotonic() - began) * self._rate if self._rate else float("inf")
            idle = 0
            while asked < allowed and idle < len(self.sent) and not self._stop.is_set():
                partition = (partition + 1) % len(self.sent)
                if self.sent[partition] - self._follower.next[partition] > self._backlog:
                    idle += 1
                    continue
                idle = 0
                for number in range(LANES):
                    asked += self._tell(partition, number)
                self._producer.poll(0)
                self._second.poll(0)
            if idle:  # what could not be sent in time is not made up for in a burst
                began, asked = time.monotonic(), 0.0
            self._stop.wait(TICK_S)

    def _tell(self, partition: int, number: int) -> int:
        lane = self._lanes[partition][number]
        before = self.sent[partition]
        records = lane.story.records
        end = len(records) + (TWIN_LATER if lane.twin else 0)
        for at in range(lane.at, min(lane.at + CHUNK, end)):
            if at < len(records):
                self._send(self._producer, partition, *told_as(records[at], lane.run_id))
            if lane.twin and at - TWIN_LATER >= lane.story.opening:
                self._send(self._second, partition, *told_as(records[at - TWIN_LATER], lane.run_id))
                self.counts["sent twice"] += 1
            if self._dice.random() < POISON:
                self._poison(partition, lane)
        lane.at += CHUNK
        if lane.at >= end:
            self.counts["runs"] += 1
            self.counts["cloned trainers"] += lane.story.clones
            self._lanes[partition][number] = self._new(partition)
        return self.sent[partition] - before

    def _poison(self, partition: int, lane: Lane) -> None:
        """Noise, a tombstone, half a record, a whole one under a wrong key, and one in a wrong partition."""
        self.counts["poison"] += 1
        key, value = told_as(lane.story.records[0], lane.run_id)
        kind = self._dice.randrange(5)
        if kind == 0:
            self._send(self._producer, partition, key, self._dice.randbytes(40))
        elif kind == 1:
            self._send(self._producer, partition, key, None)
        elif kind == 2:
            self._send(self._producer, partition, key, (value or b"")[:-3])
        elif kind == 3:
            self._send(self._producer, partition, b"another", value)
        else:
            self._send(self._producer, (partition + 1) % len(self.sent), key, value)

    def _send(self, producer: Producer, partition: int, key: bytes | None, value: bytes | None) -> None:
        while True:
            try:
                producer.produce(self._topic, value, key, partition, on_delivery=self._delivered)
                break
            except BufferError:
                producer.poll(0.05)
        self.sent[partition] += 1

    def _delivered(self, error: object, _: object) -> None:
        if error is not None and len(self.failures) < 20:
            self.failures.append(f"a record was not acknowledged: {error}")
