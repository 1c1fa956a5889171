"""The numbers that lag compares: a policy's depth or ordinal, and the learner's."""

from collections.abc import Sequence

from rollbook.processors.gates import Freshness, freshness_of
from rollbook.processors.ledger.store import Run
from rollbook.schemas.records.common import LearnerRef, PolicyRef
from rollbook.schemas.records.ledger import PolicyState, RunConfig, TrajectoryState
from rollbook.schemas.records.run import LagUnit


def known_policy(run: Run, ref: PolicyRef) -> PolicyState | None:
    """The prepared policy of this version and hash."""
    policy = run.policies.get(ref.version)
    return policy if policy is not None and policy.artifact.hash == ref.artifact_hash else None


def learner_ordinal(run: Run, learner: LearnerRef, update_id: str) -> int:
    """The learner's standing committed updates plus its open ones reserved before this one."""
    before = 0
    for update in run.updates.open_of(learner.learner_id):
        if update.update_id == update_id:
            break
        before += 1
    return run.updates.committed_of(learner.learner_id) + before


def behavior_of(run: Run, trajectory: TrajectoryState) -> list[PolicyState] | None:
    """The policies of a trajectory's spans; None when one of them is not prepared."""
    behavior = []
    for ref in trajectory.policies:
        policy = known_policy(run, ref)
        if policy is None:
            return None
        behavior.append(policy)
    return behavior


def lag_of(
    run: Run,
    config: RunConfig,
    behavior: Sequence[PolicyState],
    learner: LearnerRef,
    update_id: str,
    policy: PolicyState,
) -> tuple[int, Freshness]:
    """Lag of a trajectory with these policies behind the learner, and what that means."""
    admission = config.admission
    learner_number = learner_ordinal(run, learner, update_id) if admission.lag_unit is LagUnit.ORDINAL else policy.depth
    lag = learner_number - min([policy_number(one, admission.lag_unit) for one in behavior])
    return lag, freshness_of(lag, admission.max_lag)


def policy_number(policy: PolicyState, unit: LagUnit) -> int:
    """What a policy counts as in the run's lag unit."""
    return policy.ordinal if unit is LagUnit.ORDINAL else policy.depth
