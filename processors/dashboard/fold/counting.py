"""What a decision counts for: which key by how much.

The definitions are those of `FreshnessSnapshot`, so that sums over the whole log equal its figures.
"""

from bisect import bisect_left
from collections import Counter
from functools import lru_cache
from operator import itemgetter

from rollbook.processors.dashboard.fold.lean import OUTCOMES, Head, Row, number, ratio
from rollbook.processors.dashboard.fold.windows import Counts, Key
from rollbook.processors.ledger import tally
from rollbook.processors.ledger.figures import BOUNDS
from rollbook.processors.lifecycle import NONE, TRANSITIONS, Event
from rollbook.schemas.records.ledger import TrajectoryStatus

STAGES = ("dispatched", "generated", "rewarded", "reserved", "admitted", "consumed", "discarded")
TOOK_S = (0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0, 60.0, 120.0, 300.0, 600.0, 1_800.0, 3_600.0, 14_400.0, 86_400.0)
"""Upper bounds of the histogram from generation to consumption, in seconds."""
FARTHEST = 64
"""Of a lag: a window must not have any number of them."""

DECISIONS: Key = ("decisions",)
VIOLATIONS: Key = ("violations",)
TOOK_COUNT: Key = ("took count",)
TOOK_MS: Key = ("took ms",)
STAGE, FAILURE, OUTCOME, REFUSED, JUDGED, CONSUMED, DRIFT, TOOK = (
    "stage",
    "failure",
    "outcome",
    "refused",
    "judged",
    "consumed",
    "drift",
    "took",
)

ACCEPTED, DUPLICATE = OUTCOMES.index("accepted"), OUTCOMES.index("duplicate")
_NO = frozenset(map(OUTCOMES.index, tally.NO))
PASSED = frozenset(reason.encode() for reason in tally.PASSED)
GATES = frozenset(name.encode() for name in tally.GATES)
FACTS = frozenset(
    (
        b"Dispatched",
        b"Generated",
        b"GenerationFailed",
        b"RewardReady",
        b"RewardFailed",
        b"Discarded",
        b"Quarantine",
    )
)
WITH_ROWS = frozenset((*FACTS, b"Commit", b"Abort", b"LeaseExpired", *GATES))
"""Records whose rows are counted; of all others the beginning is read."""

_MOVE = itemgetter(1, 2, 3)
_ADMITTED: Key = (STAGE, "admitted")
_STAGE_OF: dict[str, Key] = {
    Event.DISPATCHED: (STAGE, "dispatched"),
    Event.GENERATED: (STAGE, "generated"),
    Event.GENERATION_FAILED: (FAILURE, "generation"),
    Event.REWARD_READY: (STAGE, "rewarded"),
    Event.REWARD_FAILED: (FAILURE, "reward"),
    Event.RESERVE: (STAGE, "reserved"),
    Event.COMMIT: (STAGE, "consumed"),
    Event.DISCARD: (STAGE, "discarded"),
}
_FIRST = {
    b"Dispatched": Event.DISPATCHED,
    b"Generated": Event.GENERATED,
    b"GenerationFailed": Event.GENERATION_FAILED,
    b"RewardReady": Event.REWARD_READY,
    b"RewardFailed": Event.REWARD_FAILED,
}


@lru_cache(maxsize=4_096)
def _passed(record_type: bytes, reason: bytes, before: bytes, after: bytes) -> tuple[Key, ...]:
    """What a change of state counts for: the event of its record, and the shortest way from there. A reward that was
    there before its Generated is applied by it, and what another update has trained on is consumed as soon as it is
    given back, so that one record can take a row through several."""
    if not after or before == after:
        return ()
    state = before.decode(errors="replace") or NONE
    first = _FIRST.get(record_type)
    if state == TrajectoryStatus.RESERVED and reason != b"trained":
        first = Event.DROP
    ways: list[tuple[str, tuple[str, ...]]] = [(state, ())]
    if first is not None and (state, first) in TRANSITIONS:
        ways = [(TRANSITIONS[state, first], (first,))]
    for reached, events in ways:
        if reached == after.decode(errors="replace"):
            return tuple(_STAGE_OF[event] for event in events if event in _STAGE_OF)
        if len(events) < len(Event):
            ways += [(to, (*events, event)) for (at, event), to in TRANSITIONS.items() if at == reached]
    return ()


