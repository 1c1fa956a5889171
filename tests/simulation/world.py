"""One seed: hosts, clients and faults on a simulated broker, until all is decided; then the invariants."""

import logging
import random
import threading
from collections import Counter
from dataclasses import dataclass, field, replace

from rollbook.infra.settings import Settings, Topic
from rollbook.processors.host import loop, watch
from rollbook.processors.host.errors import Fenced, HostStopped
from rollbook.processors.host.loop import Host
from rollbook.tests.simulation import invariants
from rollbook.tests.simulation.broker import Broker
from rollbook.tests.simulation.faults import CALM, Faults, draw
from rollbook.tests.simulation.invariants import Violation
from rollbook.tests.simulation.kafka import SimClock, SimKafka
from rollbook.tests.simulation.scheduler import Crash, Endless, Process, Scheduler
from rollbook.tests.simulation.workload import Source, Workload

SETTINGS = Settings("simulated:1", "s.")
PARTITIONS = 2
SESSION_MS = 1_500
MOST_STEPS = 60_000
HEAL_S = 180.0
FORGETFUL_HEAL_S = 900.0
"""Of a broker that goes on losing markers: a group's offset is waited for twenty seconds each time."""

"""Simulated seconds after the last fault within which all must be decided."""

_EXPECTED_STOPS = ("cannot be had", "stopped before")
"""What a host may say when it gives up: no transactional id while the broker is away, or a record that is too new."""

_WATCHED = {
    watch.Restored: "restores",
    watch.Committed: "commits",
    watch.Aborted: "aborts",
    watch.OutcomeLost: "outcomes unknown",
}


@dataclass(eq=False)
class Instance:
    """A process of a host, as its supervisor sees it."""

    name: str
    process: Process
    kafka: SimKafka
    stop: threading.Event
    number: int


