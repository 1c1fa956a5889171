"""The last minutes of one run, out of what the dashboard's fold has counted: definitions and bounds are the fold's, and
what is done about garbage. Pure."""

from collections import Counter
from collections.abc import Iterable, Sequence

from rollbook.infra.watching.seen import Minutes, Second
from rollbook.processors.dashboard.answers import Size
from rollbook.processors.dashboard.fold.counting import DECISIONS, DRIFT, REFUSED, STAGE
from rollbook.processors.dashboard.fold.places import Times
from rollbook.processors.dashboard.fold.view import Stored, View
from rollbook.processors.dashboard.fold.windows import KEPT, Counts
from rollbook.schemas.codec import ContractViolation, UndecodableRecord, decode_as
from rollbook.schemas.records.decision import FreshnessSnapshot
from rollbook.schemas.text import plural

SECONDS = KEPT[Size.SECOND]
_MOST_REFUSALS = 50


class Tape:
    """What is to be known of a run beside the fold's counts: its last good snapshot, since when all was read, and the
    log's clock."""

    def __init__(self, run_id: str) -> None:
        self._run_id = run_id
        self._key = run_id.encode()
        self._known_from_ms: int | None = None
        self._last_ms = 0
        self._unreadable = ""
        self.snapshot: FreshnessSnapshot | None = None
        self.snapshot_ms: int | None = None

    def covers(self, from_ms: int) -> None:
        """All that was decided since then has been or will be read."""
        self._known_from_ms = from_ms

    def decisions(self, messages: Sequence[Stored]) -> list[Stored]:
        """Of records of the partition those of the run, for the fold: others would only cost."""
        if messages:
            self._last_ms = messages[-1].timestamp()[1]
            if self._known_from_ms is None:
                self._known_from_ms = messages[0].timestamp()[1]
        return [one for one in messages if one.key() == self._key]

    def snapshots(self, messages: Sequence[Stored]) -> None:
        """Of the snapshots of the partition the run's last; what cannot be read does not replace one that could."""
        for message in reversed(messages):
            value = message.value()
            if message.key() != self._key or value is None:
                continue
            try:
                found = decode_as(FreshnessSnapshot, value)
            except (UndecodableRecord, ContractViolation) as problem:
                self._unreadable = f"freshness at offset {message.offset()}: {problem}"
                continue
            if found.run_id == self._run_id:
                self.snapshot_ms, self.snapshot = message.timestamp()[1], found
                return

    def strange(self, view: View) -> str:
        """What was met that only the processor could have written, and did not."""
        return f"{plural(view.unreadable, 'decision')} cannot be read" if view.unreadable else self._unreadable

    def newest(self, now_ms: int) -> int:
        """The clock, or the broker's where that is ahead: the time of the last record, so that a jump that was put
        right again does not last."""
        return max(now_ms, self._last_ms)

    def times_of(self, view: View, offsets: Iterable[int]) -> dict[int, int]:
        """When the broker took records of the run, of those whose decisions were read."""
        times = next((times for run, times in view.figures() if run.run_id == self._run_id), Times())
        return {offset: at_ms for offset in offsets if (at_ms := times.of(offset)) is not None}

    def minutes(self, view: View, now_ms: int) -> Minutes:
        """Those that end now."""
        run = next((run for run, _ in view.figures() if run.run_id == self._run_id), None)
        last = now_ms - now_ms % 1_000
        starts = range(last - (SECONDS - 1) * 1_000, last + 1, 1_000)
        known = now_ms + 1 if self._known_from_ms is None else self._known_from_ms - self._known_from_ms % 1_000
        counted = {} if run is None else {at: one.counts for at, one in run.windows.changed(Size.SECOND, None)}
        return Minutes(
            start_ms=starts[0],
            seconds=tuple(_second(counted.get(start, {})) if start >= known else None for start in starts),
            refusals=_refusals([counted[start] for start in starts if start in counted]),
        )


def _second(counts: Counts) -> Second:
    return Second(
        decided=counts.get(DECISIONS, 0),
        admitted=counts.get((STAGE, "admitted"), 0),
        turned_away=sum(count for key, count in counts.items() if key[0] == DRIFT and key[2] == "refused"),
        refused=sum(count for key, count in counts.items() if key[0] == REFUSED),
    )


def _refusals(seconds: list[Counts]) -> tuple[tuple[str, str, int], ...]:
    found: Counter[tuple[str, str]] = Counter()
    for counts in seconds:
        for key, count in counts.items():
            if key[0] == REFUSED:
                found[key[1], key[2]] += count
    ranked = sorted(found.items(), key=lambda one: (-one[1], one[0]))
    return tuple((record_type, reason, count) for (record_type, reason), count in ranked[:_MOST_REFUSALS])
