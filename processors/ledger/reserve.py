"""Reserve: compare-and-set of trajectories for an update, by name or by a claim of whole groups."""

from collections.abc import Iterable
from dataclasses import dataclass

from rollbook.processors.gates import Freshness, Held, lag_gate, reserve_gate
from rollbook.processors.ledger.groups import is_ready
from rollbook.processors.ledger.lag import known_policy, lag_of
from rollbook.processors.ledger.learner import refuse, remember
from rollbook.processors.ledger.moves import move
from rollbook.processors.ledger.room import outgrows
from rollbook.processors.ledger.store import Run, behavior_version
from rollbook.processors.ledger.verdict import At, Verdict, item, of_update
from rollbook.processors.lifecycle import Event
from rollbook.processors.reasons import Reason
from rollbook.schemas.records.decision import ItemDecision, Outcome
from rollbook.schemas.records.ledger import RunConfig, TrajectoryState, UpdateState, UpdateStatus
from rollbook.schemas.records.rollout import Purpose
from rollbook.schemas.records.update import Claim, ClaimOrder, Reserve, ReserveMode
from rollbook.schemas.types import MAX_ITEMS

SUCCESS = (Reason.RESERVED, Reason.IDEMPOTENT_RETRY)


@dataclass(frozen=True, slots=True)
class _Judged:
    """What a Reserve finds out about one trajectory before anything changes."""

    trajectory_id: str
    trajectory: TrajectoryState | None
    reason: Reason
    lag: int | None = None
    freshness: Freshness | None = None

    @property
    def passes(self) -> bool:
        return self.reason in SUCCESS


def reserve(run: Run, record: Reserve, at: At) -> Verdict:
    """Judge every item first, then take all, or those that pass."""
    refusal = refuse(run, record, at, part=record.part, may_open=True)
    if refusal is not None:
        return refusal
    update = run.updates.get(record.update_id) or _opened(run, record, at)
    if update.status is UpdateStatus.STARTED:
        return of_update(record, Outcome.REJECTED, Reason.UPDATE_STARTED)
    config = run.configs.get(update.config_version)
    assert config is not None, "configurations are never forgotten"
    if record.claim is not None:
        judged, detail = _claim(run, config, update, record, record.claim)
    else:
        judged, detail = (
            [
                _judge(run, config, update, record, wanted.trajectory_id, wanted.expected_revision)
                for wanted in record.items
            ],
            "",
        )
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
    grown = update.model_copy(update={"held": (*update.held, *added), "last_activity_offset": at.offset})
    run.updates.put(record.update_id, remember(grown, record, record.part, at, verdict))
    return verdict


def _opened(run: Run, record: Reserve, at: At) -> UpdateState:
    return UpdateState(
        update_id=record.update_id,
        status=UpdateStatus.OPEN,
        learner=record.learner,
        config_version=run.head.config_version,
        opened_sequence=at.sequence,
        last_activity_offset=at.offset,
    )


def _judge(
    run: Run, config: RunConfig, update: UpdateState, record: Reserve, trajectory_id: str, revision: int | None
) -> _Judged:
    """First match wins; the order is the contract (DESIGN section 5)."""
    found = run.trajectories.get(trajectory_id)
    holder = (record.learner, record.update_id)
    held = None if found is None else Held(found.status.value, found.revision, (record.learner, found.update_id))
    refusal = reserve_gate(held, revision, holder)
    if refusal is Reason.IDEMPOTENT_RETRY and found is not None:
        return _Judged(trajectory_id, found, refusal, lag=found.lag)
    if refusal is not None or found is None:
        return _Judged(trajectory_id, found, refusal or Reason.MISSING_ROLLOUT)
    if found.purpose is Purpose.EVAL:
        return _Judged(trajectory_id, found, Reason.EVAL_ONLY)
    learner_policy = known_policy(run, record.policy)
    behavior = [known_policy(run, ref) for ref in found.policies]
    if learner_policy is None or any(policy is None for policy in behavior):
        return _Judged(trajectory_id, found, Reason.UNKNOWN_POLICY)
    if not all(policy is not None and policy.activated for policy in behavior):
        return _Judged(trajectory_id, found, Reason.POLICY_NOT_ACTIVE)
    measured = lag_of(run, config, found, record.learner, update.update_id, learner_policy)
    assert measured is not None, "every span's policy is known here"
    lag, freshness = measured
    return _Judged(trajectory_id, found, lag_gate(freshness) or Reason.RESERVED, lag, freshness)


def _claim(
    run: Run, config: RunConfig, update: UpdateState, record: Reserve, claim: Claim
) -> tuple[list[_Judged], str]:
    """Whole groups in the order asked for, as many as asked for; rows that do not pass are passed over."""
    judged: list[_Judged] = []
    groups = 0
    passed_over = 0
    for members in _by_order(run, claim.order):
        if groups == claim.max_groups:
            break
        if len(judged) + len(members) > MAX_ITEMS:
            passed_over += 1
            continue
        found = [_judge(run, config, update, record, member.trajectory_id, None) for member in members]
        passing = sum(one.passes for one in found)
        if not passing or (record.mode is ReserveMode.ALL and passing < len(found)):
            passed_over += 1
            continue
        judged += found
        groups += 1
    return judged, f"{passed_over} groups passed over" if passed_over else ""


def _by_order(run: Run, order: ClaimOrder) -> Iterable[list[TrajectoryState]]:
    ready = []
    for group_id in run.trajectories.claimable_groups():
        members = [member for member in run.trajectories.members(group_id) if is_ready(member)]
        version = min(behavior_version(member) for member in members)
        first = min(member.generated_offset for member in members)
        ready.append((version if order is ClaimOrder.OLDEST else -version, first, group_id, members))
    return [members for _, _, _, members in sorted(ready, key=lambda group: group[:3])]


def _take(run: Run, update: UpdateState, found: _Judged) -> ItemDecision:
    before = found.trajectory
    assert before is not None, "only a known trajectory passes"
    after = before
    if found.reason is Reason.RESERVED:
        after = move(run, before, Event.RESERVE, update_id=update.update_id, lag=found.lag, admitted_ratio=None)
    return item(found.trajectory_id, found.reason, before, after, lag=found.lag, freshness=found.freshness)


def _unchanged(found: _Judged) -> ItemDecision:
    return item(found.trajectory_id, found.reason, found.trajectory, lag=found.lag, freshness=found.freshness)


def _all_or_none(record: Reserve, judged: list[_Judged]) -> Verdict:
    items = []
    for found in judged:
        reason = Reason.ALL_OR_NONE if found.reason is Reason.RESERVED else found.reason
        items.append(_unchanged(_Judged(found.trajectory_id, found.trajectory, reason, found.lag, found.freshness)))
    first = next(found.reason for found in judged if not found.passes)
    return of_update(record, Outcome.REJECTED, first, items=tuple(items))
