"""The newest decisions of a run, read only where somebody looks."""

from collections import Counter, deque
from collections.abc import Iterator

from rollbook.processors.dashboard.answers import Count, DecisionLine
from rollbook.processors.dashboard.fold import lean
from rollbook.schemas.codec import UndecodableRecord

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

    def lines(self, partition: int) -> Iterator[DecisionLine]:
        """Newest first; none of bytes that are no decision."""
        for time_ms, offset, value in reversed(self._kept):
            line = self._read.get(offset)
            if line is None:
                try:
                    line = _line(time_ms, offset, partition, value)
                except UndecodableRecord:
                    continue
                self._read[offset] = line
            yield line


def _line(time_ms: int, offset: int, partition: int, value: bytes) -> DecisionLine:
    """Without making the record: one that names very many rows would hold everybody up."""
    head = lean.beginning(value)
    rest = lean.whole(value, head[7])
    reasons = Counter(row[1] for row in rest.rows)
    named = [row[0] for row in rest.rows[:_NAMED]]
    if not named and rest.subject_kind == b"trajectory":
        named = [rest.subject_id]
    return DecisionLine(
        sequence=head[1],
        time_ms=time_ms,
        partition=partition,
        source_offset=head[2],
        offset=offset,
        record_type=_text(head[3]),
        outcome=lean.OUTCOMES[head[4]],
        violation=bool(head[5]),
        reason=_text(head[6]),
        detail=_text(rest.detail)[:_SHOWN],
        subject_kind=_text(rest.subject_kind),
        subject_id=_text(rest.subject_id)[:_SHOWN],
        update_id=_text(rest.update),
        items=tuple(Count(name=_text(reason), count=reasons[reason]) for reason in sorted(reasons)),
        trajectory_ids=tuple(map(_text, named)),
    )


def _text(raw: bytes) -> str:
    return raw.decode(errors="replace")
