"""UpdateStarted, Commit, Abort and RecordingSealed: an update from its first optimizer step to its end."""

from collections import Counter

from rollbook.processors.ledger.learner import end_update, refuse, refuse_fenced, remember
from rollbook.processors.ledger.moves import give_back, move, orphan_policies, quarantine_tainted
from rollbook.processors.ledger.store import Run, is_open
from rollbook.processors.ledger.verdict import At, Verdict, item, mass_change, of_update
from rollbook.processors.lifecycle import Event
from rollbook.processors.reasons import Reason
from rollbook.schemas.records.decision import ItemDecision, Outcome
from rollbook.schemas.records.ledger import SealedRank, TrajectoryState, UpdateState, UpdateStatus
from rollbook.schemas.records.run import DriftGate
from rollbook.schemas.records.update import (
    Abort,
    AbortDisposition,
    Commit,
    Disposition,
    DroppedItem,
    RecordingSealed,
    UpdateStarted,
)


def update_started(run: Run, record: UpdateStarted, at: At) -> Verdict:
    """From here on the rows may be in the weights; the decision lists what is held."""
    refusal = refuse(run, record, at)
    if refusal is not None:
        return refusal
    update = _known(run, record.update_id)
    for other in run.updates.open_of(record.learner.learner_id):
        if other.update_id != record.update_id and other.status is UpdateStatus.STARTED:
            return of_update(record, Outcome.REJECTED, Reason.OTHER_STARTED, other.update_id)
    items = tuple(item(held, Reason.HELD, _trajectory(run, held)) for held in update.held)
    verdict = of_update(record, Outcome.ACCEPTED, Reason.OK, items=items)
    started = update.model_copy(update={"status": UpdateStatus.STARTED})
    run.updates.put(record.update_id, remember(started, record, 0, at, verdict))
    return verdict


def commit(run: Run, record: Commit, at: At) -> Verdict:
    """The update is in the weights. It must name exactly what is held, and train only on what was admitted."""
    refusal = refuse(run, record, at)
    if refusal is not None:
        return refusal
    update = _known(run, record.update_id)
    wrong = _wrong_commit(run, record, update)
    if wrong is not None:
        return of_update(record, Outcome.REJECTED, *wrong)
    dropped = {drop.trajectory_id: drop for drop in record.dropped}
    items = tuple(_settle(run, update, held, dropped.get(held)) for held in update.held)
    order = run.head.commits + 1
    run.change_head(commits=order)
    run.updates.put(
        record.update_id,
        update.model_copy(
            update={
                "status": UpdateStatus.COMMITTED,
                "held": (),
                "answers": (),
                "end_content": at.content,
                "commit_order": order,
                "trained": tuple(held for held in update.held if held not in dropped),
            }
        ),
    )
    return of_update(record, Outcome.ACCEPTED, Reason.OK, items=items)


def _wrong_commit(run: Run, record: Commit, update: UpdateState) -> tuple[Reason, str] | None:
    if update.status is not UpdateStatus.STARTED:
        return Reason.NOT_STARTED, ""
    trained = {trajectory_id for step in record.steps for trajectory_id in step.trajectory_ids}
    dropped = [drop.trajectory_id for drop in record.dropped]
    named = [*trained, *dropped]
    if len(set(named)) != len(named) or set(named) != set(update.held):
        odd = sorted(set(named) ^ set(update.held)) or sorted(
            name for name, times in Counter(named).items() if times > 1
        )
        return Reason.NOT_HELD, odd[0]
    config = run.configs.get(update.config_version)
    assert config is not None, "configurations are never forgotten"
    if config.admission.drift_gate is DriftGate.REQUIRED:
        for trajectory_id in sorted(trained):
            if _trajectory(run, trajectory_id).admitted_ratio is None:
                return Reason.NOT_ADMITTED, trajectory_id
    return None


def _settle(run: Run, update: UpdateState, trajectory_id: str, drop: DroppedItem | None) -> ItemDecision:
    held = _trajectory(run, trajectory_id)
    if drop is None:
        after = move(run, held, Event.COMMIT)
        return item(trajectory_id, Reason.TRAINED, held, after, lag=held.lag, ratio=held.admitted_ratio)
    discard = (Event.DISCARD,) if drop.disposition is Disposition.DISCARD else ()
    after = give_back(run, held, Event.DROP, *discard)
    return item(trajectory_id, Reason.DROPPED, held, after, lag=held.lag, ratio=held.admitted_ratio)


