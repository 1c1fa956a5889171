"""LearnerStarted, and what every record of a learner must pass: fence, end, holder, first answer."""

from rollbook.processors.ledger.moves import give_back, orphan_policies, quarantine_tainted
from rollbook.processors.ledger.store import Run, is_open
from rollbook.processors.ledger.verdict import At, UpdateRecord, Verdict, mass_change, of_update, subject
from rollbook.processors.lifecycle import Event
from rollbook.processors.reasons import Reason
from rollbook.schemas.records.decision import Outcome
from rollbook.schemas.records.ledger import Answer, LearnerState, UpdateState, UpdateStatus
from rollbook.schemas.records.update import LearnerStarted


def learner_started(run: Run, record: LearnerStarted, at: At) -> Verdict:
    """Compare-and-set on the learner's epoch. A start from no checkpoint undoes all that the learner committed."""
    known = run.learners.get(record.learner_id)
    if known is not None and known.content == at.content and known.incarnation == record.incarnation:
        return _answer(Outcome.DUPLICATE, Reason.DUPLICATE, record)
    epoch = 0 if known is None else known.epoch
    if record.expected_epoch != epoch:
        return _answer(Outcome.REJECTED, Reason.EPOCH_CONFLICT, record, detail=f"current epoch {epoch}")
    if record.checkpoint is not None:
        return _answer(Outcome.REJECTED, Reason.UNKNOWN_CHECKPOINT, record, detail=record.checkpoint.id)
    run.learners.put(
        record.learner_id,
        LearnerState(
            learner_id=record.learner_id, epoch=at.sequence, incarnation=record.incarnation, content=at.content
        ),
    )
    return _start_anew(run, record)


def _start_anew(run: Run, record: LearnerStarted) -> Verdict:
    mine = [u for u in run.updates.values() if u.learner is not None and u.learner.learner_id == record.learner_id]
    opened = [update for update in mine if is_open(update)]
    committed = [update for update in mine if update.status is UpdateStatus.COMMITTED]
    orphans = orphan_policies(run, [update.update_id for update in (*opened, *committed)])
    released, rolled_back = [], []
    for update in opened:
        released += end_update(run, update, UpdateStatus.ABORTED, Event.ABORT)
    for update in committed:
        rolled_back += roll_back(run, update)
    quarantined = quarantine_tainted(run, orphans)
    changes = (
        *mass_change("updates aborted", (update.update_id for update in opened)),
        *mass_change("trajectories released", released),
        *mass_change("updates rolled back", (update.update_id for update in committed)),
        *mass_change("trajectories rolled back", rolled_back),
        *mass_change("policies orphaned", map(str, orphans)),
        *mass_change("trajectories quarantined with an orphaned policy", quarantined),
    )
    return Verdict(
        Outcome.ACCEPTED,
        Reason.OK,
        subject=subject("learner", record.learner_id),
        learner_id=record.learner_id,
        mass_changes=changes,
    )


def _answer(outcome: Outcome, reason: Reason, record: LearnerStarted, detail: str = "") -> Verdict:
    about = subject("learner", record.learner_id)
    return Verdict(outcome, reason, detail=detail, subject=about, learner_id=record.learner_id)


def end_update(run: Run, update: UpdateState, status: UpdateStatus, *events: Event, content: str = "") -> list[str]:
    """End an open update: what it holds takes the events; its answers are forgotten, its id never reopens."""
    for trajectory_id in update.held:
        held = run.trajectories.get(trajectory_id)
        assert held is not None, "what an update holds is never forgotten"
        give_back(run, held, *events)
    ended = update.model_copy(update={"status": status, "held": (), "answers": (), "end_content": content})
    run.updates.put(update.update_id, ended)
    return list(update.held)


def roll_back(run: Run, update: UpdateState) -> list[str]:
    """Undo a committed update: what it trained on is rewarded again, or quarantined with its policy."""
    for trajectory_id in update.trained:
        trained = run.trajectories.get(trajectory_id)
        if trained is not None:
            give_back(run, trained, Event.ROLL_BACK)
    run.updates.put(update.update_id, update.model_copy(update={"status": UpdateStatus.ROLLED_BACK}))
    return list(update.trained)


def refuse(run: Run, record: UpdateRecord, at: At, *, part: int = 0, may_open: bool = False) -> Verdict | None:
    """The answer to a learner's record that does not reach its items, in the order that protects training: fenced,
    ended, not the holder, answered before. None: judge the items. `may_open`: an unknown update is no refusal."""
    fenced = refuse_fenced(run, record)
    if fenced is not None:
        return fenced
    update = run.updates.get(record.update_id)
    if update is None:
        return None if may_open else of_update(record, Outcome.REJECTED, Reason.NOT_HOLDER, "no such update")
    if not is_open(update):
        if update.end_content == at.content and update.learner == record.learner:
            return of_update(record, Outcome.DUPLICATE, Reason.DUPLICATE, update.status.value)
        return of_update(record, Outcome.REJECTED, Reason.UPDATE_ENDED, update.status.value)
    if update.learner != record.learner:
        return of_update(record, Outcome.REJECTED, Reason.NOT_HOLDER, "another learner or epoch holds it")
    for first in update.answers:
        if first.record_type == type(record).__name__ and first.part == part:
            if first.content == at.content:
                return of_update(record, Outcome.DUPLICATE, Reason.DUPLICATE, items=first.items)
            return of_update(record, Outcome.REJECTED, Reason.CONFLICT, f"part {part} was another {first.record_type}")
    return None


def refuse_fenced(run: Run, record: UpdateRecord) -> Verdict | None:
    """The answer to a record whose learner is not in this epoch."""
    assert record.learner is not None, "an operator's record has no epoch"
    state = run.learners.get(record.learner.learner_id)
    if state is not None and not state.fenced and state.epoch == record.learner.epoch:
        return None
    epoch = 0 if state is None else state.epoch
    return of_update(record, Outcome.REJECTED, Reason.LEARNER_FENCED, f"current epoch {epoch}")


def remember(update: UpdateState, record: UpdateRecord, part: int, at: At, verdict: Verdict) -> UpdateState:
    """The update with the first answer to a command kept."""
    first = Answer(
        record_type=type(record).__name__,
        part=part,
        content=at.content,
        outcome=verdict.outcome,
        reason=verdict.reason.value,
        items=verdict.items,
    )
    return update.model_copy(update={"answers": (*update.answers, first)})
