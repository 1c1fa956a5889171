"""One record of a thing's history: what was decided of it, and how the thing changed."""

from collections.abc import Sequence
from dataclasses import dataclass

from rollbook.infra.looking.refold import Step
from rollbook.infra.looking.said import said
from rollbook.processors.reasons import Reason
from rollbook.schemas.records.common import LearnerRef
from rollbook.schemas.records.decision import ItemDecision, MassChange, Outcome, Released


@dataclass(frozen=True, slots=True)
class Noted:
    """A record that concerned the thing. `before` and `after` are its states, equal where it did not change; the
    revision is that after the record."""

    offset: int
    at_ms: int
    sequence: int
    record: str
    by: str
    outcome: Outcome
    violation: bool
    reason: str
    meaning: str
    detail: str
    before: str
    after: str
    revision: int | None
    lag: int | None
    freshness: str | None
    mean_abs_log_ratio: float | None
    update_id: str | None
    learner: LearnerRef | None
    said: str


def note(
    step: Step,
    before: str,
    after: str,
    *,
    trajectory_id: str | None = None,
    revision: int | None = None,
    released: Sequence[Released] = (),
    item: ItemDecision | None = None,
    among: Sequence[MassChange] = (),
) -> Noted:
    """A step as it concerned a thing. `released` are the facts about it that waited for the record, `item` what was
    decided of it among others, whose reason wins over the record's, `among` the mass changes that took it along."""
    decision = step.decision
    reason = decision.reason if item is None else item.reason
    parts = [said(step.record, trajectory_id)] if step.record is not None else []
    parts += [f"{fact.record_type} of offset {fact.offset} waited for it: {fact.reason}" for fact in released]
    parts += [f"{change.count} {change.predicate}" for change in among]
    return Noted(
        offset=step.stored.offset,
        at_ms=step.stored.timestamp_ms,
        sequence=decision.sequence,
        record=decision.record_type,
        by="" if step.record is None else f"{step.record.header.source.kind.value} {step.record.header.source.id}",
        outcome=decision.outcome,
        violation=decision.violation,
        reason=reason,
        meaning=meaning_of(reason),
        detail=decision.detail,
        before=before,
        after=after,
        revision=revision,
        lag=None if item is None else item.lag,
        freshness=None if item is None else item.freshness,
        mean_abs_log_ratio=None if item is None else item.mean_abs_log_ratio,
        update_id=decision.update_id,
        learner=_learner(step),
        said="; ".join(part for part in parts if part),
    )


def among(step: Step, name: str, *kinds: str) -> list[MassChange]:
    """The mass changes of these kinds that a changed thing was among: those that name it, else those that name only the
    first of many."""
    alike = [change for change in step.decision.mass_changes if change.predicate.startswith(kinds)]
    named = [change for change in alike if name in change.first_ids]
    return named or [change for change in alike if change.count > len(change.first_ids)]


def _learner(step: Step) -> LearnerRef | None:
    """As the record names it: the decision has the learner's epoch of then, which may have fenced the record."""
    named = getattr(step.record, "learner", None)
    return named if isinstance(named, LearnerRef) else step.decision.learner


def meaning_of(reason: str) -> str:
    """What a reason says; nothing where a newer version gave it."""
    return Reason(reason).meaning if reason in {one.value for one in Reason} else ""
