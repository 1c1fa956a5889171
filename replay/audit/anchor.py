"""An anchor: the ledger as it is before a lifecycle offset, from which an audit can start where the log before it is
gone. It is part of a sealed file."""

import hashlib
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, replace
from pathlib import Path

from rollbook.processors.ledger.fold import Ledger
from rollbook.processors.ledger.rebuild import Rebuild
from rollbook.replay.audit.decisions import Stretch
from rollbook.replay.audit.findings import Finding, FindingKind
from rollbook.replay.audit.ledger import Kept
from rollbook.replay.audit.noted import noted_digest
from rollbook.replay.history.container import AnchorNote
from rollbook.replay.history.file import FileLog
from rollbook.replay.history.ranges import OffsetRange
from rollbook.replay.history.source import LogSource
from rollbook.schemas.errors import BadInput
from rollbook.schemas.text import visible


@dataclass(frozen=True, slots=True)
class Anchor:
    """`rows`: those of the ledger topic, by key; `path`: its file; `noted`: its digest, as it was noted elsewhere."""

    note: AnchorNote
    rows: tuple[tuple[bytes, bytes], ...]
    path: Path
    noted: str | None = None

    @property
    def place(self) -> str:
        return visible(self.path, limit=4096)

    def check(self) -> Iterator[Finding]:
        """Whether its rows are those that its digest is over, and that the one that was noted."""
        if self.noted not in (None, self.note.digest):
            sides = {"digest": self.note.digest}, {"digest": str(self.noted)}
            what = "its digest is not the one that was noted elsewhere"
            yield Finding(FindingKind.ANCHOR_DIFFERS, self.place, what, *sides)
        found = digest_of(self.note.next_offset, self.rows)
        if found != self.note.digest:
            yield Finding(
                FindingKind.ANCHOR_DIFFERS, self.place, "its state", {"digest": self.note.digest}, {"digest": found}
            )

    def compared(self, ledger: Ledger, run_id: str | None) -> tuple[list[Finding], frozenset[str]]:
        """What is not as in a ledger that was folded up to it, row by row, of one run or of all that it has; and the
        runs whose figures count other decisions there, which are held against nothing."""
        run_id = run_id or self.note.run
        places = dict.fromkeys((key for key, _ in self.rows), self.place)
        kept = Kept(self.place, self.note.partition, self._rebuilt(run_id), places)
        found = [
            replace(one, kind=FindingKind.ANCHOR_DIFFERS, place=self.place) for one in kept.differences(ledger, run_id)
        ]
        return found, kept.apart

    def begin(self, wanted: OffsetRange) -> OffsetRange:
        """A range whose START is left open begins here."""
        here = (wanted.topic, wanted.partition) == (self.note.lifecycle, self.note.partition)
        behind = isinstance(wanted.end, int) and wanted.end <= self.note.next_offset
        is_open = wanted.start is None or (wanted.from_first and not behind)
        return replace(wanted, start=self.note.next_offset) if here and is_open else wanted

    def check_fits(self, stretch: Stretch) -> None:
        """Raises BadInput for a stretch that does not begin where it ends, or of another run."""
        note = self.note
        mine = (note.lifecycle, note.partition, note.next_offset)
        if mine != (stretch.lifecycle, stretch.partition, stretch.within.first):
            raise BadInput(
                f"{self.place} is the state before {note.lifecycle}:{note.partition}:{note.next_offset}-, and the "
                f"range begins at {stretch.lifecycle}:{stretch.partition}:{stretch.within.first}: give one that fits"
            )
        if note.run is not None and note.run != stretch.run_id:
            raise BadInput(f"{self.place} is the state of run {note.run} alone: add --run {note.run}")

    def ledger(self, stretch: Stretch) -> Ledger:
        """The state to fold the stretch into. Raises BadInput where it does not fit it."""
        self.check_fits(stretch)
        return self._rebuilt(stretch.run_id).ledger()

    def _rebuilt(self, run_id: str | None) -> Rebuild:
        rebuild = Rebuild(self.note.partition, self.note.topic_partitions, run_id)
        for key, value in self.rows:
            rebuild.take(key, value)
        return rebuild


def anchor_of(path: Path, *, even_changed: bool = False, noted: str | None = None) -> Anchor:
    """The anchor of a sealed file; `even_changed`: as an audit takes it, which tells what does not fit; `noted`: its
    digest, as it was noted elsewhere. Raises BadInput for a file that has none and for what is no digest, NotTheLog for
    a file that was changed."""
    noted = None if noted is None else noted_digest(noted, "anchor's digest", "the seal printed it")
    with FileLog([path]) as log:
        for note, _, stored in log.anchors(even_changed=even_changed):
            rows = tuple((record.key or b"", record.value or b"") for record in stored)
            return Anchor(note, rows, path, noted)
    raise BadInput(f"{visible(path)} has no anchor: give a file made by `rollbook history seal`")


def anchors_within(log: LogSource, stretch: Stretch) -> list[Anchor]:
    """Those of sealed files in which the stretch lies, up to its end: what they say can be derived."""
    if not isinstance(log, FileLog):
        return []
    found = [
        Anchor(note, tuple((one.key or b"", one.value or b"") for one in stored), path)
        for note, path, stored in log.anchors()
        if (note.lifecycle, note.partition) == (stretch.lifecycle, stretch.partition)
        and stretch.within.first < note.next_offset <= stretch.within.end
        and (stretch.run_id is None or note.run in (None, stretch.run_id))
    ]
    return sorted(found, key=lambda one: one.note.next_offset)


def digest_of(next_offset: int, rows: Iterable[tuple[bytes, bytes]]) -> str:
    """sha256 over the offset and each row's key and value with their lengths."""
    digest = hashlib.sha256(next_offset.to_bytes(8, "big"))
    for row in rows:
        for part in row:
            digest.update(len(part).to_bytes(8, "big") + part)
    return digest.hexdigest()
