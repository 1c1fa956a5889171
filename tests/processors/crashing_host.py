"""A host process that kills itself at a named point of a chosen transaction; without a point it works until SIGTERM."""

import os
import signal
import sys
import threading

from confluent_kafka import TopicPartition

from rollbook.infra.settings import Settings
from rollbook.processors.host import batch, loop
from rollbook.processors.host.transaction import Transactions
from rollbook.tests.processors.hosting import SESSION_TIMEOUT_MS

FEW = 100
KILL_AT = ""
LEFT = 0


class CrashingTransactions(Transactions):
    """Counts transactions and dies in one of them: produced (nothing sent), offsets (not committed), committed."""

    def send_offsets(self, offsets: list[TopicPartition], group_metadata: object) -> None:
        self._producer.flush(10)  # the records are on the broker, their transaction is open
        _die_at("produced")
        super().send_offsets(offsets, group_metadata)
        _die_at("offsets")

    def commit(self) -> None:
        global LEFT
        super().commit()
        _die_at("committed")
        LEFT -= 1


def _die_at(point: str) -> None:
    if point == KILL_AT and LEFT <= 0:
        os.kill(os.getpid(), signal.SIGKILL)


def main() -> None:
    """Arguments: bootstrap servers, topic prefix, name, point, transaction."""
    global KILL_AT, LEFT
    bootstrap, prefix, name, KILL_AT, kill_after = sys.argv[1:]
    LEFT = int(kill_after)
    stop = threading.Event()
    signal.signal(signal.SIGTERM, lambda *_: stop.set())
    setattr(loop, "Transactions", CrashingTransactions)  # noqa: B010  not a name that the module offers
    setattr(batch, "MAX_RECORDS", FEW)  # noqa: B010  so that there are several transactions, however quick the fold is
    loop.Host(Settings(bootstrap, prefix), name, SESSION_TIMEOUT_MS).run(stop)


if __name__ == "__main__":
    main()
