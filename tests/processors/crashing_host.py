"""A host process that kills itself at a named point of a chosen transaction; without a point it works until SIGTERM."""

import os
import signal
import sys
import threading

from rollbook.infra.settings import Settings
from rollbook.processors.host.batch import Batch
from rollbook.processors.host.loop import Host
from rollbook.tests.processors.hosting import SESSION_TIMEOUT_MS


class CrashingHost(Host):
    """Counts transactions and dies in one of them."""

    def __init__(self, settings: Settings, name: str, kill_at: str, kill_after: int) -> None:
        super().__init__(settings, name, SESSION_TIMEOUT_MS)
        self._kill_at = kill_at
        self._left = kill_after
        self._calls = 0

    def _die_at(self, point: str) -> None:
        if point == self._kill_at and self._left <= 0:
            os.kill(os.getpid(), signal.SIGKILL)

    def _write(self, batch: Batch) -> None:
        super()._write(batch)
        self._producer.flush(10)  # the records are on the broker, their transaction is open
        self._calls = 0
        self._die_at("produced")

    def _repeat(self, call: object) -> None:
        super()._repeat(call)  # type: ignore[arg-type]
        self._calls += 1
        self._die_at("offsets" if self._calls == 1 else "committed")
        if self._calls == 2:
            self._left -= 1


def main() -> None:
    """Arguments: bootstrap servers, topic prefix, name, point, transaction."""
    bootstrap, prefix, name, kill_at, kill_after = sys.argv[1:]
    stop = threading.Event()
    signal.signal(signal.SIGTERM, lambda *_: stop.set())
    CrashingHost(Settings(bootstrap, prefix), name, kill_at, int(kill_after)).run(stop)


if __name__ == "__main__":
    main()
