"""Where in the log something lies: the time of an offset, and the decisions that name a trajectory. Of fixed size."""

from array import array
from bisect import bisect_right

import numpy as np

MOST_MARKS = 200_000
APART_MS = 100
MOST_MENTIONS = 1 << 18


class Times:
    """The times of a partition's offsets (or a run's sequences), to a tenth of a second; coarser by twice each time
    that there are too many: to a second after a day, with the usual number."""

    def __init__(self, most: int = MOST_MARKS) -> None:
        self._most = most
        self._places = array("q")
        self._times = array("q")
        self._apart_ms = APART_MS
        self._last = -(2**62)

    def mark(self, place: int, time_ms: int) -> None:
        """What was read; places rise."""
        if -self._apart_ms < time_ms - self._last < self._apart_ms:
            return
        self._last = time_ms
        self._places.append(place)
        self._times.append(time_ms)
        if len(self._places) > self._most:
            self._places, self._times = self._places[::2], self._times[::2]
            self._apart_ms *= 2

    def of(self, place: int) -> int | None:
        """The time of a place; None before the first."""
        at = bisect_right(self._places, place)
        return self._times[at - 1] if at else None


class Mentions:
    """Offsets of the latest decisions that name a trajectory, by a hash of its name: what is found is looked at."""

    def __init__(self, most: int = MOST_MENTIONS) -> None:
        self._most = most
        self._names = array("q")
        self._offsets = array("q")
        self._next = 0

    def add(self, name: bytes, offset: int) -> None:
        """A decision names it."""
        if self._next < self._most:
            self._names.append(hash(name))
            self._offsets.append(offset)
        else:
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
        hits = np.flatnonzero(np.frombuffer(self._names, dtype=np.int64) == hash(name)) if self._names else ()
        return tuple(sorted({self._offsets[int(at)] for at in hits}))
