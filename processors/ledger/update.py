"""UpdateStarted and Commit: an update while its rows enter the weights."""

from collections import Counter
from dataclasses import replace

from rollbook.processors.ledger.learner import refuse, remember
from rollbook.processors.ledger.matrix import UNRESERVED_COMMIT
from rollbook.processors.ledger.moves import give_back, move
from rollbook.processors.ledger.store import Run
from rollbook.processors.ledger.verdict import At, Verdict, item, of_update
from rollbook.processors.ledger.waiting import COMMIT, keep, training_of
from rollbook.processors.lifecycle import Event
from rollbook.processors.reasons import Reason
from rollbook.schemas.records.decision import ItemDecision, Outcome, Released
from rollbook.schemas.records.ledger import PendingFact, TrajectoryState, TrajectoryStatus, UpdateState, UpdateStatus
from rollbook.schemas.records.run import DriftGate
from rollbook.schemas.records.update import Commit, Disposition, DroppedItem, UpdateStarted


def update_started(run: Run, record: UpdateStarted, at: At) -> Verdict:
    """From here on the rows may be in the weights; the decision lists what is held."""
    refusal = refuse(run, record, at)
    if refusal is not None:
        return refusal
    update = _known(run, record.update_id)
    broken: tuple[Reason, str] | None = None
    for other in run.updates.open_of(record.learner.learner_id):
        if other.update_id != record.update_id and other.status is UpdateStatus.STARTED:
            broken = (Reason.OTHER_STARTED, other.update_id)
            break
    if broken is not None and not run.observes:
        return of_update(record, Outcome.REJECTED, *broken)
    items = tuple(item(held, Reason.HELD, _trajectory(run, held)) for held in update.held)
    verdict = of_update(
        record, Outcome.ACCEPTED, *(broken or (Reason.OK, "")), items=items, violation=broken is not None
    )
    started = update.model_copy(update={"status": UpdateStatus.STARTED})
    run.updates.put(record.update_id, remember(started, record, 0, at, verdict))
    return verdict


def commit(run: Run, record: Commit, at: At) -> Verdict:
    """The update is in the weights. It must name exactly what is held, and train only on what was admitted."""
    refusal = refuse(run, record, at, row_of=UNRESERVED_COMMIT if record.unreserved else "")
    if refusal is not None and not (run.observes and refusal.reason in _FACTS):
        return refusal
    update = run.updates.get(record.update_id) or _unheard_of(run, record, at)
    broken = (refusal.reason, refusal.detail) if refusal is not None else _wrong_commit(run, record, update)
    if record.unreserved:
        broken = (Reason.UNRESERVED, "" if broken is None else broken[0].value)
    if broken is not None and not (run.observes or record.unreserved):
        return of_update(record, Outcome.REJECTED, *broken)
    trained = _trained(record)
    dropped = {drop.trajectory_id: drop for drop in record.dropped if drop.trajectory_id not in trained}
    named = [*update.held, *sorted((trained | set(dropped)) - set(update.held))]
    settled = [_settle(run, update, name, name in trained, dropped.get(name), at) for name in named]
    items = tuple(one for one, _ in settled)
    order = run.head.commits + 1
    run.change_head(commits=order)
    committed = {
        "status": UpdateStatus.COMMITTED,
        "learner": record.learner,  # in observe mode it can be another's: a roll-back follows the weights
        "held": (),
        "answers": (),
        "in_doubt": False,
        "end_content": at.content,
        "commit_order": order,
        "trained": tuple(one.trajectory_id for one in items if one.reason == Reason.TRAINED),
    }
    run.updates.put(record.update_id, update.model_copy(update=committed))
    verdict = of_update(
        record, Outcome.ACCEPTED, *(broken or (Reason.OK, "")), items=items, violation=broken is not None
    )
    return replace(verdict, released=tuple(fact for _, facts in settled for fact in facts))


_FACTS = (Reason.NOT_HOLDER, Reason.NOT_STARTED)
"""Refusals that observe mode overrules for a learner in its own epoch: the rows are in its weights all the same. What a
fenced learner reports changes nothing even there: its weights are of another lineage."""


def _trained(record: Commit) -> set[str]:
    return {trajectory_id for step in record.steps for trajectory_id in step.trajectory_ids}


def _unheard_of(run: Run, record: Commit, at: At) -> UpdateState:
    return UpdateState(
        update_id=record.update_id,
        status=UpdateStatus.STARTED,
        learner=record.learner,
        config_version=run.head.config_version,
        opened_sequence=at.sequence,
        last_activity_offset=at.offset,
    )


def _wrong_commit(run: Run, record: Commit, update: UpdateState) -> tuple[Reason, str] | None:
    trained = _trained(record)
    named = [*trained, *(drop.trajectory_id for drop in record.dropped)]
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


def _settle(
    run: Run, update: UpdateState, trajectory_id: str, trained: bool, drop: DroppedItem | None, at: At
) -> tuple[ItemDecision, tuple[Released, ...]]:
    """What becomes of a row; one that the update does not hold, or does not name, only where facts are taken."""
    row = run.trajectories.get(trajectory_id)
    held = trajectory_id in update.held
    if trained and not held and (row is None or row.status in _UNREWARDED):
        return _trained_early(run, update, trajectory_id, row, at)
    if row is None:
        return item(trajectory_id, Reason.MISSING_ROLLOUT), ()
    if trained and (held or row.status is TrajectoryStatus.REWARDED):
        events = (Event.COMMIT,) if held else (Event.RESERVE, Event.COMMIT)
        after = move(run, row, *events, update_id=update.update_id)
        return item(trajectory_id, Reason.TRAINED, row, after, lag=row.lag, ratio=row.admitted_ratio), ()
    if trained or not held:
        return item(trajectory_id, Reason.NOT_HELD, row), ()
    discard = (Event.DISCARD,) if drop is not None and drop.disposition is Disposition.DISCARD else ()
    after = give_back(run, row, Event.DROP, *discard)
    reason = Reason.DROPPED if drop is not None else Reason.RELEASED
    return item(trajectory_id, reason, row, after, lag=row.lag, ratio=row.admitted_ratio), ()


_UNREWARDED = (TrajectoryStatus.DISPATCHED, TrajectoryStatus.GENERATED, TrajectoryStatus.REWARD_FAILED)


def _trained_early(
    run: Run, update: UpdateState, trajectory_id: str, row: TrajectoryState | None, at: At
) -> tuple[ItemDecision, tuple[Released, ...]]:
    """A row that is in the weights before its reward, or itself, is known: it is consumed when that comes, so that
    nobody is offered it."""
    if training_of(run, trajectory_id) is not None:
        return item(trajectory_id, Reason.CONFLICT, row), ()
    fact = PendingFact(
        subject_id=trajectory_id,
        record_type=COMMIT,
        content=at.content,
        offset=at.offset,
        update_id=update.update_id,
    )
    kept, evicted = keep(run, fact)
    return item(trajectory_id, Reason.PENDING if kept else Reason.PENDING_FULL, row), evicted


def _known(run: Run, update_id: str) -> UpdateState:
    update = run.updates.get(update_id)
    assert update is not None, "refuse answers for an unknown update"
    return update


def _trajectory(run: Run, trajectory_id: str) -> TrajectoryState:
    trajectory = run.trajectories.get(trajectory_id)
    assert trajectory is not None, "what an update holds is never forgotten"
    return trajectory
