"""Which payloads a stretch of the lifecycle topic names: a bit for each offset, whatever the stretch's length.

Who may write a record can name anything in it: what cannot be a payload of the log is counted, and passed over.
"""

from collections.abc import Callable, Iterable, Iterator
from typing import Any

from rollbook.replay.history.container import Section
from rollbook.replay.history.source import StoredRecord
from rollbook.schemas.codec import UndecodableRecord, unwrap

_PARTS = ("segments", "items", "recordings")
"""The fields of lifecycle records whose elements may each have a payload."""
_BLOCK = 4_096
"""Offsets that share their bits; a multiple of 8."""


class _Offsets:
    """A set of them, in blocks: one that lies far from all others costs no more than a block."""

    def __init__(self) -> None:
        self._blocks: dict[int, bytearray] = {}

    def add(self, offset: int) -> None:
        block, at = divmod(offset, _BLOCK)
        bits = self._blocks.get(block)
        if bits is None:
            bits = self._blocks[block] = bytearray(_BLOCK // 8)
        bits[at // 8] |= 1 << at % 8

    def __len__(self) -> int:
        return sum(int.from_bytes(bits).bit_count() for bits in self._blocks.values())

    def __iter__(self) -> Iterator[int]:
        """Ascending."""
        for block in sorted(self._blocks):
            for at, byte in enumerate(self._blocks[block]):
                if byte:
                    yield from (block * _BLOCK + 8 * at + bit for bit in range(8) if byte >> bit & 1)


class Referenced:
    """The payloads named by the records noted so far. `topic`: where they lie; `end_of`: the first offset of one of its
    partitions that nothing can have been written at, 0 for one that there is not; `beside`: sections that are taken
    whole, so that what lies there is not taken once more. `unknown`: how many references were to something else."""

    def __init__(self, topic: str, end_of: Callable[[int], int], beside: Iterable[Section] = ()) -> None:
        self._topic = topic
        self._end_of = end_of
        self._beside = [one for one in beside if one.topic == topic]
        self._offsets: dict[int, _Offsets] = {}
        self.unknown = 0
        self.ends: dict[int, int] = {}
        """Of the partitions of which something behind the end was named."""

    def note(self, record: StoredRecord) -> None:
        """A lifecycle record; what cannot be decoded names none."""
        try:
            fields = unwrap(record.value or b"").fields
        except UndecodableRecord:
            return
        for name in _PARTS:
            for part in fields.get(name) or ():
                if isinstance(part, dict) and part.get("payload") is not None:
                    self._note(part["payload"])

    def sections(self) -> tuple[Section, ...]:
        """One a partition, from the first payload named to the last."""
        return tuple(
            Section(topic=self._topic, partition=partition, start=first, end=last + 1, only_referenced=True)
            for partition, offsets in sorted(self._offsets.items())
            for first, last in [_ends(offsets)]
        )

    def offsets(self, section: Section) -> Iterator[int]:
        """Those of a section, ascending."""
        return iter(self._offsets[section.partition])

    def count(self, section: Section) -> int:
        """How many they are."""
        return len(self._offsets[section.partition])

    def _note(self, ref: dict[str, Any]) -> None:
        partition, offsets = ref["partition"], ref["offsets"]
        end = self._end_of(partition) if ref["topic"] == self._topic and partition >= 0 else 0
        if not all(0 <= offset < end for offset in offsets):
            self.unknown += 1
            if end:
                self.ends[partition] = end
            return
        taken = [one for one in self._beside if one.partition == partition]
        for offset in offsets:
            if not any(one.start <= offset < one.end for one in taken):
                self._offsets.setdefault(partition, _Offsets()).add(offset)


def _ends(offsets: _Offsets) -> tuple[int, int]:
    first = last = -1
    for offset in offsets:
        first, last = (offset if first < 0 else first), offset
    return first, last
