"""What a handler answers; the fold makes a chained `Decision` of it."""

from collections.abc import Iterable
from typing import NamedTuple

from rollbook.processors.gates import Freshness
from rollbook.processors.reasons import Reason
from rollbook.schemas.digests import digest_of_digests
from rollbook.schemas.records.decision import ItemDecision, MassChange, Outcome, Released, Subject
from rollbook.schemas.records.ledger import TrajectoryState
from rollbook.schemas.records.update import Abort, Admit, Commit, RecordingSealed, Renew, Reserve, UpdateStarted

UpdateRecord = Reserve | Admit | UpdateStarted | Commit | Abort | Renew | RecordingSealed
"""The records that belong to one update."""

FIRST_IDS = 100
"""How many ids a mass change names; `digest` vouches for the others."""

UPDATES_ROLLED_BACK = "updates rolled back"
"""The predicate of the updates that a LearnerStarted undid: always the end of its learner's standing commits in commit
order. Whoever makes bundles of updates looks for it."""


class At(NamedTuple):
    """Where a record stands: its offset, the decision's sequence, and its content digest (all but the header)."""

    offset: int
    sequence: int
    content: str


class Verdict(NamedTuple):
    """The outcome of one record. A tuple: each record makes one, and a frozen dataclass takes four times as long."""

    outcome: Outcome
    reason: Reason
    detail: str = ""
    subject: Subject | None = None
    update_id: str | None = None
    learner_id: str | None = None
    items: tuple[ItemDecision, ...] = ()
    released: tuple[Released, ...] = ()
    mass_changes: tuple[MassChange, ...] = ()
    missing_workers: tuple[str, ...] = ()
    mismatched_workers: tuple[str, ...] = ()
    violation: bool = False


def subject(kind: str, name: object, artifact_hash: str = "") -> Subject:
    """What a decision is about."""
    return Subject.trusted(kind=kind, id=str(name), artifact_hash=artifact_hash)  # names come from valid records


def of_update(
    record: UpdateRecord,
    outcome: Outcome,
    reason: Reason,
    detail: str = "",
    *,
    items: tuple[ItemDecision, ...] = (),
    mass_changes: tuple[MassChange, ...] = (),
    violation: bool = False,
) -> Verdict:
    """The verdict on a record of an update. `violation`: in observe mode, taken as a fact against a rule."""
    return Verdict(
        outcome,
        reason,
        detail=detail,
        subject=subject("update", record.update_id),
        update_id=record.update_id,
        learner_id=None if record.learner is None else record.learner.learner_id,
        items=items,
        mass_changes=mass_changes,
        violation=violation,
    )


def item(
    trajectory_id: str,
    reason: Reason,
    before: TrajectoryState | None = None,
    after: TrajectoryState | None = None,
    *,
    lag: int | None = None,
    freshness: Freshness | None = None,
    ratio: float | None = None,
    unknown: str | None = None,
) -> ItemDecision:
    """What became of one trajectory; without `after` it is unchanged. `unknown`: its state where `before` is none."""
    now = after or before
    return ItemDecision.trusted(
        trajectory_id=trajectory_id,
        reason=reason._value_,  # `value` is looked up in Python
        state_before=unknown if before is None else before.status._value_,
        state_after=None if now is None else now.status._value_,
        revision_before=None if before is None else before.revision,
        revision_after=None if now is None else now.revision,
        lag=lag,
        freshness=None if freshness is None else freshness._value_,
        mean_abs_log_ratio=ratio,
        generated_offset=None if now is None else now.generated_offset,
        reward_offset=None if now is None else now.reward_offset,
    )


def mass_change(predicate: str, ids: Iterable[str]) -> tuple[MassChange, ...]:
    """A mass change, or nothing when it is of nothing."""
    ordered = tuple(sorted(ids))
    if not ordered:
        return ()
    digest = digest_of_digests(ordered)
    return (MassChange(predicate=predicate, count=len(ordered), digest=digest, first_ids=ordered[:FIRST_IDS]),)


def mass_count(predicate: str, count: int) -> tuple[MassChange, ...]:
    """A mass change of what has no names any more, or nothing when it is of nothing."""
    return (MassChange(predicate=predicate, count=count, digest=digest_of_digests(()), first_ids=()),) if count else ()


def outcome_of(items: Iterable[ItemDecision], applied: Iterable[Reason]) -> tuple[Outcome, Reason]:
    """The outcome of a record by those of its items: accepted if any was applied, else pending, else duplicate; else
    rejected for the first item's reason."""
    reasons = [item.reason for item in items]
    for good in applied:
        if good in reasons:
            return Outcome.ACCEPTED, Reason.OK
    if Reason.PENDING in reasons:
        return Outcome.PENDING, Reason.PENDING
    if all(reason == Reason.DUPLICATE for reason in reasons):
        return Outcome.DUPLICATE, Reason.DUPLICATE
    return Outcome.REJECTED, Reason(next(reason for reason in reasons if reason != Reason.DUPLICATE))