def abort(run: Run, record: Abort, at: At) -> Verdict:
    """End an update without a commit: by its learner before UpdateStarted, by an operator at any time."""
    if record.learner is not None:
        return _learners_abort(run, record, at)
    update = run.updates.get(record.update_id)
    if update is None:
        return of_update(record, Outcome.REJECTED, Reason.UNKNOWN_UPDATE)
    if not is_open(update):
        same = update.end_content == at.content
        outcome, reason = (Outcome.DUPLICATE, Reason.DUPLICATE) if same else (Outcome.REJECTED, Reason.UPDATE_ENDED)
        return of_update(record, outcome, reason, update.status.value)
    if update.status is UpdateStatus.STARTED and update.learner is not None:
        learner = run.learners.get(update.learner.learner_id)
        assert learner is not None, "an open update has a started learner"
        run.learners.put(learner.learner_id, learner.model_copy(update={"fenced": True}))
    return _end(run, record, update, at)


def _learners_abort(run: Run, record: Abort, at: At) -> Verdict:
    refusal = refuse(run, record, at, may_open=True)
    if refusal is not None:
        return refusal
    update = run.updates.get(record.update_id)
    if update is not None and update.status is UpdateStatus.STARTED:
        return of_update(record, Outcome.REJECTED, Reason.UPDATE_IN_DOUBT)
    if update is None:  # an Abort that overtook its Reserve ends the id all the same
        update = UpdateState(
            update_id=record.update_id,
            status=UpdateStatus.OPEN,
            learner=record.learner,
            config_version=run.head.config_version,
            opened_sequence=at.sequence,
            last_activity_offset=at.offset,
        )
    return _end(run, record, update, at)


def _end(run: Run, record: Abort, update: UpdateState, at: At) -> Verdict:
    before = [_trajectory(run, held) for held in update.held]
    orphans = orphan_policies(run, [update.update_id])
    event = Event.QUARANTINE if record.disposition is AbortDisposition.QUARANTINE else Event.ABORT
    end_update(run, update, UpdateStatus.ABORTED, event, content=at.content)
    quarantined = quarantine_tainted(run, orphans)
    items = tuple(
        item(held.trajectory_id, Reason.RELEASED, held, _trajectory(run, held.trajectory_id)) for held in before
    )
    changes = (
        *mass_change("policies orphaned", map(str, orphans)),
        *mass_change("trajectories quarantined with an orphaned policy", quarantined),
    )
    return of_update(
        record, Outcome.ACCEPTED, Reason(record.reason.value), record.text, items=items, mass_changes=changes
    )


def recording_sealed(run: Run, record: RecordingSealed, at: At) -> Verdict:
    """The recordings of one rank are written; may come after the commit, so an ended update is no refusal by itself."""
    fenced = refuse_fenced(run, record)
    if fenced is not None:
        return fenced
    update = run.updates.get(record.update_id)
    if update is None or update.learner != record.learner:
        return of_update(record, Outcome.REJECTED, Reason.NOT_HOLDER)
    if update.status in (UpdateStatus.ABORTED, UpdateStatus.ROLLED_BACK):
        return of_update(record, Outcome.REJECTED, Reason.UPDATE_ENDED, update.status.value)
    for sealed in update.sealed:
        if sealed.rank == record.rank:
            same = sealed.content == at.content
            outcome, reason = (Outcome.DUPLICATE, Reason.DUPLICATE) if same else (Outcome.REJECTED, Reason.CONFLICT)
            return of_update(record, outcome, reason, f"rank {record.rank}")
    if update.status is UpdateStatus.OPEN:
        return of_update(record, Outcome.REJECTED, Reason.NOT_STARTED)
    entry = SealedRank(rank=record.rank, content=at.content, offset=at.offset)
    run.updates.put(record.update_id, update.model_copy(update={"sealed": (*update.sealed, entry)}))
    return of_update(record, Outcome.ACCEPTED, Reason.OK, f"rank {record.rank}")


def _known(run: Run, update_id: str) -> UpdateState:
    update = run.updates.get(update_id)
    assert update is not None, "refuse answers for an unknown update"
    return update


def _trajectory(run: Run, trajectory_id: str) -> TrajectoryState:
    trajectory = run.trajectories.get(trajectory_id)
    assert trajectory is not None, "what an update holds is never forgotten"
    return trajectory