@dataclass
class World:
    """Everything of one seed."""

    seed: int
    trace: list[str] | None = None
    counts: Counter[str] = field(default_factory=Counter)

    def __post_init__(self) -> None:
        self._random = random.Random(f"world {self.seed}")
        self._scheduler = Scheduler(self.seed, MOST_STEPS, self.trace)
        self._faults = Faults(random.Random(f"faults {self.seed}"), draw(self._random))
        self._faults.counts = self.counts
        self._broker = Broker(SETTINGS, PARTITIONS, self._scheduler, self._faults)
        self._sources = [Source(partition, PARTITIONS, self._broker.append) for partition in range(PARTITIONS)]
        self._broker.append_lifecycle = lambda p, key, value: void(self._sources[p].append(key, value))
        self._broker.landed_late = self._strike
        newer = self._random.random() < 0.1
        acts = self._random.choice((10, 25, 40))
        self._workload = Workload(self._random, self._sources, self._random.choice((1, 2, 3)), acts, newer=newer)
        self._wanted = self._random.choice((1, 1, 2, 3))
        self._instances: list[Instance] = []
        self._many_changes = self._random.choice((20_000, 20_000, 10))
        self._newest: dict[str, int] = {}
        self._due: list[float] = [self._scheduler.now] * self._wanted
        self._idle_until = 0.0
        self._ticked = self._scheduler.now
        self._healing: float | None = None
        self._said = f"{self._wanted} instances, {self._faults.profile}"

    def run(self) -> Counter[str]:
        """The whole seed; raises Violation."""
        self._scheduler.say("world", self._said)
        self._scheduler.tick = self._tick
        self._scheduler.before_call = self._before_call
        try:
            self._scheduler.run(self._settled)
            self._stop()
            while not self._settled():  # what a lease clerk wrote as its last act
                self._wanted = 1
                self._due.append(self._scheduler.now)
                self._scheduler.run(self._settled)
                self._stop()
            self.counts += invariants.check(SETTINGS, self._broker, self._sources)
        except Endless as endless:
            raise Violation(f"all should be decided by now: {endless}") from None
        finally:
            self._scheduler.bury()
        self.counts["records"] += sum(len(source.folded) for source in self._sources)
        self.counts["transactions timed out"] += self._broker.coordinator.expired
        self.counts["rebalances"] += self._broker.group.rebalances
        self.counts["sessions ended"] += self._broker.group.expired
        self.counts["steps"] += self._scheduler.steps
        return self.counts

    def _stop(self) -> None:
        """All hosts end as they do at SIGTERM."""
        for instance in self._instances:
            instance.stop.set()
        self._due = []
        self._wanted = 0
        self._healing = self._scheduler.now + self._heal_s
        self._scheduler.run(lambda: not self._scheduler.processes)

    @property
    def _heal_s(self) -> float:
        return FORGETFUL_HEAL_S if self._faults.profile.lost_markers else HEAL_S

    # ---- the world's own turns

    def _tick(self) -> None:
        now = self._scheduler.now
        passed, self._ticked = now - self._ticked, now
        self._broker.tick()
        for instance in list(self._instances):
            if instance.process.ended:
                self._bury(instance)
            elif instance.process.paused_until <= now and not instance.process.dying and self._random.random() < 0.5:
                instance.kafka.background()
        while self._due and self._due[0] <= now:
            self._due.pop(0)
            self._start(None)
        if self._healing is None:
            self._disturb(passed)
            self._write()
            if self._workload.done:
                self._heal()
        elif self._broker.unanswered:  # the last fault lasts
            self._healing = now + self._heal_s
        elif now > self._healing and self._wanted:
            raise Violation(f"not all was decided {self._heal_s:.0f} s after the last fault: {self._state()}")

    def _write(self) -> None:
        if self._scheduler.now >= self._idle_until and not self._workload.done:
            self._workload.act()
            if self._random.random() < 0.3:
                self._idle_until = self._scheduler.now + self._random.random() ** 3 * 4

    def _disturb(self, passed: float) -> None:
        profile, faults, source = self._faults.profile, self._faults, self._random
        alive = [one for one in self._instances if not one.process.ended and not one.process.dying]
        if alive:
            if faults.strikes("crashes", profile.crash * passed):
                self._kill(source.choice(alive))
            if faults.strikes("pauses", profile.pause * passed):
                victim = source.choice(alive)
                victim.process.paused_until = self._scheduler.now + source.choice((0.5, 2.0, 4.0, 10.0))
                self._scheduler.say(victim.process.name, f"paused until {victim.process.paused_until - 1000:.3f}")
            if faults.strikes("clones", profile.clone * passed):
                self._start(source.choice(alive).name)
        if faults.strikes("outages", profile.outage * passed):
            self._scheduler.say("broker", "away")
            self._broker.stop_for(source.choice((0.2, 1.0, 4.0, 12.0)))
        if faults.strikes("time jumps", profile.jump * passed):
            self._scheduler.now += source.choice((1.0, 5.0, 60.0))
            self._scheduler.say("world", "time jumps")
        if alive and faults.strikes("comings and goings", profile.crowd * passed):
            if len(alive) > self._wanted:
                source.choice(alive).stop.set()
            elif len(self._instances) < 4:
                self._start(None)
        if faults.strikes("group offsets forgotten", profile.forget * passed):
            self._broker.group.forget()
        if source.random() < 0.05:
            for partition in range(PARTITIONS):
                self.counts["records compacted away"] += self._broker.logs[self._broker.ledger, partition].compact()

    def _before_call(self, process: Process) -> None:
        if self._healing is None and self._faults.strikes("crashes in a call", self._faults.profile.crash_in_call):
            self._scheduler.say(process.name, "dies")
            process.kill()
            raise Crash
        chance = self._faults.profile.pause_in_call
        if self._in_transaction(process) and self._faults.strikes("pauses in a transaction", chance):
            process.paused_until = self._scheduler.now + 1.5 + 1.6 * self._random.random()
            self._scheduler.say(process.name, f"paused until {process.paused_until - 1000:.3f}")

    def _in_transaction(self, process: Process) -> bool:
        return any(one.process is process and one.kafka.in_transaction for one in self._instances)

    def _strike(self, name: str) -> None:
        """A late request landed: what it did harm to shows when its sender dies before it can mend it."""
        for instance in self._instances:
            if instance.process.name == name and self._healing is None and self._random.random() < 0.7:
                self._kill(instance)

    def _kill(self, instance: Instance) -> None:
        self._scheduler.say(instance.process.name, "killed")
        instance.process.kill()

    def _heal(self) -> None:
        """No more faults, but for a broker that is forgetful: now all must be decided."""
        self._healing = self._scheduler.now + self._heal_s
        self._faults.profile = replace(CALM, lost_markers=self._faults.profile.lost_markers)
        self._broker.down_until = 0.0
        for instance in self._instances:
            instance.process.paused_until = 0.0
        self._scheduler.say("world", "no more faults")

    def _settled(self) -> bool:
        """Whether every record is decided, and nothing that was committed is hidden."""
        if self._healing is None or not self._broker.coordinator.quiet:
            return False
        read = [log for (topic, _), log in self._broker.logs.items() if topic != SETTINGS.topic(Topic.DEAD_LETTERS)]
        return all(self._decided(source) == len(source.folded) for source in self._sources) and all(
            not log.hides for log in read
        )

    def _decided(self, source: Source) -> int:
        return sum(1 for _ in self._broker.logs[SETTINGS.topic(Topic.DECISIONS), source.partition].visible(0))

    def _state(self) -> str:
        return ", ".join(f"partition {s.partition}: {self._decided(s)} of {len(s.folded)}" for s in self._sources)

    # ---- the supervisor

    def _start(self, name: str | None) -> None:
        """A host, mostly under a name that nobody has now."""
        taken = {one.name for one in self._instances}
        chosen = name or self._random.choice([n for n in ("p0", "p1", "p2", "p3") if n not in taken] or ["p0"])
        stop = threading.Event()
        number = self.counts["processes"] = self.counts["processes"] + 1
        process = self._scheduler.spawn(f"{chosen}#{number}", lambda process: self._live(process, chosen, stop))
        self._instances.append(Instance(chosen, process, SimKafka(self._broker, process), stop, number))
        self._newest[chosen] = number
        self._scheduler.say(process.name, "started")

    def _live(self, process: Process, name: str, stop: threading.Event) -> None:
        instance = next(one for one in self._instances if one.process is process)
        slow = self._faults.profile.slow
        clock = SimClock(self._scheduler, lambda: self._slow(slow))
        loop.MANY_CHANGES = self._many_changes
        Host(SETTINGS, name, SESSION_MS, kafka=instance.kafka, clock=clock, watches=(self._note,)).run(stop)

    def _note(self, event: watch.Event) -> None:
        counted = _WATCHED.get(type(event))
        if counted is not None:
            self.counts[counted] += 1

    def _slow(self, chance: float) -> float:
        if self._healing is None and chance and self._random.random() < chance:
            return self._random.choice((0.01, 0.06, 0.06, 4.0))
        return 0.0

    def _bury(self, instance: Instance) -> None:
        """It ended: judge how, and start another when too few are left."""
        self._instances.remove(instance)
        failure = instance.process.failure
        self._scheduler.say(instance.process.name, f"ended: {failure!r}")
        if isinstance(failure, Fenced):
            self.counts["fenced"] += 1
            self._judge_fence(instance)
        elif isinstance(failure, HostStopped):
            self.counts["stopped: " + str(failure).split(":")[0][:40]] += 1
            if not any(text in str(failure) for text in _EXPECTED_STOPS) and not self._is_overtaken(instance):
                raise Violation(f"a host stopped: {failure}") from failure
        elif failure is not None and not isinstance(failure, Crash):
            raise Violation(f"a host failed: {failure!r}") from failure
        if len(self._instances) + len(self._due) < self._wanted:
            self._due.append(self._scheduler.now + self._random.choice((0.0, 0.1, 1.0, 3.0)))
            self._due.sort()

    def _is_overtaken(self, instance: Instance) -> bool:
        """A zombie compares what does not belong together, the offset of then with the ledger of now; or an older
        process of the name has taken the id back, and its transaction is open."""
        taken_back = self._broker.coordinator.is_open(f"{SETTINGS.topic_prefix}{instance.name}")
        return instance.number != self._newest[instance.name] or not instance.kafka.is_member or taken_back

    def _judge_fence(self, instance: Instance) -> None:
        """Nobody is fenced without a rival: a process of its name, or a successor that ended its transaction. The
        group fences also who has given up its membership by itself."""
        rivals = self._broker.coordinator.takers.get(f"{SETTINGS.topic_prefix}{instance.name}", set())
        newest = instance.number == self._newest[instance.name]
        if newest and not rivals - {instance.process.name} and instance.kafka.is_member:
            raise Violation(f"{instance.process.name} was fenced, and has no rival")


def void(_: object) -> None:
    """Drop a value."""


def simulate(seed: int, trace: list[str] | None = None) -> Counter[str]:
    """One seed. Raises Violation; the trace is what happened up to there."""
    logger = logging.getLogger("rollbook.processor")
    level = logger.level
    logger.setLevel(logging.CRITICAL)
    try:
        return World(seed, trace).run()
    finally:
        logger.setLevel(level)
