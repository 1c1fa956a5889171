"""UpdateStarted and Commit: an update while its rows enter the weights."""

from collections import Counter

from rollbook.processors.ledger.learner import refuse, remember
from rollbook.processors.ledger.matrix import UNRESERVED_COMMIT
from rollbook.processors.ledger.moves import give_back, move, trained_elsewhere
from rollbook.processors.ledger.store import Run
from rollbook.processors.ledger.verdict import At, Verdict, item, of_update
from rollbook.processors.ledger.waiting import COMMIT, keep_training, training_of
from rollbook.processors.lifecycle import Event
from rollbook.processors.reasons import Reason
from rollbook.schemas.records.decision import ItemDecision, Outcome
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
    items = tuple(item(held, Reason.HELD, run.trajectories.held(held)) for held in update.held)
    verdict = of_update(
        record, Outcome.ACCEPTED, *(broken or (Reason.OK, "")), items=items, violation=broken is not None
    )
    started = update.but(status=UpdateStatus.STARTED)
    run.updates.put(record.update_id, remember(started, record, 0, at, verdict))
    return verdict


def commit(run: Run, record: Commit, at: At) -> Verdict:
    """The update is in the weights. It must name exactly what is held, and train only on what was admitted."""
    refusal = refuse(run, record, at, row_of=UNRESERVED_COMMIT if record.unreserved else "")
    known = run.updates.get(record.update_id)
    if refusal is not None and not (run.observes and _is_fact(refusal.reason, known)):
        return refusal
    update = known or _unheard_of(run, record, at)
    broken = (refusal.reason, refusal.detail) if refusal is not None else _wrong_commit(run, record, update)
    if record.unreserved:
        broken = (Reason.UNRESERVED, "" if broken is None else broken[0].value)
    if broken is not None and not (run.observes or record.unreserved):
        return of_update(record, Outcome.REJECTED, *broken)
    trained = _trained(record)
    dropped = {drop.trajectory_id: drop for drop in record.dropped if drop.trajectory_id not in trained}
    held = frozenset(update.held)
    named = [*update.held, *sorted((trained | set(dropped)) - held)]
    twice = next((name for name in sorted(trained & held) if trained_elsewhere(run, run.trajectories.held(name))), None)
    if twice is not None and broken is None:
        broken = (Reason.TRAINED_TWICE, twice)
    items = tuple(_settle(run, update, name, name in held, name in trained, dropped.get(name), at) for name in named)
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
    run.updates.put(record.update_id, update.but(**committed))
    return of_update(record, Outcome.ACCEPTED, *(broken or (Reason.OK, "")), items=items, violation=broken is not None)


def _is_fact(refusal: Reason, update: UpdateState | None) -> bool:
    """Whether observe mode overrules a refusal of a learner in its own epoch: the rows are in its weights all the same.
    What a fenced learner reports changes nothing even there: its weights are of another lineage."""
    aborted = update is not None and update.status is UpdateStatus.ABORTED
    return refusal in (Reason.NOT_HOLDER, Reason.NOT_STARTED) or (refusal is Reason.UPDATE_ENDED and aborted)


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
            if run.trajectories.held(trajectory_id).admitted_ratio is None:
                return Reason.NOT_ADMITTED, trajectory_id
    return None


def _settle(
    run: Run, update: UpdateState, trajectory_id: str, held: bool, trained: bool, drop: DroppedItem | None, at: At
) -> ItemDecision:
    """What becomes of a row; one that the update does not hold, or does not name, only where facts are taken."""
    row = run.trajectories.get(trajectory_id)
    if row is None:
        return _not_known(run, update, trajectory_id, at) if trained else item(trajectory_id, Reason.MISSING_ROLLOUT)
    if trained and (held or row.status is TrajectoryStatus.REWARDED):
        events = (Event.COMMIT,) if held else (Event.RESERVE, Event.COMMIT)
        after = move(run, row, *events, update_id=update.update_id)
        return item(trajectory_id, Reason.TRAINED, row, after, lag=row.lag, ratio=row.admitted_ratio)
    if trained:
        return _mark(run, update, row)
    if not held:
        return item(trajectory_id, Reason.NOT_HELD, row)
    discard = (Event.DISCARD,) if drop is not None and drop.disposition is Disposition.DISCARD else ()
    after = give_back(run, row, Event.DROP, *discard)
    reason = Reason.DROPPED if drop is not None else Reason.RELEASED
    return item(trajectory_id, reason, row, after, lag=row.lag, ratio=row.admitted_ratio)


_UNREWARDED = (TrajectoryStatus.DISPATCHED, TrajectoryStatus.GENERATED, TrajectoryStatus.REWARD_FAILED)
_MOST_MARKS = 16


def _mark(run: Run, update: UpdateState, row: TrajectoryState) -> ItemDecision:
    """A row that is in the weights, but cannot be consumed now: before its reward is known, or in another update. Once
    it would be free, this update consumes it, so that nobody is offered it."""
    coming = row.status in _UNREWARDED
    comes_back = coming or row.status in (TrajectoryStatus.RESERVED, TrajectoryStatus.CONSUMED)
    if comes_back and len(row.trained_by) < _MOST_MARKS:
        marked = row.but(trained_by=(*row.trained_by, update.update_id))
        run.trajectories.put(row.trajectory_id, marked)
    return item(row.trajectory_id, Reason.PENDING if coming else Reason.NOT_HELD, row)


def _not_known(run: Run, update: UpdateState, trajectory_id: str, at: At) -> ItemDecision:
    """A row that is in the weights before it is known: the mark waits for it."""
    waiting = training_of(run, trajectory_id)
    by = () if waiting is None else waiting.trained_by
    fact = PendingFact(
        subject_id=trajectory_id,
        record_type=COMMIT,
        content=at.content,
        offset=at.offset,
        trained_by=(*by, update.update_id)[:_MOST_MARKS],
    )
    return item(trajectory_id, Reason.PENDING if keep_training(run, fact) else Reason.PENDING_FULL)


def _known(run: Run, update_id: str) -> UpdateState:
    update = run.updates.get(update_id)
    assert update is not None, "refuse answers for an unknown update"
    return update
