"""Which payloads a stretch of the lifecycle topic names: a bit for each offset, whatever the stretch's length."""

from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any

from rollbook.replay.history.container import Section
from rollbook.replay.history.source import StoredRecord
from rollbook.schemas.codec import UndecodableRecord, unwrap

_PARTS = ("segments", "items", "recordings")
"""The fields of lifecycle records whose elements may each have a payload."""


@dataclass(slots=True)
class _Bits:
    base: int
    bits: bytearray = field(default_factory=bytearray)

    def add(self, offset: int) -> None:
        if offset < self.base:
            # By doubling, so that offsets which come downwards cost no more than others.
            more = max((self.base - offset + 7) // 8, len(self.bits))
            more = min(more, self.base // 8)
            self.bits[:0] = bytes(more)
            self.base -= 8 * more
        at = offset - self.base
        if at >= 8 * len(self.bits):
            self.bits.extend(bytes(max(at // 8 + 1 - len(self.bits), len(self.bits))))
        self.bits[at // 8] |= 1 << at % 8

    def offsets(self) -> Iterator[int]:
        for at, byte in enumerate(self.bits):
            if byte:
                yield from (self.base + 8 * at + bit for bit in range(8) if byte >> bit & 1)


class Referenced:
    """The payloads named by the records noted so far."""

    def __init__(self) -> None:
        self._bits: dict[tuple[str, int], _Bits] = {}

    def note(self, record: StoredRecord) -> None:
        """A lifecycle record; what cannot be decoded names none."""
        try:
            fields = unwrap(record.value or b"").fields
        except UndecodableRecord:
            return
        for name in _PARTS:
            for part in fields.get(name) or ():
                if isinstance(part, dict) and part.get("payload") is not None:
                    self._add(part["payload"])

    def sections(self) -> tuple[Section, ...]:
        """One a partition, from the first payload named to the last."""
        return tuple(
            Section(topic=topic, partition=partition, start=first, end=last + 1, only_referenced=True)
            for (topic, partition), bits in sorted(self._bits.items())
            for first, last in [_ends(bits)]
        )

    def offsets(self, section: Section) -> Iterator[int]:
        """Those of a section, ascending."""
        return self._bits[section.topic, section.partition].offsets()

    def _add(self, ref: dict[str, Any]) -> None:
        place = (ref["topic"], ref["partition"])
        for offset in ref["offsets"]:
            if place not in self._bits:
                self._bits[place] = _Bits(offset - offset % 8)
            self._bits[place].add(offset)


def _ends(bits: _Bits) -> tuple[int, int]:
    first = last = -1
    for offset in bits.offsets():
        first, last = (offset if first < 0 else first), offset
    return first, last
