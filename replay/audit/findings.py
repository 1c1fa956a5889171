"""What an audit can find: kinds, each with what it means, one finding with both sides, and the first of many."""

from collections.abc import Iterable
from dataclasses import dataclass, field
from enum import StrEnum

from rollbook.schemas.errors import BadInput
from rollbook.schemas.text import visible

_MOST = 100


class FindingKind(StrEnum):
    """What does not fit."""

    RECORD_GONE = "record_gone"
    RECORD_CHANGED = "record_changed"
    RECORD_UNDECIDED = "record_undecided"
    DECISION_CHANGED = "decision_changed"
    DECISION_DIFFERS = "decision_differs"
    NO_DECISION = "no_decision"
    LEDGER_DIFFERS = "ledger_differs"
    DRIFT_DIFFERS = "drift_differs"
    EVIDENCE_DIFFERS = "evidence_differs"
    RECORDING_DIFFERS = "recording_differs"
    CHECKPOINT_CHAIN = "checkpoint_chain"
    HEAD_UNKNOWN = "head_unknown"
    ANCHOR_DIFFERS = "anchor_differs"
    FILE_CHANGED = "file_changed"
    BUNDLE_DIFFERS = "bundle_differs"


MEANING = {
    FindingKind.RECORD_GONE: "a decision names a record that is not there: it was removed, or the order was changed",
    FindingKind.RECORD_CHANGED: "the record is not the one that was decided: changed, or another put in its place",
    FindingKind.RECORD_UNDECIDED: "a record among decided ones has no decision: it was added, or that was removed",
    FindingKind.DECISION_CHANGED: "the decision's own link of the chain does not vouch for it: it was changed",
    FindingKind.DECISION_DIFFERS: "the decision is not the one that the rules give: from here on it all differs",
    FindingKind.NO_DECISION: "this is no decision: somebody else wrote there",
    FindingKind.LEDGER_DIFFERS: "the compacted ledger is not what the decisions lead to",
    FindingKind.DRIFT_DIFFERS: "the drift shown at an Admit does not follow from the log-probs that it refers to",
    FindingKind.EVIDENCE_DIFFERS: "a payload is not what the record that names it vouches for",
    FindingKind.RECORDING_DIFFERS: "a recording of an optimizer step is not the one that was sealed",
    FindingKind.CHECKPOINT_CHAIN: "a checkpoint notes a head that no earlier decision has: the history was rewritten",
    FindingKind.HEAD_UNKNOWN: "no decision has the chain head that was noted elsewhere: the history was rewritten",
    FindingKind.ANCHOR_DIFFERS: "the anchor is not the state that its digest vouches for: it was edited",
    FindingKind.FILE_CHANGED: "the exported file does not hold what was exported",
    FindingKind.BUNDLE_DIFFERS: "a bundle is not what the log gives",
}


@dataclass(frozen=True, slots=True)
class Finding:
    """One thing that does not fit. `place`: where it lies. `said` and `derived`: what is there, and what should be, by
    the name of a field or figure, only where they differ."""

    kind: FindingKind
    place: str
    what: str
    said: dict[str, str] = field(hash=False)
    derived: dict[str, str] = field(hash=False)


def unfit(finding: Finding, therefore: str) -> BadInput:
    """Nothing is said of a history in which this was found. `therefore`: what it is that cannot be."""
    where = f"{visible(finding.place, 4096)}: {finding.what}"
    return BadInput(f"{where}: {MEANING[finding.kind]}; `rollbook audit` shows both sides, and {therefore}")


@dataclass(slots=True)
class Findings:
    """The first of them, and how many `more` there are: of a history that does not fit at all as many as of rows."""

    first: list[Finding] = field(default_factory=list)
    more: int = 0

    def add(self, one: Finding) -> None:
        """One of which there are few: it is kept, however many there are of others."""
        self.first.append(one)

    def take(self, found: Iterable[Finding]) -> None:
        """Some of which there may be any number."""
        for one in found:
            if len(self.first) < _MOST:
                self.first.append(one)
            else:
                self.more += 1
