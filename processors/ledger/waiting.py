"""Facts that came before their turn: kept by what they wait for, let go of when it ended otherwise.

A reward waits for its trajectory, a training that is taken as a fact for a trajectory that is not known yet, a
PolicyCommitted for its PolicyPrepared. Where no more may wait, the oldest reward makes room: what waits longest most
likely waits in vain. The others never do: without them a row is trained on twice, or weights are never active.
"""

from rollbook.processors.ledger.store import Run
from rollbook.processors.reasons import Reason
from rollbook.schemas.records.decision import Released
from rollbook.schemas.records.ledger import PendingFact

COMMIT, POLICY_COMMITTED = "Commit", "PolicyCommitted"


def key_of(fact: PendingFact) -> str:
    """Where a fact is kept: one reward and one commit a trajectory, one of each hash a policy."""
    if fact.record_type == POLICY_COMMITTED:
        return f"policy {fact.subject_id} {fact.artifact_hash}"
    return f"{'trained' if fact.record_type == COMMIT else 'trajectory'} {fact.subject_id}"


def reward_of(run: Run, trajectory_id: str) -> PendingFact | None:
    """The reward, or its failure, that waits for a trajectory."""
    return run.pending.get(f"trajectory {trajectory_id}")


def training_of(run: Run, trajectory_id: str) -> PendingFact | None:
    """The updates that trained on a trajectory before it was known."""
    return run.pending.get(f"trained {trajectory_id}")


def keep(run: Run, fact: PendingFact) -> tuple[bool, tuple[Released, ...]]:
    """Keep a fact, and say what made room for it. False: nothing can."""
    too_many = 0 if key_of(fact) in run.pending else len(run.pending) + 1 - run.config.max_pending
    oldest = run.pending.oldest(too_many)
    # a record does not push out what it says itself
    if len(oldest) < too_many or any(other.offset == fact.offset for other in oldest):
        return False, ()
    evicted = tuple(drop(run, other, Reason.PENDING_FULL) for other in oldest)
    run.pending.put(key_of(fact), fact)
    return True, evicted


def keep_training(run: Run, fact: PendingFact) -> bool:
    """Keep a training: as many as facts may wait, beside them."""
    if key_of(fact) not in run.pending and run.pending.trainings >= run.config.max_pending:
        return False
    run.pending.put(key_of(fact), fact)
    return True


def drop(run: Run, fact: PendingFact, reason: Reason) -> Released:
    """A fact waits no longer, for this reason."""
    run.pending.drop(key_of(fact))
    return Released(offset=fact.offset, record_type=fact.record_type, subject_id=fact.subject_id, reason=reason.value)


def let_go(run: Run, trajectory_id: str) -> tuple[Released, ...]:
    """A trajectory that ended before its turn came: what waits for it will have none."""
    facts = (reward_of(run, trajectory_id), training_of(run, trajectory_id))
    return tuple(drop(run, fact, Reason.ILLEGAL_TRANSITION) for fact in facts if fact is not None)
