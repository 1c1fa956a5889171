"""Where the partitions of a run end, asked so that they end together: what is decided has its record there, and what
stands in the ledger has its decision. The log goes on meanwhile."""

import time
from collections.abc import Sequence

from rollbook.infra.settings import Settings, Topic
from rollbook.processors.ledger.keys import decode_position, position_key
from rollbook.replay.history.decisions import DecisionLog, NotADecision
from rollbook.replay.history.file import FileLog
from rollbook.replay.history.ranges import OffsetRange
from rollbook.replay.history.source import Bounds, LogSource
from rollbook.schemas.codec import ContractViolation, UndecodableRecord

_ORDER = Topic.LEDGER, Topic.DECISIONS, Topic.LIFECYCLE, Topic.PAYLOADS
"""Each is written with, or after, those behind it."""
_SETTLES_S = 2.0
"""How long the partitions of a transaction may take to show it, one after the other."""
_PAUSE_S = 0.02
_LATEST = 1_024
"""A transaction is of so many rows, or of some times more."""


def resolved_together(log: LogSource, settings: Settings, ranges: Sequence[OffsetRange]) -> list[Bounds]:
    """The bounds of each range, in the order given. Raises as `OffsetRange.resolved`."""
    order = [settings.topic(topic) for topic in _ORDER]
    found: dict[int, Bounds] = {}
    stands: dict[int, int] = {}
    for at in sorted(
        range(len(ranges)), key=lambda at: order.index(ranges[at].topic) if ranges[at].topic in order else 0
    ):
        one = ranges[at]
        if one.topic == settings.topic(Topic.DECISIONS) and one.end is None and not isinstance(log, FileLog):
            _await_decisions(log, one, stands.get(one.partition, 0))
        found[at] = one.resolved(log)
        if one.topic == settings.topic(Topic.LEDGER) and one.end is None and not isinstance(log, FileLog):
            stands[one.partition] = _stands(log, one, found[at])
    return [found[at] for at in range(len(ranges))]


def _stands(log: LogSource, ledger: OffsetRange, within: Bounds) -> int:
    """The lifecycle offset up to which the ledger is there; 0 where nothing says so."""
    key, window, start = position_key(ledger.partition), _LATEST, within.end
    while start > within.first:
        start, end = max(within.first, start - window), start
        latest = None
        for stored in log.read(ledger.topic, ledger.partition, start, end):
            latest = stored.value if stored.key == key else latest
        if latest is not None:
            try:
                return decode_position(latest).next_offset
            except (UndecodableRecord, ContractViolation):
                return 0
        window *= 4
    return 0


def _await_decisions(log: LogSource, decisions: OffsetRange, stands: int) -> None:
    deadline = time.monotonic() + _SETTLES_S
    while _decided_to(log, decisions) < stands and time.monotonic() < deadline:
        time.sleep(_PAUSE_S)


def _decided_to(log: LogSource, decisions: OffsetRange) -> int:
    found = DecisionLog(log, decisions.topic, decisions.partition)
    try:
        latest = next(found.before(found.bounds.end), None)
    except NotADecision:  # then an audit says more
        return 2**63
    return 0 if latest is None else latest.decision.source.offset + 1
