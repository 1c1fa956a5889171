"""Carries the plan of faults out on the fleet and the brokers, and starts again what has ended."""

import heapq
import itertools
import random
import time
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field

from rollbook.infra.settings import Settings, Topic
from rollbook.tests.soak.cluster import Brokers
from rollbook.tests.soak.fleet import Fleet, Instance
from rollbook.tests.soak.follower import Follower, Recovery
from rollbook.tests.soak.instance import HANDOVER_POINTS
from rollbook.tests.soak.plan import RANDOM, Fault, Kind

TURN_S = 0.02
UNREACHED_S = 4.0
"""A point that an instance has not reached by then is not awaited: it is hit where it is."""
ELECTION_S = 0.3
GUESTS = 2
TWO_AWAY_S = 6.0


@dataclass(order=True, slots=True)
class _Due:
    at: float
    number: int
    act: Callable[[], None] = field(compare=False)


class Director:
    """One loop: what is due is done, what has ended is noticed."""

    def __init__(
        self, settings: Settings, fleet: Fleet, brokers: Brokers, follower: Follower, names: list[str], seed: int
    ) -> None:
        self._settings, self._fleet, self._brokers, self._follower = settings, fleet, brokers, follower
        self._names = names
        self._dice = random.Random(seed)
        self._due: list[_Due] = []
        self._number = itertools.count()
        self._returns: dict[str, tuple[float, str]] = {}
        """How long a name that is about to lose its process stays away, and the point its next process dies at."""
        self._guests = itertools.count()
        self._regular: tuple[float, Callable[[], None]] | None = None
        self._regular_at = 0.0
        self.counts: Counter[str] = Counter()
        self.away: list[tuple[float, float]] = []
        """When a broker was away: from its kill until it answered again."""

    def every(self, seconds: float, act: Callable[[], None]) -> None:
        """Do this again and again, as long as there are turns."""
        self._regular = (seconds, act)

    def later(self, seconds: float, act: Callable[[], None]) -> None:
        """Do this then."""
        heapq.heappush(self._due, _Due(time.monotonic() + seconds, next(self._number), act))

    def run(self, faults: list[Fault], seconds: float) -> None:
        """All faults, each at its time."""
        began = time.monotonic()
        for fault in faults:
            self.later(fault.at_s, lambda fault=fault: self._do(fault))  # type: ignore[misc]
        while time.monotonic() - began < seconds:
            self.turn()

    def turn(self) -> None:
        """What is due now."""
        while self._due and self._due[0].at <= time.monotonic():
            heapq.heappop(self._due).act()
        for ended in self._fleet.reap():
            self._replace(ended)
        if self._regular is not None and time.monotonic() >= self._regular_at:
            self._regular_at = time.monotonic() + self._regular[0]
            self._regular[1]()
        time.sleep(TURN_S)

    def settle(self) -> None:
        """Finish what was begun, without new faults: brokers back, the stopped going on, all names there."""
        while self._due or not self._brokers.up or any(one.frozen for one in self._everyone()):
            self.turn()
        self._names_are_there()

    def _names_are_there(self) -> None:
        for name in self._names:
            if name not in self._fleet.current:
                self._fleet.spawn(name)

    def _everyone(self) -> list[Instance]:
        return [*self._fleet.current.values(), *self._fleet.replaced]

    def _replace(self, ended: Instance) -> None:
        if ended.name not in self._names:
            return
        wait_s, point = self._returns.pop(ended.name, (self._dice.uniform(0.1, 0.5), ""))

        def back() -> None:
            if ended.name not in self._fleet.current:
                self._fleet.spawn(ended.name, *(("kill", point) if point else ()))

        self.later(wait_s, back)

    def _do(self, fault: Fault) -> None:
        match fault.kind:
            case Kind.KILL | Kind.ZOMBIE:
                self._hit(fault)
            case Kind.BROKER | Kind.TWO_BROKERS:
                self._broker(fault)
            case Kind.STORM:
                self._storm(fault)

    # ---- processes

    def _hit(self, fault: Fault) -> None:
        """Of those that own partitions, or else of all, one that nobody hit yet."""
        idle = [
            one
            for one in self._fleet.current.values()
            if one.alive and not one.frozen and not one.order[1] and one.name in self._names
        ]
        some = sorted((one for one in idle if one.owned), key=lambda one: one.name)
        if not some:
            self.later(0.5, lambda: self._hit(fault))
            return
        chosen = some[int(fault.pick * len(some))]
        if fault.kind is Kind.KILL:
            self._kill(chosen, fault)
        else:
            self._stop(chosen, fault)

    def _kill(self, chosen: Instance, fault: Fault) -> None:
        if fault.point in HANDOVER_POINTS and fault.point != "revoked":
            # It dies when it is given its partitions: a process is replaced by one that does.
            self._fleet.spawn(chosen.name, "kill", fault.point)
            chosen = self._fleet.current[chosen.name]
        elif fault.point == RANDOM:
            self._fleet.kill(chosen, RANDOM)
        else:
            self._fleet.order(chosen, "kill", fault.point)
            if fault.point == "revoked":
                self._storm(fault, guests=1)
        self._returns[chosen.name] = (fault.wait_s, "")
        patience = UNREACHED_S * (3 if fault.point in HANDOVER_POINTS else 1)
        self.later(patience, lambda: self._fleet.kill(chosen, RANDOM) if chosen.order[1] else None)

    def _stop(self, chosen: Instance, fault: Fault) -> None:
        if fault.point == RANDOM:
            self._fleet.freeze(chosen, RANDOM)
        else:
            self._fleet.order(chosen, "stop", fault.point)
        self._await_stop(chosen, fault, time.monotonic() + UNREACHED_S)

    def _await_stop(self, chosen: Instance, fault: Fault, deadline: float) -> None:
        if not chosen.alive:
            return
        if chosen.frozen:
            if fault.rival:
                self.later(0.2, lambda: self._rival(chosen))
            self.later(fault.wait_s, lambda: self._fleet.thaw(chosen))
        elif time.monotonic() > deadline:
            self._fleet.freeze(chosen, RANDOM)
            self.later(0, lambda: self._await_stop(chosen, fault, deadline))
        else:
            self.later(0.05, lambda: self._await_stop(chosen, fault, deadline))

    def _rival(self, chosen: Instance) -> None:
        if self._fleet.current.get(chosen.name) is chosen and chosen.alive:
            self._fleet.spawn(chosen.name)
            self.counts["rivals of a zombie"] += 1

    def _storm(self, fault: Fault, guests: int = GUESTS) -> None:
        """Instances come and go while others are at work."""
        self.counts["storms" if fault.kind is Kind.STORM else "guests for a hand-over"] += 1
        for at in range(guests):
            name = f"guest-{next(self._guests)}"
            self.later(at * 0.7, lambda name=name: self._arrive(name))  # type: ignore[misc]
            self.later(at * 0.7 + 3.0 + fault.wait_s, lambda name=name: self._leave(name))  # type: ignore[misc]

    def _arrive(self, name: str) -> None:
        self._fleet.spawn(name)

    def _leave(self, name: str) -> None:
        guest = self._fleet.current.get(name)
        if guest is not None and guest.alive:
            guest.leaving = True
            guest.process.terminate()

    # ---- brokers

    def _broker(self, fault: Fault) -> None:
        if not self._brokers.up:
            self.later(1.0, lambda: self._broker(fault))
            return
        partition = int(fault.pick * len(self._follower.next))
        first = self._brokers.leader(self._settings.topic(Topic.LIFECYCLE), partition)
        nodes = [first, (first + 1) % len(self._brokers.nodes)][: 2 if fault.kind is Kind.TWO_BROKERS else 1]
        began = time.monotonic()
        for node in nodes:
            self._brokers.nodes[node].kill()
        self.counts["two of three brokers down" if len(nodes) > 1 else "broker kills"] += 1
        if len(self._brokers.nodes) > 1 and len(nodes) == 1:
            self._expect("leader", began, began + ELECTION_S)
        wait_s = fault.wait_s + (TWO_AWAY_S if len(nodes) > 1 else 0)
        for node in nodes:
            self.later(wait_s, lambda node=node: self._brokers.start_again(node))  # type: ignore[misc]
        self.later(wait_s + 0.1, lambda: self._back(nodes, began))

    def _back(self, nodes: list[int], began: float) -> None:
        if self._brokers.failures:
            raise self._brokers.failures[0]
        if not all(self._brokers.is_up(node) for node in nodes):
            self.later(0.1, lambda: self._back(nodes, began))
            return
        now = time.monotonic()
        self.away.append((began, now))
        self.counts["broker restarts"] += len(nodes)
        if len(nodes) > 1 or len(self._brokers.nodes) == 1:
            self._expect("broker", now, now)  # from the moment it answers: how long it was away is the plan's

    def _expect(self, cause: str, began: float, not_before: float) -> None:
        for partition in self._follower.next:
            self._follower.expect(Recovery(cause, partition, began, not_before))
