"""What a decision counts for: which key by how much.

The definitions are those of `FreshnessSnapshot`, so that sums over the whole log equal its figures.
"""

from bisect import bisect_left

from rollbook.processors.dashboard.lean import OUTCOMES, Head, Row
from rollbook.processors.dashboard.windows import Counts, Key
from rollbook.processors.ledger.figures import BOUNDS

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
_NO = frozenset(OUTCOMES.index(name) for name in ("rejected", "invalid", "undecodable"))
_PASSED = frozenset((b"ok", b"reserved", b"idempotent_retry"))
GATES = frozenset((b"Reserve", b"Admit"))
WITH_ROWS = frozenset(
    (b"Generated", b"GenerationFailed", b"RewardReady", b"RewardFailed", b"Discarded", b"Commit", *GATES)
)
"""Records whose rows are counted; of all others the beginning is read."""

_OUTCOME_KEYS = tuple((OUTCOME, name) for name in OUTCOMES)
_LIVE = (None, b"none", b"dispatched", b"generated", b"reward_failed")


def _moves() -> dict[tuple[bytes | None, bytes], tuple[Key, ...]]:
    """What a change of state counts for. A reward that came before its Generated is counted with that."""
    found: dict[tuple[bytes | None, bytes], tuple[Key, ...]] = {}
    for before in _LIVE:
        arrives: tuple[Key, ...] = () if before in (b"generated", b"reward_failed") else ((STAGE, "generated"),)
        found[before, b"generated"] = arrives
        found[before, b"rewarded"] = (*arrives, (STAGE, "rewarded"))
        found[before, b"reward_failed"] = (*arrives, (FAILURE, "reward"))
        found[before, b"generation_failed"] = ((FAILURE, "generation"),)
        found[before, b"discarded"] = ((STAGE, "discarded"),)
    found[b"rewarded", b"discarded"] = ((STAGE, "discarded"),)
    found[b"rewarded", b"reserved"] = ((STAGE, "reserved"),)
    found[b"rewarded", b"consumed"] = ((STAGE, "reserved"), (STAGE, "consumed"))
    found[b"reserved", b"consumed"] = ((STAGE, "consumed"),)
    found[b"reserved", b"discarded"] = ((STAGE, "discarded"),)
    return found


_MOVES = _moves()


def count_head(counts: Counts, head: Head) -> None:
    """A decision by its beginning alone."""
    _, _, _, record_type, outcome, violation, reason, _ = head
    counts[DECISIONS] = counts.get(DECISIONS, 0) + 1
    key: Key = _OUTCOME_KEYS[outcome]
    counts[key] = counts.get(key, 0) + 1
    if violation:
        counts[VIOLATIONS] = counts.get(VIOLATIONS, 0) + 1
    if outcome in _NO:
        key = (REFUSED, (record_type or b"record").decode(), reason.decode())
        counts[key] = counts.get(key, 0) + 1
    elif record_type == b"Dispatched" and outcome == ACCEPTED:
        key = (STAGE, "dispatched")
        counts[key] = counts.get(key, 0) + 1


def count_rows(counts: Counts, head: Head, rows: list[Row]) -> None:
    """Its rows, but for drift and times, which need to know more."""
    record_type = head[3]
    if record_type in GATES and rows:
        if head[4] == DUPLICATE:
            return
        if head[4] in _NO:  # its rows are counted, and not the record
            key: Key = (REFUSED, record_type.decode(), head[6].decode())
            counts[key] -= 1
            if not counts[key]:
                del counts[key]
        for row in rows:
            if row[1] not in _PASSED:
                key = (REFUSED, record_type.decode(), row[1].decode())
                counts[key] = counts.get(key, 0) + 1
    for row in rows:
        before, after = row[2], row[3]
        if before != after and after is not None:
            for key in _MOVES.get((before, after), ()):
                counts[key] = counts.get(key, 0) + 1
        if row[1] == b"trained" and row[4] is not None:
            key = (CONSUMED, str(bounded(row[4])))
            counts[key] = counts.get(key, 0) + 1


def count_judged(counts: Counts, row: Row) -> None:
    """A row that an Admit judged for the first time: admitted, or refused for its drift."""
    lag, ratio = row[4], row[5]
    admitted = row[1] == b"ok"
    if lag is not None:
        key: Key = (JUDGED, str(bounded(lag)))
        counts[key] = counts.get(key, 0) + 1
    if ratio is not None:
        key = (DRIFT, str(bisect_left(BOUNDS, ratio)), "admitted" if admitted else "refused")
        counts[key] = counts.get(key, 0) + 1
    if admitted:
        key = (STAGE, "admitted")
        counts[key] = counts.get(key, 0) + 1


def count_took(counts: Counts, took_ms: int) -> None:
    """The time from a row's Generated to its Commit."""
    key: Key = (TOOK, str(bisect_left(TOOK_S, took_ms / 1_000)))
    counts[key] = counts.get(key, 0) + 1
    counts[TOOK_COUNT] = counts.get(TOOK_COUNT, 0) + 1
    counts[TOOK_MS] = counts.get(TOOK_MS, 0) + took_ms


def bounded(lag: int) -> int:
    """`FARTHEST` stands for more, -1 for less."""
    return max(-1, min(lag, FARTHEST))
