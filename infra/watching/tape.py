"""The last minutes of one run, folded from what is read of its partition. Bounded, whatever is read."""

from collections import Counter, OrderedDict
from collections.abc import Iterable, Mapping
from typing import Any

from rollbook.infra.watching.seen import Minutes, Second
from rollbook.schemas.codec import ContractViolation, UndecodableRecord, decode_as, unwrap
from rollbook.schemas.records.decision import Decision, FreshnessSnapshot, Outcome

SECONDS = 300
_MOST_TIMES = 20_000
_MOST_REFUSALS = 50
_NO = (Outcome.REJECTED.value, Outcome.INVALID.value, Outcome.UNDECODABLE.value)
_GATES = ("Reserve", "Admit")
_PASSED = ("ok", "reserved", "idempotent_retry")
_LEASED = ("Reserve", "Admit", "Renew")
"""Records since which a lease runs."""


class _Counts:
    """What was decided in one second; refusals by record and reason, as a snapshot counts them."""

    __slots__ = ("admitted", "decided", "refused")

    def __init__(self) -> None:
        self.decided = 0
        self.admitted = 0
        self.refused: Counter[tuple[str, str]] = Counter()

    def take(self, fields: Mapping[str, Any]) -> None:
        record_type, outcome = fields["record_type"], fields["outcome"]
        self.decided += 1
        if record_type in _GATES and fields["items"]:
            if outcome != Outcome.DUPLICATE.value:
                reasons = [one["reason"] for one in fields["items"]]
                self.refused.update((record_type, reason) for reason in reasons if reason not in _PASSED)
                self.admitted += reasons.count("ok") if record_type == "Admit" and outcome not in _NO else 0
        elif outcome in _NO:
            self.refused[record_type or "record", fields["reason"]] += 1

    def second(self) -> Second:
        return Second(
            decided=self.decided,
            admitted=self.admitted,
            turned_away=sum(count for (record_type, _), count in self.refused.items() if record_type == "Admit"),
            refused=self.refused.total(),
        )


class Tape:
    """What was read so far of the run. Records come in the order of their offsets; one that was read already is not
    counted again."""

    def __init__(self, run_id: str) -> None:
        self._run_id = run_id
        self._seconds: dict[int, _Counts] = {}
        self._times: OrderedDict[int, int] = OrderedDict()
        self._next_decision = self._next_snapshot = 0
        self._known_from_ms: int | None = None
        self._newest_ms = 0
        self.snapshot: FreshnessSnapshot | None = None
        self.snapshot_ms: int | None = None
        self.strange = ""
        """What was last met that is no decision or snapshot; only the processor writes there."""

    def __len__(self) -> int:
        return len(self._seconds) + len(self._times)

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
            decoded = unwrap(value)
        except UndecodableRecord as problem:
            self.strange = f"decision at offset {offset}: {problem}"
            return
        if decoded.model is Decision and decoded.fields["run_id"] == self._run_id:
            self._take(at_ms, decoded.fields)

    def _take(self, at_ms: int, fields: Mapping[str, Any]) -> None:
        if fields["record_type"] in _LEASED:
            self._times[fields["source"]["offset"]] = at_ms
            if len(self._times) > _MOST_TIMES:
                self._times.popitem(last=False)
        start = at_ms - at_ms % 1_000
        if start <= self._newest_ms - SECONDS * 1_000:
            return
        self._seconds.setdefault(start, _Counts()).take(fields)
        if len(self._seconds) > 2 * SECONDS:
            first = self._newest_ms - SECONDS * 1_000
            self._seconds = {start: counts for start, counts in self._seconds.items() if start > first}

    def freshness(self, offset: int, at_ms: int, key: bytes | None, value: bytes | None) -> None:
        """A record of the snapshots, of this run or another of its partition."""
        if offset < self._next_snapshot:
            return
        self._next_snapshot = offset + 1
        if key != self._run_id.encode() or value is None:
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
        """When the broker took a Reserve, Admit or Renew, where its decision was read."""
        return self._times.get(offset)

    def minutes(self, now_ms: int) -> Minutes:
        """Those that end now."""
        last = now_ms - now_ms % 1_000
        starts = range(last - (SECONDS - 1) * 1_000, last + 1, 1_000)
        known = now_ms + 1 if self._known_from_ms is None else self._known_from_ms - self._known_from_ms % 1_000
        counted = [self._seconds.get(start) for start in starts]
        return Minutes(
            start_ms=starts[0],
            seconds=tuple(
                (Second() if counts is None else counts.second()) if start >= known else None
                for start, counts in zip(starts, counted, strict=True)
            ),
            refusals=_refusals(counts for counts in counted if counts is not None),
        )

    def newest(self, now_ms: int) -> int:
        """The clock, or what was read where the broker's is ahead."""
        return max(now_ms, self._newest_ms)


def _refusals(counted: Iterable[_Counts]) -> tuple[tuple[str, str, int], ...]:
    found: Counter[tuple[str, str]] = Counter()
    for counts in counted:
        found.update(counts.refused)
    ranked = sorted(found.items(), key=lambda one: (-one[1], one[0]))
    return tuple((record_type, reason, count) for (record_type, reason), count in ranked[:_MOST_REFUSALS])
