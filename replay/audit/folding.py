"""Folds a stretch of the log, a part at a time, and notes what does not fit: the audit's hand."""

import time
from collections.abc import Iterator
from dataclasses import dataclass, field, replace

from rollbook.processors.ledger.fold import Ledger
from rollbook.replay.audit.chains import Chains
from rollbook.replay.audit.decisions import Deriver, Differs, Stretch, no_decision
from rollbook.replay.audit.evidence import Checked, EvidenceCheck
from rollbook.replay.audit.findings import Finding, FindingKind
from rollbook.replay.audit.ledger import Kept, NotHere, read_ledger
from rollbook.replay.history.decisions import DecisionLog
from rollbook.replay.history.file import FileLog
from rollbook.replay.history.progress import Watch
from rollbook.replay.history.source import Bounds, LogSource, place_of

_WATCH_EVERY = 1_000
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
    findings: list[Finding] = field(default_factory=list)
    differs: bool = False
    decided: int = 0
    undecided: int = 0
    undecided_at: str = ""
    end: int = 0
    decided_to: int = 0
    decisions: Bounds = _NONE

    def __post_init__(self) -> None:
        self.end = self.decided_to = self.stretch.within.first

    @property
    def folded_to(self) -> int:
        """The first lifecycle offset that may not be folded: what follows the last decided record is of other runs, or
        of none."""
        return self.decided_to if self.undecided else self.end

    def fold(self, end: int) -> None:
        """On to a lifecycle offset."""
        within = Bounds(self.folded_to, end)
        deriver, size = Deriver(self.log, replace(self.stretch, within=within), self.ledger), end - within.first
        try:
            for count, derived in enumerate(deriver.derive()):
                if count % _WATCH_EVERY == 0:
                    self.watch("folded", derived.stored.offset - within.first, size)
                self.chains.take(derived)
                if self.evidence is not None:
                    self.findings += self.evidence.take(derived)
        except Differs as difference:
            self.findings.append(difference.finding)
            self.differs = True
        self.watch("folded", size, size)
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
        """Records that are decided are there, also behind the log's end where it was asked for. A file may hold more
        decisions than records, and nothing follows from it."""
        if self.differs or isinstance(self.log, FileLog):
            return
        try:
            with no_decision():
                self.findings += self._gone_behind_the_end()
        except Differs as foreign:
            self.findings.append(foreign.finding)

    def _gone_behind_the_end(self) -> Iterator[Finding]:
        of = self.stretch
        decisions = DecisionLog(self.log, of.decisions, of.partition)
        end = self.log.bounds(of.lifecycle, of.partition).end
        if not of.is_open and of.within.end < end:
            return
        for decided in decisions.since(end):
            if of.run_id in (None, decided.decision.run_id):
                self.differs = True
                place = place_of(of.lifecycle, of.partition, decided.decision.source.offset)
                what = f"the {decided.decision.record_type or 'record'} that was decided at {decided.stored.place}"
                yield Finding(FindingKind.RECORD_GONE, place, f"{what} is behind the log's end", {}, {})
                return

    def check_ledger(self, topic: str) -> None:
        """Hold the compacted ledger against the state where it stands; the log goes on while it is folded, so it is
        folded on to there. Raises NotHere."""
        of, deadline = self.stretch, time.monotonic() + _SETTLES_S
        is_live = not isinstance(self.log, FileLog)  # then what is written together is there together, soon
        while True:
            kept = read_ledger(self.log, topic, of.partition, self.ledger.topic_partitions, of.run_id)
            if (foreign := kept.no_position()) is not None:
                self.findings.append(foreign)
                return
            stands = kept.next_offset
            wanted = stands if of.is_open else min(stands, of.within.end)
            if is_live and of.is_open and stands > (end := self.log.bounds(of.lifecycle, of.partition).end):
                self.findings.append(kept.misplaced("it is behind the log's end", end))
                return
            if is_live and wanted > self.folded_to:
                self.fold(wanted)
            if self.differs:
                return
            if not is_live or (self.decided_to <= stands and wanted <= self.folded_to) or time.monotonic() > deadline:
                break
            time.sleep(_PAUSE_S)
        if self.decided_to <= stands <= self.folded_to:
            self.findings += kept.differences(self.ledger, of.run_id)
        elif is_live and (found := self._contradicted(kept, stands, wanted)) is not None:
            self.findings.append(found)
        else:
            raise NotHere(f"{topic}:{of.partition} stands at lifecycle offset {stands}, the audit at {self.decided_to}")

    def _contradicted(self, kept: Kept, stands: int, wanted: int) -> Finding | None:
        """By where the ledger stands: it is written together with the decisions."""
        if stands < self.decided_to:
            return kept.misplaced("it is before the end of the decisions", self.decided_to)
        if wanted > self.folded_to:
            what = f"it has no decision, and {kept.topic}:{kept.partition} stands behind it, at {stands}"
            return Finding(FindingKind.RECORD_UNDECIDED, self.undecided_at, what, {}, {})
        return None
