"""Windows of event time: what happened in each second, ten seconds, minute and ten minutes of a run.

They are kept as far back as is told, from the time of the run's newest record on: the newest of the log, so that a
broker's clock that was wrong for a while, and ahead, does not make all that follows too late. Late records go to the
window of their time, as long as it is there.
"""

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import NamedTuple

from rollbook.processors.dashboard.answers import Size

Key = tuple[str, ...]
"""What is counted: its kind, then its name."""
Counts = dict[Key, int]

LENGTH_MS = {Size.SECOND: 1_000, Size.TEN_SECONDS: 10_000, Size.MINUTE: 60_000, Size.TEN_MINUTES: 600_000}
KEPT = {Size.SECOND: 300, Size.TEN_SECONDS: 360, Size.MINUTE: 720, Size.TEN_MINUTES: 1_008}
"""Five minutes, an hour, half a day, a week."""


class Ready(NamedTuple):
    """What a snapshot says of the trajectories that wait to be trained on."""

    sequence: int
    by_lag: tuple[tuple[int, int], ...]
    by_version: tuple[tuple[int, int], ...]


@dataclass(slots=True)
class Window:
    """One of them. `ready` is that of its last snapshot, `revision` that of its last change."""

    counts: Counts = field(default_factory=dict)
    ready: Ready | None = None
    revision: int = 0


class Windows:
    """Those of one run in all lengths."""

    def __init__(self) -> None:
        self._of: dict[Size, dict[int, Window]] = {size: {} for size in Size}
        self._newest_ms = 0
        """The time of the last record."""

    def add(self, at_ms: int, counts: Mapping[Key, int], revision: int) -> None:
        """Count what happened within one second."""
        self._newest_ms = at_ms
        for window in self._at(at_ms, revision):
            kept = window.counts
            for key, count in counts.items():
                kept[key] = kept.get(key, 0) + count

    def ready(self, at_ms: int, found: Ready, revision: int) -> None:
        """Keep a snapshot, unless a later one of the same window is known."""
        for window in self._at(at_ms, revision):
            if window.ready is None or found.sequence >= window.ready.sequence:
                window.ready = found

    def changed(self, size: Size, since: int | None) -> Iterator[tuple[int, Window]]:
        """Start and contents of the windows of a length that have changed after a revision, in order of time."""
        found = self._of[size]
        first, last = self._kept_ms(size)
        for start in sorted(found):
            if first <= start <= last and (since is None or found[start].revision > since):
                yield start, found[start]

    def __len__(self) -> int:
        return sum(map(len, self._of.values()))

    def _at(self, at_ms: int, revision: int) -> Iterable[Window]:
        for size, windows in self._of.items():
            start = at_ms - at_ms % LENGTH_MS[size]
            window = windows.get(start)
            if window is None:
                window = windows[start] = Window()
                if len(windows) > KEPT[size] * 9 // 8:
                    self._forget(size)
            window.revision = revision
            yield window

    def _kept_ms(self, size: Size) -> tuple[int, int]:
        """The first and the last start that is kept: by as much ahead as behind."""
        length = LENGTH_MS[size]
        newest = self._newest_ms - self._newest_ms % length
        return newest - (KEPT[size] - 1) * length, newest + (KEPT[size] - 1) * length

    def _forget(self, size: Size) -> None:
        first, last = self._kept_ms(size)
        self._of[size] = {start: window for start, window in self._of[size].items() if first <= start <= last}
