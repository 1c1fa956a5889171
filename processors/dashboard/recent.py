"""The newest decisions of a run, read only where somebody looks."""

from collections import Counter, deque
from collections.abc import Iterator

from rollbook.processors.dashboard.answers import Count, DecisionLine
from rollbook.schemas.codec import ContractViolation, UndecodableRecord, decode_as
from rollbook.schemas.records.decision import Decision

MOST = 500
MOST_BYTES = 4 * 1024 * 1024
_NAMED = 8
_SHOWN = 500
"""Characters of a text."""


class Recent:
    """At most `MOST`, and of about `MOST_BYTES`."""

    def __init__(self) -> None:
        self._kept: deque[tuple[int, int, bytes]] = deque(maxlen=MOST)
        self._read: dict[int, DecisionLine] = {}
        """By offset, what was asked for before."""

    def add(self, time_ms: int, offset: int, value: bytes) -> None:
        """A decision was read."""
        self._kept.append((time_ms, offset, value))

    def trim(self) -> None:
        """Let go what is too much; once for many that were added."""
        size = sum(len(value) for _, _, value in self._kept)
        while size > MOST_BYTES and len(self._kept) > 1:
            size -= len(self._kept.popleft()[2])
        oldest = self._kept[0][1]
        if len(self._read) > 2 * MOST:
            self._read = {offset: line for offset, line in self._read.items() if offset >= oldest}

    def lines(self) -> Iterator[DecisionLine]:
        """Newest first; none of bytes that are no decision."""
        for time_ms, offset, value in reversed(self._kept):
            line = self._read.get(offset)
            if line is None:
                try:
                    line = _line(time_ms, offset, decode_as(Decision, value))
                except (UndecodableRecord, ContractViolation):
                    continue
                self._read[offset] = line
            yield line


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
