"""Where in the log something lies: the time of an offset, and the decisions that name a trajectory. Of fixed size."""

from array import array
from bisect import bisect_right

import numpy as np

APART_MS = 100
MOST_FINE = 40_000
"""Marks of the latest hour or longer, a tenth of a second apart."""
MOST_COARSE = 100_000
MOST_MENTIONS = 1 << 18


class _Marks:
    """Places with their times, each so long after the one before; twice as long each time that there are too many."""

    def __init__(self, most: int) -> None:
        self.places = array("q")
        self.times = array("q")
        self._most = most
        self._apart_ms = APART_MS
        self._last = -(2**62)

    def mark(self, place: int, time_ms: int) -> None:
        if -self._apart_ms < time_ms - self._last < self._apart_ms:
            return
        self._last = time_ms
        self.places.append(place)
        self.times.append(time_ms)
        if len(self.places) > self._most:
            self.places, self.times = self.places[::2], self.times[::2]
            self._apart_ms *= 2

    def of(self, place: int) -> int | None:
        at = bisect_right(self.places, place)
        return self.times[at - 1] if at else None


class Times:
    """The times of a partition's offsets (or a run's sequences): of the latest to a tenth of a second, of what is older
    than the latest 40,000 such marks coarser by and by."""

    def __init__(self, most_fine: int = MOST_FINE, most_coarse: int = MOST_COARSE) -> None:
        self._most_fine = most_fine
        self._fine = _Marks(2 * most_fine)
        self._older = _Marks(most_coarse)
        self._read = -1
        self._last = -(2**62)

    def mark(self, place: int, time_ms: int) -> None:
        """What was read; places rise."""
        self._read = place
        if -APART_MS < time_ms - self._last < APART_MS:
            return
        self._last = time_ms
        self._fine.mark(place, time_ms)
        if len(self._fine.places) >= 2 * self._most_fine:
            self._age()

    def of(self, place: int) -> int | None:
        """The time of a place; None before the first, and for what was not read yet."""
        if place > self._read:
            return None
        found = self._fine.of(place)
        return self._older.of(place) if found is None else found

    def __len__(self) -> int:
        return len(self._fine.places) + len(self._older.places)

    def _age(self) -> None:
        kept = _Marks(2 * self._most_fine)
        for at, (place, time_ms) in enumerate(zip(self._fine.places, self._fine.times, strict=True)):
            (self._older if at < self._most_fine else kept).mark(place, time_ms)
        self._fine = kept


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

    def add_all(self, names: list[bytes], offset: int) -> None:
        """A decision names them all."""
        if self._next + len(names) <= self._most:
            self._names.extend(map(hash, names))
            self._offsets.extend([offset] * len(names))
            self._next += len(names)
        else:
            for name in names:
                self.add(name, offset)

    @property
    def is_complete(self) -> bool:
        """Whether nothing was forgotten yet."""
        return self._next <= self._most

    def of(self, name: bytes) -> tuple[int, ...]:
        """Where it is named, ascending."""
        hits = np.flatnonzero(np.frombuffer(self._names, dtype=np.int64) == hash(name)) if self._names else ()
        return tuple(sorted({self._offsets[int(at)] for at in hits}))
