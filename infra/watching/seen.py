"""What is known of a run at one moment, all that a frame shows. Frozen."""

from dataclasses import dataclass

from rollbook.processors.dashboard.answers import Reading
from rollbook.schemas.records.decision import FreshnessSnapshot

NOW_S = 10
"""Over so many seconds a rate of "now" is taken."""


@dataclass(frozen=True, slots=True)
class Second:
    """What was decided in one second: records, rows that Admit admitted and refused for their drift, and all refusals,
    counted as a snapshot counts them."""

    decided: int = 0
    admitted: int = 0
    turned_away: int = 0
    refused: int = 0


@dataclass(frozen=True, slots=True)
class Minutes:
    """The last minutes, second by second, the last one still going on. None: not read."""

    start_ms: int
    seconds: tuple[Second | None, ...]
    refusals: tuple[tuple[str, str, int], ...]
    """Record, reason and how often within them, most often first."""

    def per_second(self, what: str) -> float | None:
        """How often a second, of the last whole ones."""
        known = [one for one in self.seconds[-NOW_S - 1 : -1] if one is not None]
        return sum(getattr(one, what) for one in known) / len(known) if known else None

    def total(self, what: str) -> int:
        """How often in all of them."""
        return sum(getattr(one, what) for one in self.seconds if one is not None)

    def course(self, what: str, width: int) -> list[float | None]:
        """How often a second, in `width` columns at most."""
        found: list[float | None] = []
        for known in self._columns(width):
            found.append(sum(getattr(one, what) for one in known) / len(known) if known else None)
        return found

    def admission(self, width: int) -> list[float | None]:
        """The share of the rows that Admit admitted, column by column; None where it judged none."""
        return [_share(known) for known in self._columns(width)]

    @property
    def admitted_share(self) -> float | None:
        """Of all of them."""
        return _share([one for one in self.seconds if one is not None])

    def _columns(self, width: int) -> list[list[Second]]:
        """Of whole multiples of their length: what has happened stays in its column as time goes on. The second that is
        not over is in none."""
        width = max(1, width)
        each, first = -(-len(self.seconds) // width), self.start_ms // 1_000
        found: dict[int, list[Second]] = {(first + at) // each: [] for at in range(len(self.seconds) - 1)}
        for at, second in enumerate(self.seconds[:-1]):
            if second is not None:
                found[(first + at) // each].append(second)
        return list(found.values())[-width:]


def _share(seconds: list[Second]) -> float | None:
    admitted = sum(one.admitted for one in seconds)
    judged = admitted + sum(one.turned_away for one in seconds)
    return admitted / judged if judged else None


@dataclass(frozen=True, slots=True)
class Seen:
    """A run as it is shown. Times are in milliseconds since 1970; `now_ms` is not before the last decision."""

    run_id: str
    servers: str
    prefix: str
    reading: Reading
    fault: str
    now_ms: int
    heard_s: float | None
    """How long ago the broker last answered; None: never yet."""
    snapshot: FreshnessSnapshot | None
    snapshot_ms: int | None
    minutes: Minutes
    leases: tuple[tuple[str, int], ...]
    """By update, when its lease ends; where that is not known (yet), or there is none, it is not among them."""

    @property
    def snapshot_s(self) -> float | None:
        """How long ago the processor wrote what is shown."""
        return None if self.snapshot_ms is None else max(0, self.now_ms - self.snapshot_ms) / 1_000
