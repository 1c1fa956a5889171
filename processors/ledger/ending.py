"""Abort, Renew, LeaseExpired and RecordingSealed: how an update is kept alive, given up, and recorded."""

from rollbook.processors.ledger.learner import end_update, refuse, refuse_fenced
from rollbook.processors.ledger.matrix import OPERATORS_ABORT, StateOf, row
from rollbook.processors.ledger.moves import orphan_policies, quarantine_tainted
from rollbook.processors.ledger.store import Run, is_open
from rollbook.processors.ledger.verdict import At, Verdict, item, mass_change, of_update, subject
from rollbook.processors.lifecycle import Event
from rollbook.processors.reasons import Reason
from rollbook.schemas.records.decision import ItemDecision, MassChange, Outcome
from rollbook.schemas.records.ledger import SealedRank, UpdateState, UpdateStatus
from rollbook.schemas.records.update import Abort, AbortDisposition, LeaseExpired, RecordingSealed, Renew
from rollbook.schemas.types import MAX_ITEMS


def abort(run: Run, record: Abort, at: At) -> Verdict:
    """End an update without a commit: by its learner before UpdateStarted, by an operator at any time."""
    if record.learner is None:
        return _operators_abort(run, record, at)
    refusal = refuse(run, record, at)
    if refusal is not None:
        return refusal
    update = run.updates.get(record.update_id)
    if update is None:  # an Abort that overtook its Reserve ends the id all the same
        update = UpdateState(
            update_id=record.update_id,
            status=UpdateStatus.OPEN,
            learner=record.learner,
            config_version=run.head.config_version,
            opened_sequence=at.sequence,
            last_activity_offset=at.offset,
        )
    return _abort(run, record, update, at)


def _operators_abort(run: Run, record: Abort, at: At) -> Verdict:
    """After UpdateStarted it fences the learner: its weights may contain rows that are given back."""
    update = run.updates.get(record.update_id)
    found = row(StateOf.UPDATE, OPERATORS_ABORT, None if update is None else update.status)
    if update is None:
        return of_update(record, found.outcome, found.reason)
    if not is_open(update):
        if update.end_content == at.content:
            return of_update(record, Outcome.DUPLICATE, Reason.DUPLICATE, update.status.value)
        return of_update(record, found.outcome, found.reason, update.status.value)
    fenced: tuple[MassChange, ...] = ()
    if update.status is UpdateStatus.STARTED and update.learner is not None:
        learner = run.learners.get(update.learner.learner_id)
        assert learner is not None, "an open update has a started learner"
        run.learners.put(learner.learner_id, learner.but(fenced=True))
        fenced = _end_others(run, update)
    verdict = _abort(run, record, update, at)
    return verdict._replace(mass_changes=(*verdict.mass_changes, *fenced))


def _end_others(run: Run, update: UpdateState) -> tuple[MassChange, ...]:
    """A fenced learner cannot go on with its other updates: what is not started yet gives back what it holds."""
    assert update.learner is not None, "only a learner is fenced"
    others = [one for one in run.updates.open_of(update.learner.learner_id) if one.status is UpdateStatus.OPEN]
    orphans = orphan_policies(run, [one.update_id for one in others])
    released = [name for one in others for name in end_update(run, one, UpdateStatus.ABORTED, Event.ABORT)]
    return (
        *mass_change("updates aborted", (one.update_id for one in others)),
        *mass_change("trajectories released", released),
        *mass_change("policies orphaned", map(str, orphans)),
        *quarantine_tainted(run, orphans, "an orphaned policy"),
    )


def _abort(run: Run, record: Abort, update: UpdateState, at: At) -> Verdict:
    event = Event.QUARANTINE if record.disposition is AbortDisposition.QUARANTINE else Event.ABORT
    items, changes = _give_up(run, update, event, at)
    return of_update(
        record, Outcome.ACCEPTED, Reason(record.reason.value), record.text, items=items, mass_changes=changes
    )


def _give_up(
    run: Run, update: UpdateState, event: Event, at: At
) -> tuple[tuple[ItemDecision, ...], tuple[MassChange, ...]]:
    before = [run.trajectories.held(held) for held in update.held]
    orphans = orphan_policies(run, [update.update_id])
    end_update(run, update, UpdateStatus.ABORTED, event, content=at.content)
    quarantined = quarantine_tainted(run, orphans, "an orphaned policy")
    items = tuple(
        item(held.trajectory_id, Reason.RELEASED, held, run.trajectories.held(held.trajectory_id)) for held in before
    )
    changes = (
        *mass_change("policies orphaned", map(str, orphans)),
        *quarantined,
    )
    return items, changes


