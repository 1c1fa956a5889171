"""The decisions of one partition, found by the record they decide.

There is exactly one for each lifecycle record, in the same order: so the decision of a record is found by bisection,
without reading from the beginning; between decisions that were read before it is found at once.
"""

from bisect import bisect_left
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from itertools import dropwhile

from rollbook.replay.history.file import FileLog
from rollbook.replay.history.source import LogSource, StoredRecord
from rollbook.schemas.codec import ContractViolation, UndecodableRecord, decode_as
from rollbook.schemas.errors import BadInput
from rollbook.schemas.records.decision import Decision

# Back from a record in growing windows: most of what is looked for is near, and each window costs a jump.
_FIRST_WINDOW, _LAST_WINDOW = 64, 1_024
_READ_THROUGH = 1_000
# One decision in so many is kept as a landmark: between two of them lies less than a jump costs.
_APART = 64
_CLOSE = 4 * _APART


@dataclass(frozen=True, slots=True)
class Decided:
    """A decision and the record that carries it."""

    stored: StoredRecord
    decision: Decision


class NotADecision(BadInput):
    """Somebody else has written to the decisions topic."""

    def __init__(self, place: str, problem: str) -> None:
        self.place = place
        super().__init__(f"{place} is not a decision ({problem}): nobody but the processor may write there")


class DecisionLog:
    """The decisions of a partition, as far as there are any when it is made."""

    def __init__(self, log: LogSource, topic: str, partition: int) -> None:
        self._log = log
        self.topic = topic
        self.partition = partition
        self.bounds = log.bounds(topic, partition)
        self._landmarks: list[tuple[int, int]] = []
        """Of decisions that were read: the offset of the record, and their own. Ascending in both."""

    def read(self, start: int | None = None, end: int | None = None) -> Iterator[Decided]:
        """The decisions at offsets [start, end) of their own topic; left out: from the first, to the last."""
        start = self.bounds.first if start is None else start
        end = self.bounds.end if end is None else end
        if isinstance(self._log, FileLog):
            # Who looks a decision up reads no further, and would not be told that the file was changed.
            self._log.check(self.topic, self.partition)
        if start < end:
            for stored in self._log.read(self.topic, self.partition, start, end):
                decided = Decided(stored, _decode(stored))
                self._note(decided)
                yield decided

    def before(self, offset: int) -> Iterator[Decided]:
        """The decisions below an offset of their own topic, the latest first."""
        window = _FIRST_WINDOW
        while offset > self.bounds.first:
            start = max(self.bounds.first, offset - window)
            yield from reversed(list(self.read(start, offset)))
            offset, window = start, min(4 * window, _LAST_WINDOW)

    def locate(self, source_offset: int) -> int:
        """The offset of the first decision of a record at `source_offset` or later; the end where there is none."""
        first = next(self.since(source_offset), None)
        return self.bounds.end if first is None else first.stored.offset

    def since(self, source_offset: int) -> Iterator[Decided]:
        """The decisions of the records at `source_offset` and later."""
        low, high = self._between(source_offset)
        while high - low > _CLOSE:
            middle = (low + high) // 2
            found = next(self.read(middle, high), None)
            if found is not None and found.decision.source.offset < source_offset:
                low = found.stored.offset + 1
            else:
                high = middle
        return dropwhile(lambda decided: decided.decision.source.offset < source_offset, self.read(low))

    def of(self, source_offsets: Iterable[int]) -> Iterator[Decided]:
        """The decisions of the records at these offsets of the lifecycle topic, ascending; undecided ones are left
        out."""
        stream: Iterator[Decided] = iter(())
        latest: Decided | None = None
        for wanted in sorted(set(source_offsets)):
            if latest is None or wanted - latest.decision.source.offset > _READ_THROUGH:
                stream = self.since(wanted)
                latest = next(stream, None)
            while latest is not None and latest.decision.source.offset < wanted:
                latest = next(stream, None)
            if latest is None:
                return
            if latest.decision.source.offset == wanted:
                yield latest

    def _note(self, decided: Decided) -> None:
        source, offset = decided.decision.source.offset, decided.stored.offset
        at = bisect_left(self._landmarks, (source, offset))
        near = self._landmarks[max(0, at - 1) : at + 1]
        if all(abs(source - known) >= _APART for known, _ in near):
            self._landmarks.insert(at, (source, offset))

    def _between(self, source_offset: int) -> tuple[int, int]:
        """What is known of the place of the first decision of a record at this offset or later: [low, high]."""
        at = bisect_left(self._landmarks, (source_offset, -1))
        low = self._landmarks[at - 1][1] + 1 if at > 0 else self.bounds.first
        return low, self._landmarks[at][1] if at < len(self._landmarks) else self.bounds.end


def _decode(stored: StoredRecord) -> Decision:
    try:
        return decode_as(Decision, stored.value or b"")
    except (UndecodableRecord, ContractViolation) as error:
        raise NotADecision(stored.place, str(error)) from None
