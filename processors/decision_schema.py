"""Under which schema a decision is written: that of the run's fold version, whichever package writes it.

Decisions are chained over their bytes, and an audit derives these bytes again for ever. So two versions of this package
must write the same bytes for a record, also while an upgrade is under way, and a later one those of before: a Decision
that grows is a new fold version, and its runs are told apart by the version that each decision names.
"""

from collections.abc import Callable
from functools import cache

from rollbook.schemas.codec import encoder
from rollbook.schemas.records.decision import Decision

DECISION_SCHEMAS = {1: "364c0e3b520e78cf"}
"""From which fold version on which schema, by its fingerprint. `chain` is the last field of each."""


@cache
def decision_writer(fold_version: int) -> Callable[[Decision], bytes]:
    """What writes the decisions of a fold version. That of an unconfigured run, and of records of no run, is 0: their
    schema stays the first."""
    since = max((version for version in DECISION_SCHEMAS if version <= fold_version), default=min(DECISION_SCHEMAS))
    return encoder(Decision, DECISION_SCHEMAS[since])
