"""What all that follow a topic in a thread of their own have in common: a consumer, its process, an orderly end."""

import threading
from types import TracebackType
from typing import Self

from rollbook.infra.settings import Settings
from rollbook.producers.errors import ClientClosed
from rollbook.producers.reading.reader import committed_consumer
from rollbook.producers.sending.process import Ownership


class Follower:
    """A context manager. `_serve` reads until `_stopping` is set; `_begin` starts it, once all that it needs is there.

    `name` is what a forked child is told it must not use, `gone` what is said after the end.
    """

    def __init__(self, settings: Settings, name: str, *, gone: str) -> None:
        self._ownership = Ownership(name)
        self._gone = gone
        self._stopping = threading.Event()
        self._thread: threading.Thread | None = None
        self._consumer = committed_consumer(settings)
        self._ownership.keep(self._consumer)

    def close(self) -> None:
        """End the reading. Once is enough; in a forked child it is the owner's to do."""
        if self._stopping.is_set() or self._ownership.inherited:
            return
        self._stopping.set()
        if self._thread is not None:
            self._thread.join()
        self._consumer.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def _begin(self, thread: str) -> None:
        self._thread = threading.Thread(target=self._serve, name=thread, daemon=True)
        self._thread.start()

    def _serve(self) -> None:
        raise NotImplementedError

    def _check(self) -> None:
        self._ownership.check()
        if self._stopping.is_set():
            raise ClientClosed(self._gone)
