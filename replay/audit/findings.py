"""What an audit can find: kinds, each with what it means, and one finding with both sides."""

from dataclasses import dataclass
from enum import StrEnum


class Kind(StrEnum):
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
    Kind.RECORD_GONE: "a decision names a record that is not there: it was removed, or the order was changed",
    Kind.RECORD_CHANGED: "the record is not the one that was decided: it was changed, or another was put in its place",
    Kind.RECORD_UNDECIDED: "a record among decided ones has no decision: it was added, or its decision was removed",
    Kind.DECISION_CHANGED: "the decision's own link of the chain does not vouch for it: it was changed",
    Kind.DECISION_DIFFERS: "the decision is not the one that the rules give: chain and rules differ from here on",
    Kind.NO_DECISION: "this is no decision: somebody else wrote there",
    Kind.LEDGER_DIFFERS: "the compacted ledger is not what the decisions lead to",
    Kind.DRIFT_DIFFERS: "the drift shown at an Admit does not follow from the log-probs that it refers to",
    Kind.EVIDENCE_DIFFERS: "a payload is not what the record that names it vouches for",
    Kind.RECORDING_DIFFERS: "a recording of an optimizer step is not the one that was sealed",
    Kind.CHECKPOINT_CHAIN: "a checkpoint notes a chain head that no earlier decision has: the history was rewritten",
    Kind.HEAD_UNKNOWN: "no decision has the chain head that was noted elsewhere: the history was rewritten",
    Kind.ANCHOR_DIFFERS: "the anchor is not the state that its digest vouches for: it was edited",
    Kind.FILE_CHANGED: "the exported file does not hold what was exported",
    Kind.BUNDLE_DIFFERS: "a bundle is not what the log gives",
}


@dataclass(frozen=True, slots=True)
class Finding:
    """One thing that does not fit. `place`: where it lies. `said` and `derived`: what is there, and what should be, by
    the name of a field or figure, only where they differ."""

    kind: Kind
    place: str
    what: str
    said: dict[str, str]
    derived: dict[str, str]
