"""Keeps the books of a training that must neither wait nor fail: its calls are made in a thread, in their order."""

import logging
import queue
import threading
import time
from collections.abc import Callable
from typing import Generic, TypeVar

from rollbook.producers.trl.clients import Clients
from rollbook.schemas.errors import EnvironmentFault, RollbookError

_RETRY_S = 1.0
_MAX_WAITING = 256
_LOG = logging.getLogger("rollbook.producers")
B = TypeVar("B", bound=Clients)


class Watcher(Generic[B]):
    """Opens the books as soon as the broker answers. One call that fails ends the recording, with one warning: what
    comes after it would be told of an update that the ledger knows half of."""

    def __init__(self, books: B) -> None:
        self._books = books
        self._queue: queue.Queue[Callable[[B], object] | None] = queue.Queue(_MAX_WAITING)
        self._closing = threading.Event()
        self._failed = False
        self._lost = 0
        self._thread = threading.Thread(target=self._serve, name="rollbook-trl", daemon=True)
        self._thread.start()

    @property
    def lost(self) -> int:
        """Calls that were not told to the ledger."""
        return self._lost

    def tell(self, call: Callable[[B], object]) -> None:
        """Have the thread make the call in its turn."""
        try:
            if not self._failed:
                self._queue.put_nowait(call)
                return
        except queue.Full:
            self._fail(EnvironmentFault(f"{_MAX_WAITING} calls wait for the broker: nothing more is recorded"))
        self._lost += 1

    def close(self, deadline_s: float) -> None:
        """Give what waits so long to arrive."""
        self._closing.set()
        try:
            self._queue.put(None, timeout=deadline_s)
            self._thread.join(deadline_s)
        except queue.Full:
            pass
        if left := sum(call is not None for call in list(self._queue.queue)):
            self._lost += left
            _LOG.warning("%d calls of the training were not recorded when it ended", left)

    def _serve(self) -> None:
        if not self._open():
            return
        while (call := self._queue.get()) is not None:
            if self._failed:
                self._lost += 1
                continue
            try:
                call(self._books)
            except Exception as error:  # whatever it is: the training goes on
                self._lost += 1
                self._fail(error)
        try:
            self._books.close()
        except RollbookError as error:
            self._fail(error)

    def _open(self) -> bool:
        started = time.monotonic()
        while True:
            try:
                self._books.open()
                return True
            except EnvironmentFault as fault:
                _LOG.warning("training goes on unrecorded since %.0f s: %s", time.monotonic() - started, fault)
            except Exception as error:
                self._fail(error)
                return False
            if self._closing.wait(_RETRY_S):
                return False

    def _fail(self, error: Exception) -> None:
        if not self._failed:
            self._failed = True
            text = error if isinstance(error, RollbookError) else f"{type(error).__name__}: {error}"
            _LOG.warning("training goes on unrecorded from here on: %s", text)
