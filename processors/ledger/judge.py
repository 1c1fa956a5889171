"""What a Reserve finds out about one trajectory before anything changes: the gates in their order."""

from dataclasses import dataclass
from typing import NamedTuple

from rollbook.processors.gates import Freshness, Held, lag_gate, reserve_gate
from rollbook.processors.ledger.lag import behavior_of, known_policy, lag_of
from rollbook.processors.ledger.matrix import Row, StateOf, row
from rollbook.processors.ledger.store import Run
from rollbook.processors.reasons import Reason
from rollbook.schemas.records.decision import Outcome
from rollbook.schemas.records.ledger import RunConfig, TrajectoryState, UpdateState
from rollbook.schemas.records.rollout import Purpose
from rollbook.schemas.records.update import Reserve

SUCCESS = (Reason.RESERVED, Reason.IDEMPOTENT_RETRY)


class Judged(NamedTuple):
    """One trajectory and what became of it. `revision_conflict` and the like leave lag and freshness open."""

    trajectory_id: str
    trajectory: TrajectoryState | None
    reason: Reason
    lag: int | None = None
    freshness: Freshness | None = None

    @property
    def passes(self) -> bool:
        """Whether it can be taken, or is held already."""
        return self.reason in SUCCESS


@dataclass(frozen=True, slots=True)
class Asked:
    """A Reserve with what it is judged by: its update, and the configuration of that update's first Reserve."""

    record: Reserve
    update: UpdateState
    config: RunConfig


def judge(run: Run, asked: Asked, trajectory_id: str, revision: int | None) -> Judged:
    """First match wins; the order is the contract (DESIGN section 5). `revision` None: whatever it is."""
    record = asked.record
    found = run.trajectories.get(trajectory_id)
    holder = (record.learner, record.update_id)
    held = None if found is None else Held(found.status.value, found.revision, (record.learner, found.update_id))
    refusal = reserve_gate(held, revision, holder)
    if refusal is Reason.IDEMPOTENT_RETRY and found is not None:
        return Judged(trajectory_id, found, refusal, lag=found.lag)
    if refusal is Reason.REVISION_CONFLICT:
        return Judged(trajectory_id, found, refusal)
    met = reserving(found)
    if found is None or met.outcome is not Outcome.ACCEPTED:
        return Judged(trajectory_id, found, met.reason)
    if found.purpose is Purpose.EVAL:
        return Judged(trajectory_id, found, Reason.EVAL_ONLY)
    learner_policy = known_policy(run, record.policy)
    behavior = behavior_of(run, found)
    if learner_policy is None or behavior is None:
        return Judged(trajectory_id, found, Reason.UNKNOWN_POLICY)
    if not all(policy.activated for policy in behavior):
        return Judged(trajectory_id, found, Reason.POLICY_NOT_ACTIVE)
    lag, freshness = lag_of(run, asked.config, behavior, record.learner, record.update_id, learner_policy)
    return Judged(trajectory_id, found, lag_gate(freshness) or met.reason, lag, freshness)


def reserving(trajectory: TrajectoryState | None) -> Row:
    """What its state alone says of a Reserve, whoever asks."""
    return row(StateOf.TRAJECTORY, "Reserve", None if trajectory is None else trajectory.status)
