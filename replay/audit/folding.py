"""Folds a stretch of the log, a part at a time, and notes what does not fit: the audit's hand."""

import time
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass, field, replace
from itertools import islice

from rollbook.processors.ledger.fold import Ledger
from rollbook.replay.audit.chains import Chains
from rollbook.replay.audit.decisions import Deriver, Differs, Stretch, no_decision
from rollbook.replay.audit.evidence import Checked, EvidenceCheck
from rollbook.replay.audit.findings import Finding, FindingKind, Findings
from rollbook.replay.audit.ledger import Kept, NotHere, read_ledger
from rollbook.replay.history.decisions import Decided, DecisionLog
from rollbook.replay.history.file import FileLog
from rollbook.replay.history.source import Bounds, LogSource, StoredRecord, place_of
from rollbook.replay.history.strays import is_stray
from rollbook.replay.progress import Watch

_SETTLES_S = 5.0
"""How long the partitions of a transaction may take to show it, one after the other."""
_PAUSE_S = 0.05
_NONE = Bounds(0, 0)


@dataclass(slots=True)
class Folding:
    """`ledger`: the state before the stretch, into which it is folded. `end`: the first lifecycle offset that was not
    looked at; others as of a `Deriver`."""

    log: LogSource
    stretch: Stretch
    ledger: Ledger
    chains: Chains
    evidence: EvidenceCheck | None
    watch: Watch
    findings: Findings = field(default_factory=Findings)
    differs: bool = False
    decided: int = 0
    undecided: int = 0
    undecided_at: str = ""
    end: int = 0
    decided_to: int = 0
    decisions: Bounds = _NONE
    uncounted: frozenset[str] = frozenset()
    """Runs whose figures in the compacted ledger could not be held against those derived."""
    behind: int = 0
    """Decisions of records behind the end of what was given, which other files may have."""
    _of_file: Kept | None = None
    """The compacted ledger of files, until it was held against the state where it stands."""
    _is_held: bool = False

    def __post_init__(self) -> None:
        self.end = self.decided_to = self.stretch.within.first
        if isinstance(self.log, FileLog):
            with suppress(NotHere):
                kept = self._kept()
                self._of_file = kept if kept.no_position() is None else None

    @property
    def folded_to(self) -> int:
        """The first lifecycle offset that may not be folded: what follows the last decided record is of other runs, or
        of none."""
        return self.decided_to if self.undecided else self.end

    def fold(self, end: int) -> None:
        """On to a lifecycle offset, past the place where the ledger of a file stands: what it says there can be
        derived, and who edited it would lower its position, too."""
        kept = self._of_file
        if kept is not None and self.end < kept.next_offset <= end:
            self._fold(kept.next_offset)
            if not (self.differs or self.undecided):
                self._compare(kept)
                self._of_file, self._is_held = None, True
            if self.differs or kept.next_offset == end:
                return
        self._fold(end)

    def _fold(self, end: int) -> None:
        within = Bounds(self.folded_to, end)
        deriver = Deriver(self.log, replace(self.stretch, within=within), self.ledger)
        try:
            for derived in deriver.derive("folded", self.watch):
                self.chains.take(derived)
                if self.evidence is not None:
                    self.findings.take(self.evidence.take(derived))
        except Differs as difference:
            self.findings.add(difference.finding)
            self.differs = True
        if deriver.decided:
            self.decided_to = deriver.decided_to
            first = self.decisions.first if self.decided else deriver.decisions.first
            self.decisions = Bounds(first, deriver.decisions.end)
        self.decided += deriver.decided
        self.undecided, self.undecided_at, self.end = deriver.undecided, deriver.undecided_at, end

    @property
    def checked(self) -> Checked:
        return self.evidence.checked if self.evidence is not None else Checked()

    def finish(self) -> Iterator[Finding]:
        """What evidence is left to look at."""
        return iter(()) if self.evidence is None else self.evidence.finish()

    def check_tail(self) -> None:
        """Records that are decided are there, also behind the log's end where it was asked for."""
        if self.differs or not self._is_to_end():
            return
        try:
            with no_decision():
                behind = self._behind_the_end()
                if isinstance(self.log, FileLog) and not self._is_whole(self.stretch.decisions):
                    self.behind = sum(1 for _ in behind)
                else:
                    self.findings.take(map(self._gone, islice(behind, 1)))
        except Differs as foreign:
            self.findings.add(foreign.finding)

    def _is_to_end(self) -> bool:
        if isinstance(self.log, FileLog):
            return self.stretch.is_open and self.end == self._log_end
        return self.stretch.is_open or self.stretch.within.end >= self._log_end

    def _is_whole(self, topic: str) -> bool:
        """Whether a file holds all that belongs together, of lifecycle and another topic: one that was exported by
        itself, or ranges that were given an END, may have more of one than of the other."""
        assert isinstance(self.log, FileLog)
        of = self.stretch
        places = (of.lifecycle, of.partition), (topic, of.partition)
        return self._is_to_end() and self.log.end_together(*places)

    @property
    def _log_end(self) -> int:
        return self.log.bounds(self.stretch.lifecycle, self.stretch.partition).end

    def _behind_the_end(self) -> Iterator[Decided]:
        of = self.stretch
        for decided in DecisionLog(self.log, of.decisions, of.partition).since(self._log_end):
            if of.run_id in (None, decided.decision.run_id):
                yield decided

    def _gone(self, decided: Decided) -> Finding:
        self.differs = True
        place = place_of(self.stretch.lifecycle, self.stretch.partition, decided.decision.source.offset)
        what = f"the {decided.decision.record_type or 'record'} that was decided at {decided.stored.place}"
        return Finding(FindingKind.RECORD_GONE, place, f"{what} is behind the log's end", {}, {})

    def check_ledger(self) -> None:
        """Hold the compacted ledger against the state where it stands. Raises NotHere."""
        if isinstance(self.log, FileLog):
            if not self._is_held:
                self._check_held(self._of_file or self._kept())
        else:
            self._check_live()

    def _kept(self) -> Kept:
        return read_ledger(self.log, self.stretch, self.ledger.topic_partitions)

    def _compare(self, kept: Kept) -> None:
        self.findings.take(kept.differences(self.ledger, self.stretch.run_id))
        self.uncounted = kept.apart

    def _check_held(self, kept: Kept) -> None:
        """Where it stands in no part that was folded: of a file it is what its decisions lead to, or something before
        or behind."""
        if (foreign := kept.no_position()) is not None:
            self.findings.add(foreign)
            return
        stands, undecided = kept.next_offset, self._undecided_before(kept.next_offset)
        if self.decided_to <= stands <= self.end and undecided is None:
            self._compare(kept)
        elif stands < self.decided_to or not self._is_whole(kept.topic):
            raise self._elsewhere(kept)
        elif undecided is not None:
            self.findings.add(self._undecided(kept, undecided.place))
        else:
            self.findings.add(kept.misplaced("it is behind the end of the lifecycle", self.end))

    def _undecided_before(self, offset: int) -> StoredRecord | None:
        """The first record without a decision, of those below an offset."""
        of, within = self.stretch, Bounds(self.decided_to, min(offset, self.end))
        for stored in replace(of, within=within).records(self.log) if within.first < within.end else ():
            if of.run_id is None or not is_stray(stored, self.ledger.topic_partitions):
                return stored
        return None

    def _check_live(self) -> None:
        """The log goes on while it is folded, so it is folded on to where the ledger stands."""
        of, deadline = self.stretch, time.monotonic() + _SETTLES_S
        while True:
            kept = self._kept()
            if (foreign := kept.no_position()) is not None:
                self.findings.add(foreign)
                return
            stands = kept.next_offset
            wanted = stands if of.is_open else min(stands, of.within.end)
            if of.is_open and stands > (end := self._log_end):
                self.findings.add(kept.misplaced("it is behind the log's end", end))
                return
            if wanted > self.folded_to:
                self.fold(wanted)
            if self.differs:
                return
            # What is written together is there together, soon.
            if (self.decided_to <= stands and wanted <= self.folded_to) or time.monotonic() > deadline:
                break
            time.sleep(_PAUSE_S)
        if self.decided_to <= stands <= self.folded_to:
            self._compare(kept)
        elif stands < self.decided_to:
            self.findings.add(kept.misplaced("it is before the end of the decisions", self.decided_to))
        elif wanted > self.folded_to:
            self.findings.add(self._undecided(kept, self.undecided_at))
        else:
            raise self._elsewhere(kept)

    def _undecided(self, kept: Kept, place: str) -> Finding:
        what = f"it has no decision, and {kept.topic}:{kept.partition} stands behind it, at {kept.next_offset}"
        return Finding(FindingKind.RECORD_UNDECIDED, place, what, {}, {})

    def _elsewhere(self, kept: Kept) -> NotHere:
        stands = f"{kept.topic}:{kept.partition} stands at lifecycle offset {kept.next_offset}"
        return NotHere(f"{stands}, the audit at {self.decided_to}")