class Tally:
    """What is counted of decisions within one second of a run: those that are alike are counted together first."""

    __slots__ = ("counts", "facts", "heads")

    def __init__(self) -> None:
        self.heads: dict[tuple[bytes, int, int, bytes], int] = {}
        """Decisions by record type, outcome, violation and reason."""
        self.facts: dict[tuple[bytes, bytes, bytes, bytes], int] = {}
        """Rows of records that are no commands, by record type, reason, state before and after."""
        self.counts: Counts = {}
        """All else."""

    def sum(self) -> Counts:
        """All of it, by key."""
        counts = self.counts
        for head, times in self.heads.items():
            for key in _keys_of(*head):
                counts[key] = counts.get(key, 0) + times
        for fact, times in self.facts.items():
            for key in _passed(*fact):
                counts[key] = counts.get(key, 0) + times
        return {key: count for key, count in counts.items() if count}


@lru_cache(maxsize=4_096)
def _keys_of(record_type: bytes, outcome: int, violation: int, reason: bytes) -> tuple[Key, ...]:
    """What a decision counts for by its beginning alone."""
    keys: list[Key] = [DECISIONS, (OUTCOME, OUTCOMES[outcome])]
    if violation:
        keys.append(VIOLATIONS)
    if outcome in _NO:
        keys.append(_refused(record_type, reason))
    return tuple(keys)


def count_rows(tally: Tally, head: Head, rows: list[Row]) -> None:
    """Its rows, but for drift and times, which need to know more."""
    record_type, outcome = head[3], head[4]
    is_gate = record_type in GATES and bool(rows)
    if is_gate and outcome == DUPLICATE:
        return
    counts, facts = tally.counts, tally.facts
    if is_gate and outcome in _NO:  # its rows are counted, and not the record
        key = _refused(record_type, head[6])
        counts[key] = counts.get(key, 0) - 1
    for (reason, before, after), times in Counter(map(_MOVE, rows)).items():
        moved = (record_type, reason, before, after)
        facts[moved] = facts.get(moved, 0) + times
        if is_gate and reason not in PASSED:
            key = _refused(record_type, reason)
            counts[key] = counts.get(key, 0) + times
    if record_type == b"Commit":
        for raw, times in Counter(row[4] for row in rows if row[1] == b"trained" and row[4]).items():
            key = _key(CONSUMED, str(_bounded(raw)))
            counts[key] = counts.get(key, 0) + times


def count_judged(counts: Counts, rows: list[Row]) -> None:
    """Rows that an Admit judged for the first time: admitted, or refused for their drift."""
    for raw, times in Counter(row[4] for row in rows if row[4]).items():
        key = _key(JUDGED, str(_bounded(raw)))
        counts[key] = counts.get(key, 0) + times
    admitted = sum(row[1] == b"ok" for row in rows)
    if admitted:
        counts[_ADMITTED] = counts.get(_ADMITTED, 0) + admitted
    for row in rows:
        drift = ratio(row[5])
        if drift is not None:
            key = _key(DRIFT, str(bisect_left(BOUNDS, drift)), "admitted" if row[1] == b"ok" else "refused")
            counts[key] = counts.get(key, 0) + 1


def count_took(counts: Counts, took_ms: int) -> None:
    """The time from a row's Generated to its Commit."""
    key: Key = _key(TOOK, str(bisect_left(TOOK_S, took_ms / 1_000)))
    counts[key] = counts.get(key, 0) + 1
    counts[TOOK_COUNT] = counts.get(TOOK_COUNT, 0) + 1
    counts[TOOK_MS] = counts.get(TOOK_MS, 0) + took_ms


@lru_cache(maxsize=65_536)
def _key(*parts: str) -> Key:
    """One object for each, since windows keep very many."""
    return parts


def _refused(record_type: bytes, reason: bytes) -> Key:
    return _key(REFUSED, (record_type or b"record").decode(errors="replace"), reason.decode(errors="replace"))


@lru_cache(maxsize=4_096)
def _bounded(raw: bytes) -> int:
    """A lag: `FARTHEST` stands for more, -1 for less."""
    lag = number(raw)
    assert lag is not None, "none is no lag"
    return max(-1, min(lag, FARTHEST))
