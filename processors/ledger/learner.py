"""LearnerStarted, CheckpointSaved, and what every record of a learner must pass: fence, end, holder, first answer."""

from collections.abc import Sequence

from rollbook.processors.ledger.matrix import CheckpointPhase, LearnerPhase, StateOf, row
from rollbook.processors.ledger.moves import give_back, orphan_policies, quarantine_tainted
from rollbook.processors.ledger.store import Run, is_open
from rollbook.processors.ledger.verdict import (
    UPDATES_ROLLED_BACK,
    At,
    UpdateRecord,
    Verdict,
    mass_change,
    mass_count,
    of_update,
    subject,
)
from rollbook.processors.lifecycle import Event
from rollbook.processors.reasons import Reason
from rollbook.schemas.records.decision import Outcome
from rollbook.schemas.records.ledger import (
    Answer,
    CheckpointState,
    LearnerState,
    UpdateState,
    UpdateStatus,
)
from rollbook.schemas.records.update import Checkpoint, CheckpointSaved, LearnerStarted


def learner_started(run: Run, record: LearnerStarted, at: At) -> Verdict:
    """Compare-and-set on the learner's epoch. What the learner committed and its checkpoint does not contain is undone;
    a start from no checkpoint undoes all of it."""
    known = run.learners.get(record.learner_id)
    if known is not None and known.content == at.content and known.incarnation == record.incarnation:
        return _answer(Outcome.DUPLICATE, Reason.DUPLICATE, record)
    found = row(StateOf.LEARNER, "LearnerStarted", _phase(known, record.expected_epoch))
    if found.outcome is not Outcome.ACCEPTED:
        epoch = 0 if known is None else known.epoch
        return _answer(found.outcome, found.reason, record, detail=f"current epoch {epoch}")
    contained = 0
    if record.checkpoint is not None:
        saved = _saved(run, record.checkpoint)
        found = row(StateOf.CHECKPOINT, "LearnerStarted", _phase_of_checkpoint(saved, record.learner_id))
        if saved is None or found.outcome is not Outcome.ACCEPTED:
            return _answer(found.outcome, found.reason, record, detail=record.checkpoint.id)
        contained = saved.commit_order
    run.learners.put(
        record.learner_id,
        LearnerState(
            learner_id=record.learner_id, epoch=at.sequence, incarnation=record.incarnation, content=at.content
        ),
    )
    return _start_anew(run, record, contained)


def _phase(known: LearnerState | None, named_epoch: int) -> LearnerPhase | None:
    """What the learner is to a record that names one of its epochs."""
    if named_epoch != (0 if known is None else known.epoch):
        return LearnerPhase.OTHER_EPOCH
    if known is None:
        return None
    return LearnerPhase.FENCED if known.fenced else LearnerPhase.CURRENT


def _saved(run: Run, wanted: Checkpoint) -> CheckpointState | None:
    """The checkpoint of this id and digest."""
    saved = run.checkpoints.get(wanted.id)
    return saved if saved is not None and saved.digest == wanted.digest else None


def _phase_of_checkpoint(saved: CheckpointState | None, learner_id: str) -> CheckpointPhase | None:
    if saved is None:
        return None
    if saved.learner_id != learner_id:
        return CheckpointPhase.FOREIGN
    return CheckpointPhase.ORPHANED if saved.orphaned else CheckpointPhase.STANDING


def _start_anew(run: Run, record: LearnerStarted, contained: int) -> Verdict:
    """End the learner's open updates, and undo those of its standing commits that come after `contained`."""
    mine = [u for u in run.updates.values() if u.learner is not None and u.learner.learner_id == record.learner_id]
    opened = [update for update in mine if is_open(update)]
    undone = [u for u in mine if u.status is UpdateStatus.COMMITTED and u.commit_order > contained]
    orphans = orphan_policies(run, [update.update_id for update in (*opened, *undone)])
    checkpoints = _orphan_checkpoints(run, record.learner_id, undone)
    rolled_back = roll_back(run, undone)
    released = [name for update in opened for name in end_update(run, update, UpdateStatus.ABORTED, Event.ABORT)]
    quarantined = quarantine_tainted(run, orphans, "an orphaned policy")
    changes = (
        *mass_change("updates aborted", (update.update_id for update in opened)),
        *mass_change("trajectories released", released),
        *mass_change(UPDATES_ROLLED_BACK, (update.update_id for update in undone)),
        *mass_change("trajectories rolled back", rolled_back),
        *mass_count("trajectories rolled back, but forgotten", sum(update.forgotten for update in undone)),
        *mass_change("checkpoints orphaned", checkpoints),
        *mass_change("policies orphaned", map(str, orphans)),
        *quarantined,
    )
    return Verdict(
        Outcome.ACCEPTED,
        Reason.OK,
        subject=subject("learner", record.learner_id),
        learner_id=record.learner_id,
        mass_changes=changes,
    )


def _orphan_checkpoints(run: Run, learner_id: str, undone: Sequence[UpdateState]) -> list[str]:
    """Orphan the learner's checkpoints that contain an undone update: those saved at its commit or later."""
    if not undone:
        return []
    first = min(update.commit_order for update in undone)
    ids = []
    for saved in run.checkpoints.values():
        if saved.learner_id == learner_id and saved.commit_order >= first and not saved.orphaned:
            run.checkpoints.put(saved.checkpoint_id, saved.but(orphaned=True))
            ids.append(saved.checkpoint_id)
    return ids


