"""The simulated producers: the transactional one of the host, the plain one of the lease clerk."""

from collections import deque
from typing import Any

from confluent_kafka import KafkaError, KafkaException, TopicPartition

from rollbook.tests.simulation import errors
from rollbook.tests.simulation.broker import Broker
from rollbook.tests.simulation.errors import Again
from rollbook.tests.simulation.log import Headers, Place
from rollbook.tests.simulation.scheduler import Crash, Process

INIT_TIMEOUT_S = 30.0
Queued = tuple[Place, bytes | None, bytes | None, int, Headers]


class SimProducer:
    """Speaks as `confluent_kafka.Producer` with a transactional id does. What is produced waits in a queue, which
    drains in the background and is flushed by a commit."""

    def __init__(self, broker: Broker, process: Process, name: str, timeout_ms: int) -> None:
        self._broker = broker
        self._process = process
        self._name = name
        self._timeout_s = timeout_ms / 1000
        self._epoch = -1
        self._queue: deque[Queued] = deque()
        self._state = "new"
        self._registered = False
        self._failure: KafkaException | None = None

    def init_transactions(self, timeout: float = INIT_TIMEOUT_S) -> None:
        self._epoch = self._broker.insist(
            self._process.name,
            f"init_transactions {self._name}",
            timeout,
            lambda: self._broker.coordinator.init(self._name, self._timeout_s),
        )
        self._state = "ready"

    @property
    def is_open(self) -> bool:
        """Whether a transaction is under way."""
        return self._state in ("open", "committing")

    def begin_transaction(self) -> None:
        self._broker.scheduler.step()
        self._check()
        if self._state != "ready":
            raise errors.state(f"begin_transaction in state {self._state}")
        self._state = "open"
        self._registered = False
        self._broker.scheduler.say(self._process.name, "begin_transaction")

    def produce(
        self,
        topic: str,
        value: bytes | None,
        key: bytes | None = None,
        partition: int = 0,
        timestamp: int = 0,
        headers: list[tuple[str, str]] | None = None,
    ) -> None:
        scheduler = self._broker.scheduler
        if self._process.dying:
            raise Crash
        if self._broker.faults.strikes("full queues", self._broker.faults.profile.full):
            raise BufferError
        self._check()
        if self._state != "open":
            raise errors.state(f"produce in state {self._state}")
        sent = tuple((name, text.encode()) for name, text in headers or ())
        self._queue.append(((topic, partition), key, value, timestamp or self._broker.now_ms, sent))
        if scheduler.random.random() < 0.1:
            scheduler.step()

    def poll(self, timeout: float = 0.0) -> int:
        self._broker.scheduler.wait(timeout)
        return 0

    def send_offsets_to_transaction(self, offsets: list[TopicPartition], metadata: Any, timeout: float = 10.0) -> None:
        self._must_be("open", "send_offsets_to_transaction")
        told = {int(place.partition): int(place.offset) for place in offsets}

        def request() -> None:
            self._broker.coordinator.take_part(self._name, self._epoch)
            self._registered = True  # also when the group refuses the offsets
            self._broker.coordinator.offsets(self._name, self._epoch, told, metadata)

        self._command(f"send_offsets {told}", timeout, request)

    def commit_transaction(self, timeout: float = 10.0) -> None:
        self._must_be("open", "commit_transaction", "committing")
        self._state = "committing"
        if self.flush(timeout):
            raise errors.timed_out("flush before commit_transaction")
        self._end("commit_transaction", timeout, commit=True)

    def flush(self, timeout: float = 10.0) -> int:
        deadline = self._broker.scheduler.now + timeout
        while self._queue and self._broker.scheduler.now < deadline:
            self._broker.scheduler.step()
            self._check()
            self.background()
        return len(self._queue)

    def abort_transaction(self, timeout: float = 10.0) -> None:
        if self._failure is not None and self._failure.args[0].txn_requires_abort():
            self._failure = None
            self._state = "failed"
        self._must_be("open", "abort_transaction", "failed", "aborting")
        self._state = "aborting"
        self._queue.clear()
        self._end("abort_transaction", timeout, commit=False)

    def background(self) -> None:
        """Some of the queue goes to the broker."""
        if not self._queue or not self._broker.up or self._failure is not None:
            return
        count = 1 + int(self._broker.scheduler.random.random() * len(self._queue))
        try:
            for _ in range(count):
                self._broker.coordinator.write(self._name, self._epoch, *self._queue[0])
                self._queue.popleft()
                self._registered = True
        except Again:
            pass
        except KafkaException as failure:
            self._broker.scheduler.say(self._process.name, f"produce refused: {failure}")
            self._failure = failure

    def _end(self, what: str, timeout: float, *, commit: bool) -> None:
        if self._registered:
            self._command(what, timeout, lambda: self._broker.coordinator.end(self._name, self._epoch, commit=commit))
        else:
            self._broker.scheduler.say(self._process.name, f"{what}: nothing to end")
            self._broker.scheduler.step()
        self._state = "ready"

    def _command(self, what: str, timeout: float, request: Any) -> None:
        try:
            self._broker.command(self._process.name, self._name, what, timeout, request)
        except KafkaException as failure:
            fault: KafkaError = failure.args[0]
            if fault.fatal() or fault.txn_requires_abort():
                self._failure = failure
            raise

    def _must_be(self, *states: str) -> None:
        self._check()
        open_state, what, *others = states
        if self._state not in (open_state, *others):
            raise errors.state(f"{what} in state {self._state}")

    def _check(self) -> None:
        if self._failure is not None:
            raise self._failure


class SimPlainProducer:
    """The lease clerk's: its records arrive now or a little later, or with the process not at all."""

    def __init__(self, broker: Broker, process: Process) -> None:
        self._broker = broker
        self._process = process
        self._queue: deque[tuple[int, bytes | None, bytes]] = deque()

    def produce(self, topic: str, value: bytes, key: bytes | None = None, partition: int = 0) -> None:
        assert topic == self._broker.lifecycle, "the clerk writes nowhere else"
        self._broker.scheduler.say(self._process.name, f"lease clerk writes to partition {partition}")
        self._queue.append((partition, key, value))

    def poll(self, timeout: float = 0.0) -> int:
        if self._queue:
            self._broker.scheduler.step()
        return 0

    def flush(self, timeout: float = 0.0) -> int:
        self._broker.scheduler.step()
        self.background()
        return len(self._queue)

    def background(self) -> None:
        """Some of the queue goes to the broker, in order."""
        if self._queue and self._broker.up:
            self._broker.faults.counts["lease expiries written"] += 1
            self._broker.append_lifecycle(*self._queue.popleft())
