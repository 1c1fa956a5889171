"""The simulated broker: topics, one group, the transaction coordinator, and the way requests take to it."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import TypeVar

from confluent_kafka import KafkaError, KafkaException

from rollbook.infra.settings import Settings, Topic
from rollbook.tests.simulation import errors
from rollbook.tests.simulation.coordinator import Coordinator
from rollbook.tests.simulation.errors import Again
from rollbook.tests.simulation.faults import Fate, Faults
from rollbook.tests.simulation.group import Group
from rollbook.tests.simulation.log import PartitionLog, Place
from rollbook.tests.simulation.scheduler import Scheduler

T = TypeVar("T")
STUCK_S = 15.0


class Stuck(Exception):
    """A call of librdkafka that does not come back."""


@dataclass(slots=True)
class _Late:
    """A request that is under way for long."""

    who: str
    owner: str
    what: str
    request: Callable[[], object]


class Broker:
    """One node with the six topics."""

    def __init__(self, settings: Settings, partitions: int, scheduler: Scheduler, faults: Faults) -> None:
        self.scheduler = scheduler
        self.faults = faults
        self.partitions = partitions
        self.lifecycle = settings.topic(Topic.LIFECYCLE)
        self.ledger = settings.topic(Topic.LEDGER)
        self.logs: dict[Place, PartitionLog] = {
            (settings.topic(topic), partition): PartitionLog(settings.topic(topic), partition)
            for topic in Topic
            for partition in range(partitions)
        }
        self.group = Group(scheduler, partitions)
        self.coordinator = Coordinator(scheduler, self.logs, self.group, faults.pause, faults.lost_markers)
        self.down_until = 0.0
        self.unanswered = 0
        self.landed_late: Callable[[str], None] = lambda _: None
        self.append_lifecycle: Callable[[int, bytes | None, bytes | None], None] = self.append

    def append(self, partition: int, key: bytes | None, value: bytes | None) -> None:
        """A record of a client on the lifecycle topic."""
        self.logs[self.lifecycle, partition].append(key, value, self.now_ms)

    @property
    def now_ms(self) -> int:
        """LogAppendTime."""
        return int(self.scheduler.now * 1000)

    @property
    def up(self) -> bool:
        """Whether it answers."""
        return self.scheduler.now >= self.down_until

    def stop_for(self, seconds: float) -> None:
        """It is away for a while; sessions begin anew when it is back."""
        self.down_until = self.scheduler.now + seconds
        self.scheduler.later(seconds, self.group.restart)

    def tick(self) -> None:
        """What it does by itself."""
        if self.up:
            self.coordinator.tick()
            self.group.tick()

    # ---- requests

    def ask(self, who: str, what: str, timeout_s: float, request: Callable[[], T]) -> T:
        """A question, which changes nothing."""
        self.scheduler.step()
        fate = self.faults.fate_of_question()
        self.scheduler.say(who, what if fate is Fate.FINE else f"{what}: {fate}")
        if fate is Fate.RETRIABLE:
            raise errors.retriable(what)
        if fate is not Fate.FINE:
            self._suffer(timeout_s)
            raise errors.timed_out(what)
        return self._answered(what, self.scheduler.now + timeout_s, request)

    def insist(self, who: str, what: str, timeout_s: float, request: Callable[[], T]) -> T:
        """A request that librdkafka repeats when no answer comes, whether or not it had landed."""
        self.scheduler.step()
        self.scheduler.say(who, what)
        deadline = self.scheduler.now + timeout_s
        answer = self._answered(what, deadline, request)
        self.scheduler.step()
        while self.faults.strikes(f"{what.split()[0]} repeated", self.faults.profile.reply_lost):
            self.scheduler.wait(1.0)
            answer = self._answered(what, deadline, request)
        return answer

    def command(self, who: str, owner: str, what: str, timeout_s: float, request: Callable[[], T]) -> T:
        """A request of a transactional producer. After a time-out it may have landed, or may yet."""
        self.scheduler.step()
        deadline = self.scheduler.now + timeout_s
        fate = self.faults.fate(what.split()[0])
        self.scheduler.say(who, what if fate is Fate.FINE else f"{what}: {fate}")
        if fate is Fate.RETRIABLE:
            raise errors.retriable(what)
        if fate is Fate.ABORTABLE:
            raise errors.abortable(KafkaError._MSG_TIMED_OUT, f"{what}: a message could not be delivered")
        if fate is Fate.LATE:
            self._send_late(_Late(who, owner, what, request), timeout_s)
        elif fate is not Fate.LOST:
            answer = self._answered(what, deadline, request)
            self.scheduler.step()  # it landed, and the process can die before it knows
            if fate is not Fate.REPLY_LOST:
                return answer
        if self.faults.strikes("stuck calls", self.faults.profile.stuck):
            self.scheduler.say(who, f"{what}: stuck")
            self._suffer(timeout_s + STUCK_S)
            raise Stuck(what)
        self._suffer(deadline - self.scheduler.now)
        raise errors.timed_out(what)

    def _suffer(self, seconds: float) -> None:
        """Wait for an answer that does not come."""
        self.unanswered += 1
        try:
            self.scheduler.wait(seconds)
        finally:
            self.unanswered -= 1

    def _answered(self, what: str, deadline: float, request: Callable[[], T]) -> T:
        """As librdkafka does: again and again until the broker is there and ready."""
        while True:
            if self.up:
                try:
                    return request()
                except Again:
                    pass
            if self.scheduler.now >= deadline:
                raise errors.timed_out(what)
            self.scheduler.wait(
                min(0.02, deadline - self.scheduler.now) if self.up else deadline - self.scheduler.now, self._is_up
            )

    def _is_up(self) -> bool:
        return self.up and self.scheduler.random.random() < 0.3

    def _send_late(self, late: "_Late", timeout_s: float) -> None:
        """It arrives around the time-out, or at the worst moment after it: in the next transaction of that id."""
        if self.scheduler.random.random() < 0.5:
            self.scheduler.later(1.5 * timeout_s * self.scheduler.random.random(), lambda: self._arrive(late))
        else:
            self.coordinator.awaited.setdefault(late.owner, []).append(lambda: self._arrive(late))

    def _arrive(self, late: "_Late") -> None:
        try:
            late.request()
        except (Again, KafkaException) as refused:
            self.scheduler.say("broker", f"late {late.what} of {late.who} refused: {type(refused).__name__}")
            self.faults.counts["late requests refused"] += 1
        else:
            self.scheduler.say("broker", f"late {late.what} of {late.who} landed")
            self.faults.counts["late requests that landed"] += 1
            self.landed_late(late.who)
