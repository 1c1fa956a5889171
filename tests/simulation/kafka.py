"""The host's two ports, on the simulated broker: clients of one process, and its clock."""

from collections.abc import Callable
from typing import Any

from confluent_kafka import KafkaException

from rollbook.processors.host.errors import HostStopped
from rollbook.processors.host.kafka import Caller
from rollbook.tests.simulation.broker import Broker, Stuck
from rollbook.tests.simulation.consumer import SimConsumer
from rollbook.tests.simulation.fetch import SimReader
from rollbook.tests.simulation.producer import INIT_TIMEOUT_S, SimPlainProducer, SimProducer
from rollbook.tests.simulation.scheduler import Process, Scheduler


class SimKafka:
    """Makes clients for one process, and lets them work in the background while the process lives."""

    def __init__(self, broker: Broker, process: Process) -> None:
        self._broker = broker
        self._process = process
        self._clients: list[SimProducer | SimPlainProducer | SimConsumer] = []

    def producer(self, name: str, timeout_ms: int) -> Any:
        self._broker.coordinator.takers.setdefault(name, set()).add(self._process.name)
        made = SimProducer(self._broker, self._process, name, timeout_ms)
        try:
            made.init_transactions(INIT_TIMEOUT_S)
        except (KafkaException, Stuck) as error:
            raise HostStopped(f"transactional id {name} cannot be had ({error})") from None
        self._clients = [one for one in self._clients if not isinstance(one, SimProducer)]
        self._clients.append(made)
        return made

    def consumer(self, name: str, session_timeout_ms: int) -> Any:
        made = SimConsumer(self._broker, self._process, name, session_timeout_ms)
        self._clients.append(made)
        return made

    def reader(self, *, committed: bool = True) -> Any:
        return SimReader(self._broker, self._process, committed=committed)

    def asker(self, *, committed: bool) -> Any:
        return self.reader(committed=committed)

    def plain_producer(self) -> Any:
        made = SimPlainProducer(self._broker, self._process)
        self._clients.append(made)
        return made

    def caller(self) -> Caller:
        return SimCaller()

    @property
    def in_transaction(self) -> bool:
        """Whether this process has something to lose."""
        return any(isinstance(one, SimProducer) and one.is_open for one in self._clients)

    @property
    def is_member(self) -> bool:
        """Whether the group knows this process."""
        return any(isinstance(one, SimConsumer) and one.is_member for one in self._clients)

    def background(self) -> None:
        """What the clients do without being called."""
        for one in self._clients:
            one.background()


class SimCaller:
    """Makes the call in place."""

    def __init__(self) -> None:
        self.busy = False

    def run(self, call: Callable[[], object], seconds: float) -> None:
        self.busy = True
        try:
            call()
        except Stuck:
            raise TimeoutError(f"a call did not come back within {seconds:.0f} s") from None
        except BaseException:
            self.busy = False
            raise
        self.busy = False


class SimClock:
    """The scheduler's time, which passes while the host works."""

    def __init__(self, scheduler: Scheduler, slow: Callable[[], float]) -> None:
        self._scheduler = scheduler
        self._slow = slow

    def monotonic(self) -> float:
        seconds = self._slow()
        if seconds:
            self._scheduler.wait(seconds)
        return self._scheduler.now

    def now_ms(self) -> int:
        return int(self._scheduler.now * 1000)

    def sleep(self, seconds: float) -> None:
        self._scheduler.wait(seconds)
