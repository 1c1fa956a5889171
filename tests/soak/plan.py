"""The faults of a soak, drawn from its seed before it begins: when, what, where and for how long."""

import random
from collections.abc import Iterator
from dataclasses import dataclass
from enum import StrEnum

from rollbook.tests.soak.instance import HANDOVER_POINTS, LOOP_POINTS

RANDOM = "random"
KILL_POINTS = (*LOOP_POINTS, RANDOM, *HANDOVER_POINTS)
STOP_POINTS = (RANDOM, "produced", "offsets", "begun", "committed", "folded")


class Kind(StrEnum):
    """What is done to whom."""

    KILL = "kill"
    ZOMBIE = "zombie"
    BROKER = "broker"
    TWO_BROKERS = "two brokers"
    STORM = "storm"


@dataclass(frozen=True, slots=True)
class Fault:
    """One fault. `pick` chooses among those there are then; `wait_s` is how long it lasts; `rival`: whether a newcomer
    takes the name of the one that is stopped, or of the killed one at once."""

    at_s: float
    kind: Kind
    pick: float
    point: str
    wait_s: float
    rival: bool


@dataclass(frozen=True, slots=True)
class Rates:
    """Faults a minute."""

    kills: float = 9.0
    zombies: float = 2.4
    brokers: float = 0.5
    storms: float = 0.4


def plan(seed: int, minutes: float, rates: Rates, nodes: int, session_s: float) -> list[Fault]:
    """All faults, by time. Points come in turn, so that each is reached however short the soak."""
    dice = random.Random(seed)
    faults = [
        *_kills(dice, minutes, rates.kills, session_s),
        *_zombies(dice, minutes, rates.zombies, session_s),
        *_brokers(dice, minutes, rates.brokers, nodes),
    ]
    for at in _times(dice, minutes, rates.storms):
        faults.append(Fault(at, Kind.STORM, dice.random(), "", dice.uniform(1.0, 4.0), rival=False))
    return sorted(faults, key=lambda fault: fault.at_s)


def _times(dice: random.Random, minutes: float, rate: float) -> Iterator[float]:
    """One at a random moment of each stretch: as many as the rate says, not too many at once."""
    count = round(minutes * rate)
    for at in range(count):
        yield (at + dice.random()) / count * minutes * 60


def _kills(dice: random.Random, minutes: float, rate: float, session_s: float) -> Iterator[Fault]:
    for number, at in enumerate(_times(dice, minutes, rate)):
        rival = dice.random() < 0.5
        wait_s = dice.uniform(0.0, 0.5) if rival else session_s + dice.uniform(0.0, 2.0)
        yield Fault(at, Kind.KILL, dice.random(), KILL_POINTS[number % len(KILL_POINTS)], wait_s, rival)


def _zombies(dice: random.Random, minutes: float, rate: float, session_s: float) -> Iterator[Fault]:
    for number, at in enumerate(_times(dice, minutes, rate)):
        wait_s = session_s * dice.uniform(1.2, 2.0) + 0.5
        yield Fault(at, Kind.ZOMBIE, dice.random(), STOP_POINTS[number % len(STOP_POINTS)], wait_s, number % 2 == 0)


def _brokers(dice: random.Random, minutes: float, rate: float, nodes: int) -> Iterator[Fault]:
    for number, at in enumerate(_times(dice, minutes, rate)):
        two = nodes > 2 and number % 3 == 1
        yield Fault(
            at, Kind.TWO_BROKERS if two else Kind.BROKER, dice.random(), "", dice.uniform(0.2, 4.0), rival=False
        )
