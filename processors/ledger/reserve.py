"""Reserve: compare-and-set of trajectories for an update, by name or by a claim of whole groups."""

from rollbook.processors.ledger.claim import choose
from rollbook.processors.ledger.judge import Asked, Judged, judge, reserving
from rollbook.processors.ledger.learner import refuse, remember
from rollbook.processors.ledger.moves import move
from rollbook.processors.ledger.room import outgrows
from rollbook.processors.ledger.store import Run
from rollbook.processors.ledger.verdict import At, Verdict, item, of_update
from rollbook.processors.reasons import Reason
from rollbook.schemas.records.decision import ItemDecision, Outcome
from rollbook.schemas.records.ledger import UpdateState, UpdateStatus
from rollbook.schemas.records.update import Reserve, ReserveItem, ReserveMode


def reserve(run: Run, record: Reserve, at: At) -> Verdict:
    """Judge every item first, then take all, or those that pass."""
    refusal = refuse(run, record, at, part=record.part)
    if refusal is not None:
        return refusal
    update = run.updates.get(record.update_id) or _opened(run, record, at)
    config = run.configs.get(update.config_version)
    assert config is not None, "configurations are never forgotten"
    asked = Asked(record, update, config)
    if record.claim is not None:
        judged, passed_over = choose(run, asked, record.claim)
        detail = f"{passed_over} groups passed over" if passed_over else ""
    else:
        judged, detail = [judge(run, asked, item.trajectory_id, _expected(run, item)) for item in record.items], ""
        if run.observes:
            return _observed(run, record, at, update, judged)
        if record.mode is ReserveMode.ALL and not all(found.passes for found in judged):
            return _all_or_none(record, judged)
    taken = [found for found in judged if found.passes]
    added = [found.trajectory_id for found in taken if found.reason is Reason.RESERVED]
    if outgrows(update, (found.trajectory_id for found in judged), added):
        return of_update(record, Outcome.REJECTED, Reason.UPDATE_FULL)
    items = tuple(_take(run, update, found) if found.passes else _unchanged(found) for found in judged)
    if not taken:
        first = judged[0].reason if judged else Reason.NOTHING_TAKEN
        return of_update(
            record, Outcome.REJECTED, first if record.claim is None else Reason.NOTHING_TAKEN, detail, items=items
        )
    verdict = of_update(record, Outcome.ACCEPTED, Reason.OK, detail, items=items)
    grown = update.but(held=(*update.held, *added), last_activity_offset=at.offset, in_doubt=False)
    run.updates.put(record.update_id, remember(grown, record, record.part, at, verdict))
    return verdict


def _expected(run: Run, item: ReserveItem) -> int | None:
    """A trainer that observes waits for no decision, so it cannot know revisions: there they are not compared."""
    return None if run.observes else item.expected_revision


def _opened(run: Run, record: Reserve, at: At) -> UpdateState:
    return UpdateState(
        update_id=record.update_id,
        status=UpdateStatus.OPEN,
        learner=record.learner,
        config_version=run.head.config_version,
        opened_sequence=at.sequence,
        last_activity_offset=at.offset,
    )


def _observed(run: Run, record: Reserve, at: At, update: UpdateState, judged: list[Judged]) -> Verdict:
    """In observe mode the trainer has taken what it names: all that can be held is, and refusals are breaches."""
    free = [found for found in judged if reserving(found.trajectory).outcome is Outcome.ACCEPTED]
    added = [found.trajectory_id for found in free]
    if outgrows(update, (found.trajectory_id for found in judged), added):
        return of_update(record, Outcome.REJECTED, Reason.UPDATE_FULL)
    taken = frozenset(added)
    items = tuple(_take(run, update, found) if found.trajectory_id in taken else _unchanged(found) for found in judged)
    broken = next((found.reason for found in judged if not found.passes), None)
    verdict = of_update(record, Outcome.ACCEPTED, broken or Reason.OK, items=items, violation=broken is not None)
    grown = update.but(held=(*update.held, *added), last_activity_offset=at.offset, in_doubt=False)
    run.updates.put(record.update_id, remember(grown, record, record.part, at, verdict))
    return verdict


def _take(run: Run, update: UpdateState, found: Judged) -> ItemDecision:
    before = found.trajectory
    assert before is not None, "only a known trajectory passes"
    after, met = before, reserving(before)
    if met.outcome is Outcome.ACCEPTED:
        after = move(run, before, *met.events, update_id=update.update_id, lag=found.lag, admitted_ratio=None)
    return item(found.trajectory_id, found.reason, before, after, lag=found.lag, freshness=found.freshness)


def _unchanged(found: Judged) -> ItemDecision:
    return item(found.trajectory_id, found.reason, found.trajectory, lag=found.lag, freshness=found.freshness)


def _all_or_none(record: Reserve, judged: list[Judged]) -> Verdict:
    items = []
    for found in judged:
        reason = Reason.ALL_OR_NONE if found.reason is Reason.RESERVED else found.reason
        items.append(_unchanged(Judged(found.trajectory_id, found.trajectory, reason, found.lag, found.freshness)))
    first = next(found.reason for found in judged if not found.passes)
    return of_update(record, Outcome.REJECTED, first, items=tuple(items))
