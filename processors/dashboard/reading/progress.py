"""Whether a reader is up to date. Pure: told where partitions end and how far each was read."""

from collections.abc import Mapping

from rollbook.processors.dashboard.reading.survey import Place

LATE = 10_000
IN_TIME = 1_000
"""Offsets: who was up to date is no longer above the first, and is again below the second."""


class Progress:
    """Up to date is first who has reached, in each partition, the end that it had when reading began: a log that is
    written to all the time has no moment at which nothing is left."""

    def __init__(self) -> None:
        self._goals: dict[Place, int] = {}
        self._reached = False
        self.is_live = False

    def begin(self, ends: Mapping[Place, int]) -> None:
        """Reading begins, or goes on after the broker was away: these are the ends to reach."""
        self._goals = dict(ends)
        self._reached = self.is_live = False

    def add(self, ends: Mapping[Place, int]) -> None:
        """New partitions, whose beginning is to be read, too."""
        self._goals.update(ends)
        self._reached = self.is_live = False

    def judge(self, behind: Mapping[Place, int], at: Mapping[Place, int]) -> bool:
        """Whether it is up to date now."""
        if not self._reached:
            self._reached = all(at.get(place, 0) >= goal for place, goal in self._goals.items())
            self.is_live = self._reached
        else:
            self.is_live = sum(behind.values()) <= (LATE if self.is_live else IN_TIME)
        return self.is_live
