"""The last minutes of one run, folded from what is read of its partition. Bounded, whatever is read."""

from collections import Counter
from collections.abc import Iterable

from rollbook.infra.watching.seen import Minutes, Second
from rollbook.processors.dashboard import counting, lean
from rollbook.processors.dashboard.answers import Size
from rollbook.processors.dashboard.places import Times
from rollbook.processors.dashboard.windows import KEPT, Counts, Windows
from rollbook.schemas.codec import ContractViolation, UndecodableRecord, decode_as
from rollbook.schemas.records.decision import FreshnessSnapshot

SECONDS = KEPT[Size.SECOND]
_JUDGED = (b"ok", b"policy_drift")
_MOST_TIMES = 20_000
_MOST_REFUSALS = 50


class Tape:
    """What was read so far of the run. Records come in the order of their offsets; one that was read already is not
    counted again."""

    def __init__(self, run_id: str) -> None:
        self._run_id = run_id
        self._key = run_id.encode()
        self._windows = Windows()
        self._times = Times(_MOST_TIMES)
        self._next_decision = self._next_snapshot = 0
        self._known_from_ms: int | None = None
        self._newest_ms = 0
        self.snapshot: FreshnessSnapshot | None = None
        self.snapshot_ms: int | None = None
        self.strange = ""
        """What was last met that is no decision or snapshot; only the processor writes there."""

    def covers(self, from_ms: int) -> None:
        """All that was decided since then has been or will be read."""
        self._known_from_ms = from_ms

    def decision(self, offset: int, at_ms: int, value: bytes) -> None:
        """A record of the decisions, of this run or another of its partition."""
        if offset < self._next_decision:
            return
        self._next_decision = offset + 1
        self._newest_ms = max(self._newest_ms, at_ms)
        if self._known_from_ms is None:
            self._known_from_ms = at_ms
        try:
            head = lean.beginning(value)
            if head[0] != self._key:
                return
            rows = lean.whole(value, head[7]).rows if head[3] in counting.WITH_ROWS else []
        except UndecodableRecord as problem:
            self.strange = f"decision at offset {offset}: {problem}"
            return
        self._times.mark(head[2], at_ms)
        counts: Counts = {}
        counting.count_head(counts, head)
        counting.count_rows(counts, head, rows)
        if head[3] == b"Admit" and head[4] == counting.ACCEPTED:
            for row in rows:
                if row[1] in _JUDGED:
                    counting.count_judged(counts, row)
        self._windows.add(at_ms, counts, 0)

    def freshness(self, offset: int, at_ms: int, key: bytes | None, value: bytes | None) -> None:
        """A record of the snapshots, of this run or another of its partition."""
        if offset < self._next_snapshot:
            return
        self._next_snapshot = offset + 1
        if key != self._key or value is None:
            return
        try:
            self.snapshot = decode_as(FreshnessSnapshot, value)
        except (UndecodableRecord, ContractViolation) as problem:
            self.strange = f"freshness at offset {offset}: {problem}"
            return
        self.snapshot_ms = at_ms
        self._newest_ms = max(self._newest_ms, at_ms)

    def read_snapshots_again(self) -> None:
        """They come again from an earlier place."""
        self._next_snapshot = 0

    def time_of(self, offset: int) -> int | None:
        """When the broker took a record of the log, where that was read."""
        return self._times.of(offset)

    def minutes(self, now_ms: int) -> Minutes:
        """Those that end now."""
        found = dict(self._windows.changed(Size.SECOND, None))
        last = now_ms - now_ms % 1_000
        starts = range(last - (SECONDS - 1) * 1_000, last + 1, 1_000)
        known = now_ms + 1 if self._known_from_ms is None else self._known_from_ms - self._known_from_ms % 1_000
        counted = [found[start].counts if start in found else {} for start in starts]
        return Minutes(
            start_ms=starts[0],
            seconds=tuple(
                _second(counts) if start >= known else None for start, counts in zip(starts, counted, strict=True)
            ),
            refusals=_refusals(counted),
        )

    def newest(self, now_ms: int) -> int:
        """The clock, or what is read where the broker's is ahead."""
        return max(now_ms, self._newest_ms)


def _second(counts: Counts) -> Second:
    refused = {key: count for key, count in counts.items() if key[0] == counting.REFUSED}
    return Second(
        decided=counts.get(counting.DECISIONS, 0),
        admitted=counts.get((counting.STAGE, "admitted"), 0),
        turned_away=sum(count for key, count in refused.items() if key[1] == "Admit"),
        refused=sum(refused.values()),
    )


def _refusals(counted: Iterable[Counts]) -> tuple[tuple[str, str, int], ...]:
    found: Counter[tuple[str, str]] = Counter()
    for counts in counted:
        for key, count in counts.items():
            if key[0] == counting.REFUSED:
                found[key[1], key[2]] += count
    ranked = sorted(found.items(), key=lambda one: (-one[1], one[0]))
    return tuple((record_type, reason, count) for (record_type, reason), count in ranked[:_MOST_REFUSALS])
