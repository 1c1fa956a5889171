"""Admit: the drift gate, judged once per trajectory and update, with the learner's real log-probs."""

from rollbook.processors.gates import drift_gate, freshness_of, lag_gate
from rollbook.processors.ledger.figures import AtTheGate
from rollbook.processors.ledger.lag import behavior_of, known_policy, lag_of, learner_ordinal
from rollbook.processors.ledger.learner import refuse, remember
from rollbook.processors.ledger.matrix import StateOf, row
from rollbook.processors.ledger.moves import give_back
from rollbook.processors.ledger.room import outgrows
from rollbook.processors.ledger.store import Run
from rollbook.processors.ledger.verdict import At, Verdict, item, of_update
from rollbook.processors.lifecycle import Event
from rollbook.processors.reasons import Reason
from rollbook.schemas.records.decision import ItemDecision, Outcome
from rollbook.schemas.records.ledger import PolicyState, RunConfig, UpdateState
from rollbook.schemas.records.run import DriftGate
from rollbook.schemas.records.update import Admit, AdmitItem


def admit(run: Run, record: Admit, at: At) -> Verdict:
    """Judge each row; what is refused leaves the update: for good where nothing can mend it, else released."""
    refusal = refuse(run, record, at, part=record.part)
    if refusal is not None:
        return refusal
    update = run.updates.get(record.update_id)
    assert update is not None, "refuse answers for an unknown update"
    config = run.configs.get(update.config_version)
    assert config is not None, "configurations are never forgotten"
    known_updates = learner_ordinal(run, record.learner, record.update_id)
    if record.own_updates > known_updates:
        return of_update(record, Outcome.REJECTED, Reason.ORDINAL_MISMATCH, f"the ledger knows {known_updates}")
    policy = known_policy(run, record.policy)
    if policy is None:
        return of_update(record, Outcome.REJECTED, Reason.UNKNOWN_POLICY, f"version {record.policy.version}")
    if outgrows(update, (figures.trajectory_id for figures in record.items)):
        return of_update(record, Outcome.REJECTED, Reason.UPDATE_FULL)
    judged = AtTheGate()
    items = tuple(_admit(run, config, update, record, figures, policy, judged) for figures in record.items)
    judged.count(run)
    left = _left(run, update)
    broken = next((Reason(one.reason) for one in items if one.reason != Reason.OK), None) if run.observes else None
    verdict = of_update(record, Outcome.ACCEPTED, broken or Reason.OK, items=items, violation=broken is not None)
    grown = update.but(held=left, last_activity_offset=at.offset, in_doubt=False)
    run.updates.put(record.update_id, remember(grown, record, record.part, at, verdict))
    return verdict


def _admit(
    run: Run,
    config: RunConfig,
    update: UpdateState,
    record: Admit,
    figures: AdmitItem,
    policy: PolicyState,
    judged: AtTheGate,
) -> ItemDecision:
    trajectory_id = figures.trajectory_id
    held = run.trajectories.get(trajectory_id)
    found = row(StateOf.TRAJECTORY, "Admit", None if held is None else held.status)
    if held is None or found.outcome is not Outcome.ACCEPTED:
        return item(trajectory_id, found.reason, held)
    if held.update_id != update.update_id:
        return item(trajectory_id, Reason.NOT_RESERVED, held)
    max_lag = config.admission.max_lag
    if held.admitted_ratio is not None:  # the first answer stands, whatever the part or the figures
        freshness = None if held.lag is None else freshness_of(held.lag, max_lag)
        return item(trajectory_id, Reason.OK, held, lag=held.lag, freshness=freshness, ratio=held.admitted_ratio)
    ratio = figures.sum_abs_log_ratio / figures.active_tokens if figures.active_tokens else None
    behavior = behavior_of(run, held)
    lag, fresh = (
        (None, None) if behavior is None else lag_of(run, config, behavior, record.learner, update.update_id, policy)
    )
    refusal: Reason | None = None
    if figures.active_tokens != held.active_tokens or figures.evidence_digest != held.evidence_digest:
        refusal = Reason.EVIDENCE_MISMATCH
    elif ratio is None:
        refusal = Reason.EMPTY_ACTION_MASK
    elif fresh is None:
        refusal = Reason.UNKNOWN_POLICY
    else:
        refusal = lag_gate(fresh) or drift_gate(ratio, config.admission.max_mean_abs_log_ratio)
    if ratio is not None and lag is not None and refusal in (None, Reason.POLICY_DRIFT):
        judged.take(run, held, lag, ratio, admitted=refusal is None)
    if refusal is None:
        after = held.but(admitted_ratio=ratio, lag=lag)
        run.trajectories.put(trajectory_id, after)
        return item(trajectory_id, found.reason, held, after, lag=lag, freshness=fresh, ratio=ratio)
    after = held
    if config.admission.drift_gate is DriftGate.REQUIRED and not run.observes:
        end = Event.QUARANTINE if refusal in _FOR_GOOD else Event.ABORT
        after = give_back(run, held, end)
    return item(trajectory_id, refusal, held, after, lag=lag, freshness=fresh, ratio=ratio)


_FOR_GOOD = (Reason.POLICY_DRIFT, Reason.EMPTY_ACTION_MASK)
"""What no later try mends: a claim must not be given the same row again and again."""


def _left(run: Run, update: UpdateState) -> tuple[str, ...]:
    left = []
    for trajectory_id in update.held:
        trajectory = run.trajectories.get(trajectory_id)
        if trajectory is not None and trajectory.update_id == update.update_id:
            left.append(trajectory_id)
    return tuple(left)
