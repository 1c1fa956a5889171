"""RewardReady, RewardFailed, Discarded and Quarantine: rewards, their failures, and what is taken out of use."""

import hashlib
import json

from rollbook.processors.ledger.matrix import StateOf, row
from rollbook.processors.ledger.moves import move, take_trained
from rollbook.processors.ledger.store import Run
from rollbook.processors.ledger.verdict import At, Verdict, item, outcome_of, subject
from rollbook.processors.ledger.waiting import keep, let_go, reward_of
from rollbook.processors.reasons import Reason
from rollbook.schemas.records.decision import ItemDecision, Outcome, Released
from rollbook.schemas.records.ledger import PendingFact, TrajectoryState
from rollbook.schemas.records.reward import Discarded, Quarantine, RewardFailed, RewardItem, RewardReady
from rollbook.schemas.records.run import Unpinned


def reward_ready(run: Run, record: RewardReady, at: At) -> Verdict:
    """Rewards, each judged by itself; one that comes before its trajectory waits for it."""
    about = subject("reward", record.reward.rule_id)
    pinned = run.config.pinned_rewards
    usual = not pinned or record.reward in pinned
    if not usual and run.config.unpinned is Unpinned.REFUSE:
        return Verdict(Outcome.REJECTED, Reason.REWARD_NOT_PINNED, subject=about)
    apart = "" if usual else _identity_hash(record)
    decided = [
        _fact(
            run,
            _told("RewardReady", reward.trajectory_id, content_of(record, reward), at, apart=apart),
        )
        for reward in record.items
    ]
    items = tuple(one for one, _ in decided)
    outcome, reason = outcome_of(items, (Reason.REWARDED,))
    released = tuple(fact for _, facts in decided for fact in facts)
    return Verdict(outcome, reason, subject=about, items=items, released=released)


def reward_failed(run: Run, record: RewardFailed, at: At) -> Verdict:
    """The reward could not be had; the trajectory keeps waiting for a later one, but its group no longer does. Each
    attempt may fail for its own reason: the last account counts."""
    fact = _told("RewardFailed", record.trajectory_id, at.content, at, cause=record.reason.value)
    decided, released = _fact(run, fact)
    outcome, reason = outcome_of((decided,), (Reason.REWARD_FAILED,))
    about = subject("trajectory", record.trajectory_id)
    return Verdict(outcome, reason, record.reason.value, about, items=(decided,), released=released)


def discarded(run: Run, record: Discarded, at: At) -> Verdict:
    """Filtered out: neither a failure nor a refusal."""
    return _take_out(run, "Discarded", record.trajectory_ids, Reason.DISCARDED, record.reason.value)


def quarantine(run: Run, record: Quarantine, at: At) -> Verdict:
    """Taken out of use by a person or a check."""
    return _take_out(run, "Quarantine", record.trajectory_ids, Reason.QUARANTINED, record.reason)


def _take_out(run: Run, record_type: str, ids: tuple[str, ...], done: Reason, why: str) -> Verdict:
    items = tuple(_take_one_out(run, record_type, trajectory_id) for trajectory_id in ids)
    outcome, reason = outcome_of(items, (done,))
    over = [one.trajectory_id for one in items if one.reason == done]
    released = tuple(fact for name in over for fact in let_go(run, name))
    return Verdict(outcome, reason, subject=subject("run", run.run_id), detail=why, items=items, released=released)


def _take_one_out(run: Run, record_type: str, trajectory_id: str) -> ItemDecision:
    known = run.trajectories.get(trajectory_id)
    found = row(StateOf.TRAJECTORY, record_type, None if known is None else known.status)
    if known is None or found.outcome is not Outcome.ACCEPTED:
        return item(trajectory_id, found.reason, known)
    return item(trajectory_id, found.reason, known, move(run, known, *found.events))


def content_of(record: RewardReady, reward: RewardItem) -> str:
    """Content of one reward: the same rule and figures are the same reward, in whatever record they come."""
    rule = record.reward
    # JSON and not repr: which characters repr escapes depends on the Unicode tables of the Python that runs
    parts = (
        reward.raw_reward,
        [(component.name, component.value) for component in reward.components],
        reward.payload.sha256 if reward.payload is not None else "",
        (rule.rule_id, rule.version, rule.hash),
        record.remote,
        record.label_hash,
    )
    return hashlib.sha256(json.dumps(parts).encode()).hexdigest()


def _identity_hash(record: RewardReady) -> str:
    rule = record.reward
    return hashlib.sha256(json.dumps((rule.rule_id, rule.version, rule.hash)).encode()).hexdigest()


def rewarding(known: TrajectoryState, fact: PendingFact) -> dict[str, object]:
    """What a reward, or its failure, changes of a trajectory beside its state."""
    if fact.record_type == "RewardFailed":
        return {"failure_content": fact.content}
    return {
        "apart": f"{known.apart}{fact.apart}",
        "reward_content": fact.content,
        "failure_content": fact.replaced or known.failure_content,
        "reward_offset": fact.offset,
    }


def tally_cause(run: Run, fact: PendingFact) -> None:
    """Count why a reward could not be had, where the failure is counted."""
    if fact.cause:
        run.tally(f"{Reason.REWARD_FAILED.value}: {fact.cause}")


def _told(
    record_type: str, trajectory_id: str, content: str, at: At, *, apart: str = "", cause: str = ""
) -> PendingFact:
    return PendingFact.trusted(  # all of it comes from a validated record
        subject_id=trajectory_id,
        record_type=record_type,
        content=content,
        offset=at.offset,
        artifact_hash="",
        apart=apart,
        replaced="",
        trained_by=(),
        cause=cause,
    )


def _fact(run: Run, fact: PendingFact) -> tuple[ItemDecision, tuple[Released, ...]]:
    """What becomes of a reward or of its failure, and of the facts whose turn comes with it."""
    known = run.trajectories.get(fact.subject_id)
    ready = fact.record_type == "RewardReady"
    if known is not None and fact.content == (known.reward_content if ready else known.failure_content):
        return item(fact.subject_id, Reason.DUPLICATE, known), ()
    found = row(StateOf.TRAJECTORY, fact.record_type, None if known is None else known.status)
    if found.outcome is Outcome.PENDING:
        return _keep(run, fact, known)
    if known is None or found.outcome is not Outcome.ACCEPTED:
        return item(fact.subject_id, found.reason, known), ()
    if not found.events:
        after = run.trajectories.put(fact.subject_id, known.but(**rewarding(known, fact)))
        return item(fact.subject_id, found.reason, known, after), ()
    events, changes = take_trained(run, known) if ready else ((), {})
    after = move(run, known, *found.events, *events, **rewarding(known, fact), **changes)
    tally_cause(run, fact)
    return item(fact.subject_id, found.reason, known, after), ()


def _keep(run: Run, fact: PendingFact, known: TrajectoryState | None) -> tuple[ItemDecision, tuple[Released, ...]]:
    """Keep an early fact. Of failures the last one stays, and of a failure and a reward the reward: there they lead."""
    waiting = reward_of(run, fact.subject_id)
    if waiting is not None:
        if fact.content in (waiting.content, waiting.replaced):
            return item(fact.subject_id, Reason.DUPLICATE, known), ()
        if waiting.record_type != "RewardFailed":
            return item(fact.subject_id, Reason.CONFLICT, known), ()
        fact = fact.but(replaced=waiting.content)
    kept, evicted = keep(run, fact)
    return item(fact.subject_id, Reason.PENDING if kept else Reason.PENDING_FULL, known), evicted
