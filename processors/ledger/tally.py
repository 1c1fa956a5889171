"""What has happened in a run so far, beyond the events of the lifecycle: why something failed, and what was refused."""

from rollbook.processors.ledger.figures import count_consumed, looked_at
from rollbook.processors.ledger.store import Run
from rollbook.processors.ledger.verdict import Verdict
from rollbook.processors.reasons import Reason
from rollbook.schemas.records.decision import Outcome

_WITH_A_CAUSE = {
    "GenerationFailed": Reason.GENERATION_FAILED,
    "Discarded": Reason.DISCARDED,
}
GATES = ("Reserve", "Admit")
"""Records of which rows are counted as refused, and not the records."""
PASSED = (Reason.OK, Reason.RESERVED, Reason.IDEMPOTENT_RETRY)
"""What a gate says of rows that it did not refuse."""
NO = (Outcome.REJECTED, Outcome.INVALID, Outcome.UNDECODABLE)


def tally(run: Run, record_type: str, verdict: Verdict) -> None:
    """Count the causes and refusals of a decision: rows at the gates, elsewhere records."""
    counted = _counted(record_type, verdict)
    for name in sorted(set(counted)) if counted else ():
        run.tally(name, counted.count(name))
    if record_type == "Commit" and verdict.outcome is Outcome.ACCEPTED:
        count_consumed(run, [one.lag for one in verdict.items if one.reason == Reason.TRAINED])
    looked_at(run)


def _counted(record_type: str, verdict: Verdict) -> list[str]:
    if record_type in GATES and verdict.items:
        if verdict.outcome is Outcome.DUPLICATE:
            return []
        return [f"{record_type} refused: {one.reason}" for one in verdict.items if one.reason not in PASSED]
    if verdict.outcome in NO:
        return [f"{record_type or 'record'} refused: {verdict.reason.value}"]
    done = _WITH_A_CAUSE.get(record_type)
    if done is None:
        return []
    return [f"{done.value}: {verdict.detail}" for one in verdict.items if one.reason == done]
