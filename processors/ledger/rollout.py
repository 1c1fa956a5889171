"""Generated and GenerationFailed: trajectories become known, and facts that waited for them take their turn."""

from rollbook.processors.ledger.moves import tainted
from rollbook.processors.ledger.store import Run
from rollbook.processors.ledger.verdict import At, Verdict, item, subject
from rollbook.processors.lifecycle import NONE, Event, allowed, next_state
from rollbook.processors.reasons import Reason
from rollbook.schemas.digests import trajectory_evidence_digest
from rollbook.schemas.records.common import PolicyRef, TrajectoryIdentity
from rollbook.schemas.records.decision import Outcome, Released
from rollbook.schemas.records.ledger import PendingFact, TrajectoryState, TrajectoryStatus
from rollbook.schemas.records.rollout import Generated, GenerationFailed, Purpose
from rollbook.schemas.types import INT63_MAX


def generated(run: Run, record: Generated, at: At) -> Verdict:
    """A whole trajectory; a reward that waited for it is applied as part of the same change."""
    about = subject("trajectory", record.identity.trajectory_id)
    known = run.trajectories.get(record.identity.trajectory_id)
    if known is not None:
        return _again(known, at, Reason.CONFLICT)
    refusal = _refusal(run, record)
    if refusal is not None:
        return Verdict(Outcome.REJECTED, refusal, subject=about)
    active_tokens = sum(segment.active_tokens for segment in record.segments)
    if active_tokens > INT63_MAX:  # each segment keeps to the contract, but no record of the ledger can hold their sum
        return Verdict(Outcome.INVALID, Reason.CONTRACT_VIOLATION, detail="segments.active_tokens", subject=about)
    spans = {span.policy for segment in record.segments for span in segment.spans if span.policy is not None}
    fresh = _new(record.identity, TrajectoryStatus.GENERATED, spans, at).model_copy(
        update={
            "purpose": record.purpose,
            "active_tokens": active_tokens,
            "evidence_digest": trajectory_evidence_digest([segment.evidence_digest for segment in record.segments]),
        }
    )
    return _arrive(run, fresh, Reason.GENERATED)


def generation_failed(run: Run, record: GenerationFailed, at: At) -> Verdict:
    """An attempt that ended without a trajectory; its group no longer waits for it."""
    known = run.trajectories.get(record.identity.trajectory_id)
    if known is not None:
        return _again(known, at, Reason.ILLEGAL_TRANSITION)
    failed = _new(record.identity, TrajectoryStatus.GENERATION_FAILED, {record.policy}, at)
    return _arrive(run, failed, Reason.GENERATION_FAILED)


def _again(known: TrajectoryState, at: At, otherwise: Reason) -> Verdict:
    about = subject("trajectory", known.trajectory_id)
    same = known.content == at.content
    reason = Reason.DUPLICATE if same else otherwise
    return Verdict(
        Outcome.DUPLICATE if same else Outcome.REJECTED,
        reason,
        subject=about,
        items=(item(known.trajectory_id, reason, known),),
    )


def _refusal(run: Run, record: Generated) -> Reason | None:
    config = run.config
    if config.pinned_contracts and record.contract_hash not in config.pinned_contracts:
        return Reason.CONTRACT_NOT_PINNED
    if record.contract_hash not in run.contracts:
        return Reason.UNREGISTERED_CONTRACT
    return Reason.BACKLOG_FULL if run.trajectories.live >= config.max_live else None


def _new(identity: TrajectoryIdentity, status: TrajectoryStatus, policies: set[PolicyRef], at: At) -> TrajectoryState:
    return TrajectoryState(
        trajectory_id=identity.trajectory_id,
        status=status,
        revision=1,
        group_id=identity.group_id,
        sample_index=identity.sample_index,
        group_expected=identity.group_expected,
        purpose=Purpose.TRAIN,
        policies=tuple(sorted(policies, key=lambda ref: (ref.version, ref.artifact_hash))),
        active_tokens=0,
        evidence_digest="",
        content=at.content,
        generated_offset=at.offset,
    )


def _arrive(run: Run, fresh: TrajectoryState, reason: Reason) -> Verdict:
    """Enter a trajectory in its final state: with the fact that waited for it, in quarantine where it is tainted."""
    fact = run.pending.get(f"trajectory {fresh.trajectory_id}")
    after = fresh
    released: tuple[Released, ...] = ()
    if fact is not None:
        run.pending.drop(f"trajectory {fresh.trajectory_id}")
        after, released = _apply(fresh, fact)
    if allowed(after.status, Event.QUARANTINE) and tainted(run, after):
        reason = Reason.QUARANTINED
        after = after.model_copy(update={"status": next_state(after.status, Event.QUARANTINE)})
    run.trajectories.put(fresh.trajectory_id, after)
    decided = item(fresh.trajectory_id, reason, None, after).model_copy(update={"state_before": NONE})
    return Verdict(
        Outcome.ACCEPTED,
        Reason.OK,
        subject=subject("trajectory", fresh.trajectory_id),
        items=(decided,),
        released=released,
    )


def _apply(fresh: TrajectoryState, fact: PendingFact) -> tuple[TrajectoryState, tuple[Released, ...]]:
    event = Event.REWARD_READY if fact.record_type == "RewardReady" else Event.REWARD_FAILED
    fits = allowed(fresh.status, event)
    after = fresh
    if fits:
        after = fresh.model_copy(
            update={
                "status": next_state(fresh.status, event),
                "reward_content": fact.content,
                "reward_offset": fact.offset if event is Event.REWARD_READY else None,
            }
        )
    reason = Reason.REWARDED if event is Event.REWARD_READY else Reason.REWARD_FAILED
    return after, (
        Released(
            offset=fact.offset,
            record_type=fact.record_type,
            subject_id=fact.subject_id,
            reason=(reason if fits else Reason.ILLEGAL_TRANSITION).value,
        ),
    )
