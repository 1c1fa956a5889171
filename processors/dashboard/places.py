"""Where in the log something lies: the time of an offset, and the decisions that name a trajectory. Of fixed size."""

from array import array
from bisect import bisect_right

import numpy as np

MOST_MARKS = 200_000
APART_MS = 100
MOST_MENTIONS = 1 << 18


class Times:
    """The times of a partition's offsets (or a run's sequences), to a tenth of a second; coarser the older they are,
    once there are very many."""

    def __init__(self, most: int = MOST_MARKS) -> None:
        self._most = most
        self._places = array("q")
        self._times = array("q")
        self._last = -APART_MS

    def mark(self, place: int, time_ms: int) -> None:
        """What was read; places rise."""
        if -APART_MS < time_ms - self._last < APART_MS:
            return
        self._last = time_ms
        self._places.append(place)
        self._times.append(time_ms)
        if len(self._places) > self._most:
            half = self._most // 2
            self._places = self._places[:half:2] + self._places[half:]
            self._times = self._times[:half:2] + self._times[half:]

    def of(self, place: int) -> int | None:
        """The time of a place; None before the first."""
        at = bisect_right(self._places, place)
        return self._times[at - 1] if at else None


class Mentions:
    """Offsets of the latest decisions that name a trajectory, by a hash of its name: what is found is looked at."""

    def __init__(self, most: int = MOST_MENTIONS) -> None:
        self._most = most
        self._names = array("q", bytes(8 * most))
        self._offsets = array("q", bytes(8 * most))
        self._next = 0

    def add(self, name: bytes, offset: int) -> None:
        at = self._next % self._most
        self._names[at] = hash(name)
        self._offsets[at] = offset
        self._next += 1

    @property
    def is_complete(self) -> bool:
        """Whether nothing was forgotten yet."""
        return self._next <= self._most

    def of(self, name: bytes) -> tuple[int, ...]:
        """Where it is named, ascending."""
        used = min(self._next, self._most)
        hits = np.flatnonzero(np.frombuffer(self._names, dtype=np.int64, count=used) == hash(name))
        return tuple(sorted({self._offsets[int(at)] for at in hits}))
