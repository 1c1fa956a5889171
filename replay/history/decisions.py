"""The decisions of one partition, found by the record they decide.

There is exactly one for each lifecycle record, in the same order: so the decision of a record is found by bisection,
without an index and without reading from the beginning.
"""

from collections.abc import Iterable, Iterator
from dataclasses import dataclass

from rollbook.replay.history.source import LogSource, StoredRecord
from rollbook.schemas.codec import ContractViolation, UndecodableRecord, decode_as
from rollbook.schemas.errors import BadInput
from rollbook.schemas.records.decision import Decision

# Back from a record in growing windows: most of what is looked for is near, and each window costs a jump.
_FIRST_WINDOW, _LAST_WINDOW = 64, 1_024
_READ_THROUGH = 1_000


@dataclass(frozen=True, slots=True)
class Decided:
    """A decision and the record that carries it."""

    stored: StoredRecord
    decision: Decision


class DecisionLog:
    """The decisions of a partition, as far as there are any when it is made."""

    def __init__(self, log: LogSource, topic: str, partition: int) -> None:
        self._log = log
        self.topic = topic
        self.partition = partition
        self.bounds = log.bounds(topic, partition)

    def read(self, start: int | None = None, end: int | None = None) -> Iterator[Decided]:
        """The decisions at offsets [start, end) of their own topic; left out: from the first, to the last."""
        start = self.bounds.first if start is None else start
        end = self.bounds.end if end is None else end
        if start < end:
            for stored in self._log.read(self.topic, self.partition, start, end):
                yield Decided(stored, _decode(stored))

    def before(self, offset: int) -> Iterator[Decided]:
        """The decisions below an offset of their own topic, the latest first."""
        window = _FIRST_WINDOW
        while offset > self.bounds.first:
            start = max(self.bounds.first, offset - window)
            yield from reversed(list(self.read(start, offset)))
            offset, window = start, min(4 * window, _LAST_WINDOW)

    def locate(self, source_offset: int) -> int:
        """The first offset from which on all decisions are of records at `source_offset` or later."""
        low, high = self.bounds.first, self.bounds.end
        while low < high:
            middle = (low + high) // 2
            found = next(self.read(middle, high), None)
            if found is None:
                high = middle
            elif found.decision.source.offset < source_offset:
                low = found.stored.offset + 1
            else:
                high = middle
        return low

    def of(self, source_offsets: Iterable[int]) -> Iterator[Decided]:
        """The decisions of the records at these offsets of the lifecycle topic, ascending; undecided ones are left
        out."""
        stream: Iterator[Decided] = iter(())
        latest: Decided | None = None
        for wanted in sorted(set(source_offsets)):
            if latest is None or wanted - latest.decision.source.offset > _READ_THROUGH:
                stream = self.read(self.locate(wanted))
                latest = next(stream, None)
            while latest is not None and latest.decision.source.offset < wanted:
                latest = next(stream, None)
            if latest is None:
                return
            if latest.decision.source.offset == wanted:
                yield latest


def _decode(stored: StoredRecord) -> Decision:
    try:
        return decode_as(Decision, stored.value or b"")
    except (UndecodableRecord, ContractViolation) as error:
        raise BadInput(
            f"{stored.place} is not a decision ({error}): nobody but the processor may write there"
        ) from None
