"""What the host needs of Kafka: clients, and a way to make calls that may not come back.

It sees nothing else of the cluster, so that the same loop runs on a real one and in a simulation.
"""

import queue
import threading
from collections.abc import Callable
from typing import Any, Protocol

from rollbook.infra.settings import Settings
from rollbook.processors.host import clients


class Caller(Protocol):
    """Makes one call at a time; `busy` while one has not come back."""

    busy: bool

    def run(self, call: Callable[[], object], seconds: float) -> None:
        """Make the call and raise what it raises; TimeoutError when it does not come back in time."""


class Kafka(Protocol):
    """Makes the clients, which speak as those of confluent-kafka do."""

    def producer(self, name: str, timeout_ms: int) -> Any:
        """A producer that owns the transactional id: whoever held it before is fenced, its open transaction ended."""

    def consumer(self, name: str, session_timeout_ms: int) -> Any:
        """The consumer of the lifecycle topic, a static member of the group."""

    def reader(self, *, committed: bool = True) -> Any:
        """A consumer without a group, of partitions that it is told."""

    def asker(self, *, committed: bool) -> Any:
        """A consumer that is only asked for offsets, kept from one question to the next."""

    def plain_producer(self) -> Any:
        """A producer without transactions, for the lease clerk."""

    def caller(self) -> Caller:
        """A new caller."""


class Cluster:
    """A real one."""

    def __init__(self, settings: Settings) -> None:
        self._settings = settings
        self._askers: dict[bool, Any] = {}

    def producer(self, name: str, timeout_ms: int) -> Any:
        return clients.transactional_producer(self._settings, name, timeout_ms)

    def consumer(self, name: str, session_timeout_ms: int) -> Any:
        return clients.group_consumer(self._settings, name, session_timeout_ms)

    def reader(self, *, committed: bool = True) -> Any:
        return clients.reader(self._settings, committed=committed)

    def asker(self, *, committed: bool) -> Any:
        if committed not in self._askers:
            self._askers[committed] = self.reader(committed=committed)
        return self._askers[committed]

    def plain_producer(self) -> Any:
        return clients.clerk_producer(self._settings)

    def caller(self) -> Caller:
        return ThreadCaller()


class ThreadCaller:
    """Runs one call at a time in a daemon thread; a call that does not come back keeps the thread, and its producer."""

    def __init__(self) -> None:
        self.busy = False
        self._calls: queue.SimpleQueue[Callable[[], object]] = queue.SimpleQueue()
        self._results: queue.SimpleQueue[BaseException | None] = queue.SimpleQueue()
        threading.Thread(target=self._work, name="transactions", daemon=True).start()

    def run(self, call: Callable[[], object], seconds: float) -> None:
        self.busy = True
        self._calls.put(call)
        try:
            failure = self._results.get(timeout=seconds)
        except queue.Empty:
            raise TimeoutError(f"a call did not come back within {seconds:.0f} s") from None
        self.busy = False
        if failure is not None:
            raise failure

    def _work(self) -> None:
        while True:
            call = self._calls.get()
            try:
                call()
            except BaseException as failure:
                self._results.put(failure)
            else:
                self._results.put(None)
            del call  # or this thread would keep a producer alive that nobody uses any more