def renew(run: Run, record: Renew, at: At) -> Verdict:
    """The learner lives: the lease starts anew, and a started update is no longer in doubt."""
    refusal = refuse(run, record, at)
    if refusal is not None:
        return refusal
    update = run.updates.get(record.update_id)
    assert update is not None, "refuse answers for an unknown update"
    alive = update.but(last_activity_offset=at.offset, in_doubt=False)
    run.updates.put(record.update_id, alive)
    return of_update(record, Outcome.ACCEPTED, Reason.OK)


def lease_expired(run: Run, record: LeaseExpired, at: At) -> Verdict:
    """Before UpdateStarted the update is aborted; after it, and wherever a trainer waits for nothing, it is in doubt:
    its rows may be in living weights."""
    update = run.updates.get(record.update_id)
    found = row(StateOf.UPDATE, "LeaseExpired", None if update is None else update.status)
    refusal = None if found.outcome is Outcome.ACCEPTED else found.reason
    detail = "" if update is None or is_open(update) else update.status.value
    if update is not None and refusal is None:
        refusal = _alive(run, record, update)
    if update is None or refusal is not None:
        return _of_clerk(record, Outcome.REJECTED, refusal or found.reason, detail)
    if update.status is UpdateStatus.STARTED or run.observes:
        if update.in_doubt:
            return _of_clerk(record, Outcome.DUPLICATE, Reason.DUPLICATE)
        run.updates.put(record.update_id, update.but(in_doubt=True))
        return _of_clerk(record, Outcome.ACCEPTED, Reason.IN_DOUBT)
    items, changes = _give_up(run, update, Event.ABORT, at)
    return _of_clerk(record, Outcome.ACCEPTED, found.reason, items=items, changes=changes)


def _alive(run: Run, record: LeaseExpired, update: UpdateState) -> Reason | None:
    config = run.configs.get(update.config_version)
    assert config is not None, "configurations are never forgotten"
    if config.lease_ms == 0:
        return Reason.NO_LEASE
    return Reason.LEASE_RENEWED if record.basis < update.last_activity_offset else None


def _of_clerk(
    record: LeaseExpired,
    outcome: Outcome,
    reason: Reason,
    detail: str = "",
    items: tuple[ItemDecision, ...] = (),
    changes: tuple[MassChange, ...] = (),
) -> Verdict:
    return Verdict(
        outcome,
        reason,
        detail=detail,
        subject=subject("update", record.update_id),
        update_id=record.update_id,
        items=items,
        mass_changes=changes,
    )


def recording_sealed(run: Run, record: RecordingSealed, at: At) -> Verdict:
    """The recordings of one rank are written; may come after the commit, so an ended update is no refusal by itself."""
    fenced = refuse_fenced(run, record)
    if fenced is not None:
        return fenced
    update = run.updates.get(record.update_id)
    if update is None or update.learner != record.learner:
        return of_update(record, Outcome.REJECTED, Reason.NOT_HOLDER)
    found = row(StateOf.UPDATE, "RecordingSealed", update.status)
    if found.reason is Reason.UPDATE_ENDED:
        return of_update(record, found.outcome, found.reason, update.status.value)
    for sealed in update.sealed:
        if sealed.rank == record.rank:
            same = sealed.content == at.content
            outcome, reason = (Outcome.DUPLICATE, Reason.DUPLICATE) if same else (Outcome.REJECTED, Reason.CONFLICT)
            return of_update(record, outcome, reason, f"rank {record.rank}")
    if found.outcome is not Outcome.ACCEPTED:
        return of_update(record, found.outcome, found.reason)
    if len(update.sealed) >= MAX_ITEMS:
        return of_update(record, Outcome.REJECTED, Reason.UPDATE_FULL, f"{MAX_ITEMS} ranks")
    entry = SealedRank(rank=record.rank, content=at.content, offset=at.offset)
    run.updates.put(record.update_id, update.but(sealed=(*update.sealed, entry)))
    return of_update(record, Outcome.ACCEPTED, Reason.OK, f"rank {record.rank}")
