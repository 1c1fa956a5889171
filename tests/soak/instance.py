"""A processor instance that dies or stops at a named point when it is told to, and reports what happens to it.

    python -m rollbook.tests.soak.instance BOOTSTRAP PREFIX NAME SESSION_MS [ACT POINT]

Orders come as lines on stdin (`kill produced`, `stop offsets`), reports go as JSON lines to stdout.
"""

import contextlib
import ctypes
import json
import logging
import os
import random
import signal
import sys
import threading
import time
from typing import Any

from confluent_kafka import Consumer, TopicPartition

from rollbook.infra.settings import Settings
from rollbook.processors.host import loop, watch
from rollbook.processors.host.logs import LogFormat, configure
from rollbook.processors.host.loop import Host
from rollbook.processors.host.restore import Opening, Restored
from rollbook.processors.host.transaction import Transactions
from rollbook.schemas.errors import RollbookError

LOOP_POINTS = ("folded", "begun", "produced", "offsets", "committing", "committed")
"""Of a transaction: folded and not begun, begun and empty, records sent and no offsets, offsets sent and not
committed, the commit on its way, committed and not yet known to the ledger in memory."""

HANDOVER_POINTS = ("opening", "restored", "revoked")
"""Of a partition that comes or goes: before and after its restore, and before it is given back."""

_PDEATHSIG = 1


def say(event: str, **facts: object) -> None:
    """One report, written at once: the next statement may be the last one."""
    line = json.dumps({"event": event, "at": time.monotonic(), **facts}) + "\n"
    with contextlib.suppress(BrokenPipeError):
        os.write(1, line.encode())


class Order:
    """What to do at which point; obeyed once."""

    def __init__(self) -> None:
        self.act, self.point = "", ""

    def give(self, act: str, point: str) -> None:
        self.act, self.point = act, point

    def reach(self, point: str, partition: int | None = None) -> None:
        """Here is the point."""
        if self.point == point:
            act, self.point = self.act, ""
            say("point", point=point, act=act, partition=partition)
            os.kill(os.getpid(), signal.SIGKILL if act == "kill" else signal.SIGSTOP)

    def listen(self) -> None:
        for line in sys.stdin:
            self.give(*line.split())


ORDER = Order()


class WatchedTransactions(Transactions):
    """Passes the points of the loop."""

    def begin(self) -> None:
        ORDER.reach("folded")
        super().begin()
        ORDER.reach("begun")

    def send_offsets(self, offsets: list[TopicPartition], group_metadata: object) -> None:
        if ORDER.point == "produced":
            self._producer.flush(5)  # the records are on the broker, their transaction is open
        ORDER.reach("produced")
        super().send_offsets(offsets, group_metadata)
        ORDER.reach("offsets")

    def commit(self) -> None:
        if ORDER.point == "committing":
            threading.Timer(random.uniform(0.0, 0.01), ORDER.reach, ("committing",)).start()
        super().commit()
        ORDER.reach("committed")


class WatchedOpening(Opening):
    """Passes the points of a restore."""

    def open(self, group: Consumer) -> Restored:
        ORDER.reach("opening", self._partition)
        restored = super().open(group)
        ORDER.reach("restored", self._partition)
        return restored


class WatchedHost(Host):
    """Passes the point of a hand-over."""

    def _released(self, consumer: Consumer, partitions: list[TopicPartition]) -> None:
        ORDER.reach("revoked")
        super()._released(consumer, partitions)


def report(event: watch.Event) -> None:
    """What the host tells, as reports."""
    match event:
        case watch.Restored(partition, next_offset, rows, seconds):
            say("restored", partition=partition, next=next_offset, rows=rows, seconds=seconds)
        case watch.Assigned(partitions):
            say("assigned", partitions=list(partitions))
        case watch.Released(partitions):
            say("released", partitions=list(partitions))
        case watch.Aborted():
            say("aborted")
        case watch.OutcomeLost():
            say("unknown")
        case watch.FencedOff():
            say("fenced")
        case watch.PartitionStopped(partition, offset):
            say("partition_stopped", partition=partition, offset=offset)
        case watch.Committed(batch):
            letters = sum(folded.undecodable is not None for _, folded in batch.folded)
            if letters:
                say("dead_letters", count=letters)
        case _:
            pass


class _Takeovers(logging.Handler):
    def emit(self, record: logging.LogRecord) -> None:
        if record.msg.startswith("ending the open transaction"):
            say("takeover")


def main() -> None:
    """Work until SIGTERM, or until an order ends it."""
    ctypes.CDLL(None).prctl(_PDEATHSIG, signal.SIGKILL, 0, 0, 0)
    bootstrap, prefix, name, session_ms, *order = sys.argv[1:]
    if order:
        ORDER.give(*order)
    stop = threading.Event()
    signal.signal(signal.SIGTERM, lambda *_: stop.set())
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # a terminal's Ctrl-C is for whoever started us
    configure(LogFormat.TEXT, logging.WARNING)
    logging.getLogger("rollbook.processor").addHandler(_Takeovers())
    threading.Thread(target=ORDER.listen, daemon=True).start()
    names: dict[str, Any] = {"Transactions": WatchedTransactions, "Opening": WatchedOpening}
    for what, ours in names.items():
        setattr(loop, what, ours)
    try:
        WatchedHost(Settings(bootstrap, prefix), name, int(session_ms), watches=(report,)).run(stop)
    except RollbookError as error:
        print(f"Error: {error}", file=sys.stderr, flush=True)
        sys.stdout.flush()
        os._exit(error.exit_code)  # a producer that hangs must not keep us


if __name__ == "__main__":
    main()
