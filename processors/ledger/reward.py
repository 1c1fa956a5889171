"""RewardReady, RewardFailed and Discarded: rewards, their failures, and what is filtered out."""

import hashlib
import json

from rollbook.processors.ledger.moves import move
from rollbook.processors.ledger.store import Run
from rollbook.processors.ledger.verdict import At, Verdict, item, outcome_of, subject
from rollbook.processors.lifecycle import Event, allowed
from rollbook.processors.reasons import Reason
from rollbook.schemas.records.decision import ItemDecision, Outcome
from rollbook.schemas.records.ledger import PendingFact, TrajectoryStatus
from rollbook.schemas.records.reward import Discarded, RewardFailed, RewardItem, RewardReady


def reward_ready(run: Run, record: RewardReady, at: At) -> Verdict:
    """Rewards, each judged by itself; one that comes before its trajectory waits for it."""
    about = subject("reward", record.reward.rule_id)
    pinned = run.config.pinned_rewards
    if pinned and record.reward not in pinned:
        return Verdict(Outcome.REJECTED, Reason.REWARD_NOT_PINNED, subject=about)
    items = tuple(
        _fact(run, reward.trajectory_id, Event.REWARD_READY, "RewardReady", content_of(record, reward), at)
        for reward in record.items
    )
    outcome, reason = outcome_of(items, (Reason.REWARDED,))
    return Verdict(outcome, reason, subject=about, items=items)


def reward_failed(run: Run, record: RewardFailed, at: At) -> Verdict:
    """The reward could not be had; the trajectory keeps waiting for a later one, but its group no longer does."""
    decided = _fact(run, record.trajectory_id, Event.REWARD_FAILED, "RewardFailed", at.content, at)
    outcome, reason = outcome_of((decided,), (Reason.REWARD_FAILED,))
    return Verdict(outcome, reason, subject=subject("trajectory", record.trajectory_id), items=(decided,))


def discarded(run: Run, record: Discarded, at: At) -> Verdict:
    """Filtered out: neither a failure nor a refusal."""
    items = tuple(_discard(run, trajectory_id) for trajectory_id in record.trajectory_ids)
    outcome, reason = outcome_of(items, (Reason.DISCARDED,))
    return Verdict(outcome, reason, subject=subject("run", run.run_id), detail=record.reason.value, items=items)


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


def _fact(run: Run, trajectory_id: str, event: Event, record_type: str, content: str, at: At) -> ItemDecision:
    known = run.trajectories.get(trajectory_id)
    if known is None:
        return _keep(run, trajectory_id, event, record_type, content, at)
    if known.reward_content == content:
        return item(trajectory_id, Reason.DUPLICATE, known)
    if allowed(known.status, event):
        ready = event is Event.REWARD_READY
        after = move(run, known, event, reward_content=content, reward_offset=at.offset if ready else None)
        return item(trajectory_id, Reason.REWARDED if ready else Reason.REWARD_FAILED, known, after)
    rewarded_before = known.reward_offset is not None and event is Event.REWARD_READY
    return item(trajectory_id, Reason.CONFLICT if rewarded_before else Reason.ILLEGAL_TRANSITION, known)


def _keep(run: Run, trajectory_id: str, event: Event, record_type: str, content: str, at: At) -> ItemDecision:
    """Keep an early fact. A reward replaces the failure that waits: that is where the two would lead."""
    key = f"trajectory {trajectory_id}"
    waiting = run.pending.get(key)
    if waiting is not None:
        if waiting.content == content:
            return item(trajectory_id, Reason.DUPLICATE)
        if not (waiting.record_type == "RewardFailed" and event is Event.REWARD_READY):
            return item(trajectory_id, Reason.CONFLICT)
    elif len(run.pending) >= run.config.max_pending:
        return item(trajectory_id, Reason.PENDING_FULL)
    run.pending.put(
        key, PendingFact(subject_id=trajectory_id, record_type=record_type, content=content, offset=at.offset)
    )
    return item(trajectory_id, Reason.PENDING)


def _discard(run: Run, trajectory_id: str) -> ItemDecision:
    known = run.trajectories.get(trajectory_id)
    if known is None:
        return item(trajectory_id, Reason.MISSING_ROLLOUT)
    if known.status is TrajectoryStatus.DISCARDED:
        return item(trajectory_id, Reason.DUPLICATE, known)
    if not allowed(known.status, Event.DISCARD):
        return item(trajectory_id, Reason.ILLEGAL_TRANSITION, known)
    return item(trajectory_id, Reason.DISCARDED, known, move(run, known, Event.DISCARD))
