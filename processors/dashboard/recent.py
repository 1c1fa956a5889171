"""The newest decisions of a run, read only where somebody looks."""

from collections import Counter, deque
from collections.abc import Iterator
from dataclasses import dataclass

from rollbook.processors.dashboard.answers import Count, DecisionLine
from rollbook.schemas.codec import decode_as
from rollbook.schemas.records.decision import Decision

MOST = 500
MOST_BYTES = 4 * 1024 * 1024
_NAMED = 8
_SHOWN = 500
"""Characters of a text."""


@dataclass(slots=True)
class _Kept:
    time_ms: int
    offset: int
    value: bytes
    line: DecisionLine | None = None


class Recent:
    """At most so many, and of so many bytes."""

    def __init__(self) -> None:
        self._kept: deque[_Kept] = deque()
        self._size = 0

    def add(self, time_ms: int, offset: int, value: bytes) -> None:
        self._kept.append(_Kept(time_ms, offset, value))
        self._size += len(value)
        while len(self._kept) > MOST or (self._size > MOST_BYTES and len(self._kept) > 1):
            self._size -= len(self._kept.popleft().value)

    def lines(self) -> Iterator[DecisionLine]:
        """Newest first."""
        for kept in reversed(self._kept):
            if kept.line is None:
                kept.line = _line(kept.time_ms, kept.offset, decode_as(Decision, kept.value))
                self._size -= len(kept.value)
                kept.value = b""
            yield kept.line


def _line(time_ms: int, offset: int, decision: Decision) -> DecisionLine:
    reasons = Counter(one.reason for one in decision.items)
    subject = decision.subject
    named = [one.trajectory_id for one in decision.items[:_NAMED]]
    if not named and subject is not None and subject.kind == "trajectory":
        named = [subject.id]
    return DecisionLine(
        sequence=decision.sequence,
        time_ms=time_ms,
        partition=decision.source.partition,
        source_offset=decision.source.offset,
        offset=offset,
        record_type=decision.record_type,
        outcome=decision.outcome.value,
        violation=decision.violation,
        reason=decision.reason,
        detail=decision.detail[:_SHOWN],
        subject_kind="" if subject is None else subject.kind,
        subject_id="" if subject is None else subject.id[:_SHOWN],
        update_id=decision.update_id or "",
        items=tuple(Count(name=reason, count=reasons[reason]) for reason in sorted(reasons)),
        trajectory_ids=tuple(named),
    )
