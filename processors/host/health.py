"""Health and readiness of the host, worked out from its events. Pure: the clock is the caller's.

Healthy: the loop goes round. Readiness is about a roll-out: the next instance may be replaced once this one has
restored what it was given and has caught up.
"""

import threading
from dataclasses import dataclass

from rollbook.processors.host import watch
from rollbook.processors.host.clock import Clock
from rollbook.processors.host.transaction import LONG_MS

HEALTHY_WITHIN_S = 90
"""More than the longest call of the loop that may still be answered: a cluster is asked for a minute."""

READY_LAG = 1_000
"""Records; a partition that is written to all the time is never behind by none."""


@dataclass(frozen=True, slots=True)
class Answer:
    """Yes or no, and why, on one line."""

    yes: bool
    why: str


class Health:
    """What the events say. Told by the loop, asked by another thread."""

    def __init__(self, clock: Clock, healthy_within_s: float = HEALTHY_WITHIN_S) -> None:
        self._clock = clock
        self._within_s = healthy_within_s
        self._lock = threading.Lock()
        self._turned = clock.monotonic()
        self._long = False
        self._joined = False
        self._behind: dict[int, int | None] = {}
        self._stopped: dict[int, int | None] = {}
        self._opening: int | None = None

    def __call__(self, event: watch.Event) -> None:
        with self._lock:
            self._take(event)

    def _take(self, event: watch.Event) -> None:
        match event:
            case watch.Alive():
                self._turned = self._clock.monotonic()
                self._long = False
            case watch.Began(long):
                self._long = long
            case watch.Assigned(partitions):
                self._joined = True
                self._behind.update(dict.fromkeys(partitions))
            case watch.Released(partitions):
                for partition in partitions:
                    self._behind.pop(partition, None)
                    self._stopped.pop(partition, None)
            case watch.Opening(partition):
                self._opening = partition
                self._stopped.pop(partition, None)
            case watch.Restored(partition):
                self._opening = None
                if partition in self._behind:  # restored anew: it catches up anew
                    self._behind[partition] = None
            case watch.Lags(records):
                self._behind.update({p: behind for p, behind in records.items() if p in self._behind})
            case watch.PartitionStopped(partition, offset):
                self._opening = None
                self._stopped[partition] = offset
            case _:
                pass

    def healthy(self) -> Answer:
        """Whether the loop still goes round; a transaction that changes very much is given its time."""
        with self._lock:
            silent_s = self._clock.monotonic() - self._turned
            limit_s = max(self._within_s, LONG_MS / 1000) if self._long else self._within_s
        return Answer(silent_s <= limit_s, f"the loop went round {silent_s:.1f} s ago, {limit_s:.0f} s are allowed")

    def ready(self) -> Answer:
        """Whether all partitions of this instance are restored and caught up, none of them stopped."""
        with self._lock:
            joined, behind, stopped = self._joined, dict(self._behind), dict(self._stopped)
            opening = self._opening
        if not joined:
            return Answer(False, "no partitions were assigned yet")
        if stopped:
            partition = min(stopped)
            offset = stopped[partition]
            why = "cannot be opened" if offset is None else f"is stopped before offset {offset}"
            return Answer(False, f"partition {partition} {why}: see the log")
        if opening is not None:
            return Answer(False, f"partition {opening} is being restored")
        late = [partition for partition, records in sorted(behind.items()) if records is None or records > READY_LAG]
        if late:
            records = behind[late[0]]
            return Answer(
                False,
                f"partition {late[0]} is restored, and not read yet"
                if records is None
                else f"partition {late[0]} is {records:,} records behind, {READY_LAG:,} are allowed",
            )
        return Answer(True, f"{len(behind)} partitions, restored and caught up" if behind else "standing by")
