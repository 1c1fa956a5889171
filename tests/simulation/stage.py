"""Where the contract suite plays: the same small play on the simulated broker and on the real one."""

import random
import time
from collections.abc import Callable
from typing import Protocol

from rollbook.infra.settings import Settings
from rollbook.processors.host.kafka import Cluster, Kafka
from rollbook.tests.simulation.broker import Broker
from rollbook.tests.simulation.faults import CALM, Faults
from rollbook.tests.simulation.kafka import SimKafka
from rollbook.tests.simulation.scheduler import Scheduler

PARTITIONS = 2


class Stage(Protocol):
    """A cluster with the six topics, and time."""

    settings: Settings

    def kafka(self) -> Kafka:
        """Clients of one more process."""

    def sleep(self, seconds: float) -> None:
        """Let time pass."""


class RealStage:
    """The test session's broker."""

    def __init__(self, settings: Settings) -> None:
        self.settings = settings

    def kafka(self) -> Kafka:
        return Cluster(self.settings)

    def sleep(self, seconds: float) -> None:
        time.sleep(seconds)

    def play(self, play: Callable[[Stage], None]) -> None:
        """Perform."""
        play(self)


class SimulatedStage:
    """A simulated broker without faults."""

    def __init__(self, seed: int) -> None:
        self.settings = Settings("simulated:1", "s.")
        self._scheduler = Scheduler(seed, 100_000)
        self._broker = Broker(self.settings, PARTITIONS, self._scheduler, Faults(random.Random(seed), CALM))
        self._clients: list[SimKafka] = []

    def kafka(self) -> Kafka:
        self._clients.append(SimKafka(self._broker, self._scheduler.me))
        return self._clients[-1]

    def sleep(self, seconds: float) -> None:
        self._scheduler.wait(seconds)

    def play(self, play: Callable[[Stage], None]) -> None:
        """Perform."""
        player = self._scheduler.spawn("player", lambda _: play(self))
        self._scheduler.tick = self._tick
        self._scheduler.run(lambda: player.ended)
        if player.failure is not None:
            raise player.failure

    def _tick(self) -> None:
        self._broker.tick()
        for one in self._clients:
            one.background()


def until(stage: Stage, condition: Callable[[], bool], seconds: float = 30.0) -> None:
    """Wait for something."""
    for _ in range(int(seconds / 0.05)):
        if condition():
            return
        stage.sleep(0.05)
    raise AssertionError("waited too long")