def checkpoint_saved(run: Run, record: CheckpointSaved, at: At) -> Verdict:
    """A learner's state is on disk. It contains the learner's standing commits up to its last update."""
    fenced = refuse_fenced(run, record)
    if fenced is not None:
        return fenced
    known = run.checkpoints.get(record.checkpoint.id)
    if known is not None and known.content == at.content:
        return _of_checkpoint(record, Outcome.DUPLICATE, Reason.DUPLICATE)
    found = row(StateOf.CHECKPOINT, "CheckpointSaved", _phase_of_checkpoint(known, record.learner.learner_id))
    if found.outcome is not Outcome.ACCEPTED:
        return _of_checkpoint(record, found.outcome, found.reason)
    order = 0
    if record.last_update_id is not None:
        last = run.updates.get(record.last_update_id)
        mine = last is not None and last.learner is not None and last.learner.learner_id == record.learner.learner_id
        contained = row(StateOf.UPDATE, "CheckpointSaved", None if last is None or not mine else last.status)
        if last is None or contained.outcome is not Outcome.ACCEPTED:
            return _of_checkpoint(record, contained.outcome, contained.reason)
        order = last.commit_order
    run.checkpoints.put(
        record.checkpoint.id,
        CheckpointState(
            checkpoint_id=record.checkpoint.id,
            learner_id=record.learner.learner_id,
            content=at.content,
            digest=record.checkpoint.digest,
            commit_order=order,
        ),
    )
    return _of_checkpoint(record, found.outcome, found.reason)


def _of_checkpoint(record: CheckpointSaved, outcome: Outcome, reason: Reason) -> Verdict:
    return Verdict(
        outcome,
        reason,
        subject=subject("checkpoint", record.checkpoint.id),
        update_id=record.last_update_id,
        learner_id=record.learner.learner_id,
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
    ended = {"status": status, "held": (), "answers": (), "in_doubt": False, "end_content": content}
    run.updates.put(update.update_id, update.but(**ended))
    return list(update.held)


def roll_back(run: Run, updates: Sequence[UpdateState]) -> list[str]:
    """Undo committed updates: what they trained on is given back. None of them stands any more before the first row is,
    or one of them could take it."""
    for update in updates:
        undone = {"status": UpdateStatus.ROLLED_BACK, "trained": ()}
        run.updates.put(update.update_id, update.but(**undone))
    names = [name for update in updates for name in update.trained]
    for name in names:
        trained = run.trajectories.get(name)
        assert trained is not None, "what is forgotten is no longer named"
        give_back(run, trained, Event.ROLL_BACK)
    return names


def refuse(run: Run, record: UpdateRecord, at: At, *, part: int = 0, row_of: str = "") -> Verdict | None:
    """The answer to a learner's record that does not reach its items, in the order that protects training: fenced,
    ended, not the holder, answered before, refused by the update's state. None: judge the items. `row_of` names its
    rows in the table of records and states where its type does not."""
    fenced = refuse_fenced(run, record)
    if fenced is not None:
        return fenced
    record_type = type(record).__name__
    update = run.updates.get(record.update_id)
    found = row(StateOf.UPDATE, row_of or record_type, None if update is None else update.status)
    if update is None:
        return None if found.outcome is Outcome.ACCEPTED else of_update(record, found.outcome, found.reason)
    ours = update.learner == record.learner
    if not is_open(update) and not (found.outcome is Outcome.ACCEPTED and ours):
        if update.end_content == at.content and ours:
            return of_update(record, Outcome.DUPLICATE, Reason.DUPLICATE, update.status.value)
        return of_update(record, Outcome.REJECTED, Reason.UPDATE_ENDED, update.status.value)
    if not ours:
        return of_update(record, Outcome.REJECTED, Reason.NOT_HOLDER, "another learner or epoch holds it")
    for first in update.answers:
        if first.record_type == record_type and first.part == part:
            if first.content == at.content:
                return of_update(record, Outcome.DUPLICATE, Reason.DUPLICATE, items=first.items)
            return of_update(record, Outcome.REJECTED, Reason.CONFLICT, f"part {part} was another {first.record_type}")
    return None if found.outcome is Outcome.ACCEPTED else of_update(record, found.outcome, found.reason)


def refuse_fenced(run: Run, record: UpdateRecord | CheckpointSaved) -> Verdict | None:
    """The answer to a record whose learner is not in this epoch."""
    assert record.learner is not None, "an operator's record has no epoch"
    learner_id = record.learner.learner_id
    state = run.learners.get(learner_id)
    found = row(StateOf.LEARNER, type(record).__name__, _phase(state, record.learner.epoch))
    if found.outcome is Outcome.ACCEPTED:
        return None
    detail = f"current epoch {0 if state is None else state.epoch}"
    if isinstance(record, CheckpointSaved):
        verdict = _of_checkpoint(record, found.outcome, found.reason)
        return verdict._replace(detail=detail)
    return of_update(record, found.outcome, found.reason, detail)


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
    return update.but(answers=(*update.answers, first))
