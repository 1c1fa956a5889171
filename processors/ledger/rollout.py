"""Dispatched, Generated and GenerationFailed: trajectories become known, and facts that waited take their turn."""

from operator import attrgetter

from rollbook.processors.ledger.matrix import Row, StateOf, row
from rollbook.processors.ledger.moves import tainted, take_trained
from rollbook.processors.ledger.reward import rewarding, tally_cause
from rollbook.processors.ledger.store import Run
from rollbook.processors.ledger.verdict import At, Verdict, item, subject
from rollbook.processors.ledger.waiting import drop, let_go, reward_of, training_of
from rollbook.processors.lifecycle import LIVE, NONE, Event, allowed, next_state
from rollbook.processors.reasons import Reason
from rollbook.schemas.digests import trajectory_evidence_digest
from rollbook.schemas.records.common import PolicyRef, TrajectoryIdentity
from rollbook.schemas.records.decision import Outcome, Released
from rollbook.schemas.records.ledger import TrajectoryState, TrajectoryStatus
from rollbook.schemas.records.rollout import Dispatched, Generated, GenerationFailed, Purpose
from rollbook.schemas.records.run import Unpinned


def dispatched(run: Run, record: Dispatched, at: At) -> Verdict:
    """A generation has begun. One that is reported over already only confirms what is known."""
    known, found, refusal = _meet(run, "Dispatched", record.identity, at)
    if refusal is not None:
        return refusal
    if known is not None:
        return _verdict(known, found.outcome, found.reason)
    refused = _refused(run, {record.policy})
    if refused is not None:
        return Verdict(Outcome.REJECTED, refused, subject=subject("trajectory", record.identity.trajectory_id))
    begun = _new(record.identity, {record.policy}, at, status=_through(run, NONE, Event.DISPATCHED))
    fresh, reason = _untainted(run, begun, found.reason)
    fresh, trained = _trained_already(run, fresh, ())
    run.trajectories.put(fresh.trajectory_id, fresh)
    over = fresh.status is not TrajectoryStatus.DISPATCHED
    released = let_go(run, fresh.trajectory_id) if over else ()
    return _verdict(None, Outcome.ACCEPTED, reason, fresh, released=(*released, *trained))


def generated(run: Run, record: Generated, at: At) -> Verdict:
    """A whole trajectory; a reward that waited for it is applied as part of the same change."""
    known, found, refusal = _meet(run, "Generated", record.identity, at)
    if refusal is not None:
        return refusal
    spans = {span.policy for segment in record.segments for span in segment.spans if span.policy is not None}
    refused = _refused(run, spans, known) or _unpinned(run, record)
    if refused is not None:
        return Verdict(Outcome.REJECTED, refused, subject=subject("trajectory", record.identity.trajectory_id))
    fresh = _new(
        record.identity,
        spans,
        at,
        apart=_apart(run, record),
        purpose=record.purpose,
        active_tokens=sum(segment.active_tokens for segment in record.segments),
        evidence_digest=trajectory_evidence_digest([segment.evidence_digest for segment in record.segments]),
    )
    return _arrive(run, known, fresh, found)


def generation_failed(run: Run, record: GenerationFailed, at: At) -> Verdict:
    """An attempt that ended without a trajectory; its group no longer waits for it. Below the floor it is told only to
    a group that lives and waits for just this."""
    known, found, refusal = _meet(run, "GenerationFailed", record.identity, at)
    if refusal is not None:
        return refusal
    place = record.identity
    awaited = run.trajectories.groups.awaits(place.group_id, place.sample_index)
    if record.policy.version < run.floor and not awaited:  # what is forgotten must not fail twice
        about = subject("trajectory", record.identity.trajectory_id)
        return Verdict(Outcome.REJECTED, Reason.BEYOND_HORIZON, record.reason.value, about)
    return _arrive(run, known, _new(record.identity, {record.policy}, at), found, record.reason.value)


def _meet(
    run: Run, record_type: str, identity: TrajectoryIdentity, at: At
) -> tuple[TrajectoryState | None, Row, Verdict | None]:
    """What is known of the trajectory, the row that it meets, and the answer where that is all there is to say."""
    known = run.trajectories.get(identity.trajectory_id)
    found = row(StateOf.TRAJECTORY, record_type, None if known is None else known.status)
    if known is None:
        return None, found, None
    if known.content == at.content:
        return known, found, _verdict(known, Outcome.DUPLICATE, Reason.DUPLICATE)
    place = (known.group_id, known.sample_index, known.group_expected)
    if found.outcome is Outcome.ACCEPTED and place != (
        identity.group_id,
        identity.sample_index,
        identity.group_expected,
    ):
        return known, found, _verdict(known, Outcome.REJECTED, Reason.CONFLICT)
    return known, found, None if found.outcome is Outcome.ACCEPTED else _verdict(known, found.outcome, found.reason)


def _verdict(
    before: TrajectoryState | None,
    outcome: Outcome,
    reason: Reason,
    after: TrajectoryState | None = None,
    *,
    detail: str = "",
    released: tuple[Released, ...] = (),
) -> Verdict:
    about = after or before
    assert about is not None, "a verdict is about a trajectory"
    decided = item(about.trajectory_id, reason, before, after, unknown=NONE)
    accepted = outcome is Outcome.ACCEPTED
    return Verdict(
        outcome,
        Reason.OK if accepted else reason,
        detail=detail,
        subject=subject("trajectory", about.trajectory_id),
        items=(decided,),
        released=released,
    )


def _refused(run: Run, policies: set[PolicyRef], known: TrajectoryState | None = None) -> Reason | None:
    floor = run.floor
    if any(ref.version < floor for ref in policies):
        return Reason.BEYOND_HORIZON
    return Reason.BACKLOG_FULL if known is None and run.trajectories.live >= run.config.max_live else None


def _unpinned(run: Run, record: Generated) -> Reason | None:
    if run.config.unpinned is Unpinned.APART:
        return None
    if run.config.pinned_contracts and record.contract_hash not in run.config.pinned_contracts:
        return Reason.CONTRACT_NOT_PINNED
    return None if record.contract_hash in run.contracts else Reason.UNREGISTERED_CONTRACT


def _apart(run: Run, record: Generated) -> str:
    """What keeps the trajectory apart from its group: its contract, where that is unregistered or unpinned."""
    pinned = run.config.pinned_contracts
    usual = record.contract_hash in run.contracts and (not pinned or record.contract_hash in pinned)
    return "" if usual else record.contract_hash


def _new(
    identity: TrajectoryIdentity,
    policies: set[PolicyRef],
    at: At,
    *,
    status: TrajectoryStatus = TrajectoryStatus.DISPATCHED,
    apart: str = "",
    purpose: Purpose = Purpose.TRAIN,
    active_tokens: int = 0,
    evidence_digest: str = "",
) -> TrajectoryState:
    return TrajectoryState.trusted(  # all of it comes from a validated record
        trajectory_id=identity.trajectory_id,
        status=status,
        revision=1,
        group_id=identity.group_id,
        sample_index=identity.sample_index,
        group_expected=identity.group_expected,
        apart=apart,
        purpose=purpose,
        policies=tuple(sorted(policies, key=attrgetter("version", "artifact_hash"))),
        active_tokens=active_tokens,
        evidence_digest=evidence_digest,
        content=at.content,
        generated_offset=at.offset,
        reward_content="",
        failure_content="",
        reward_offset=None,
        update_id="",
        trained_by=(),
        lag=None,
        admitted_ratio=None,
    )


def _arrive(run: Run, known: TrajectoryState | None, fresh: TrajectoryState, found: Row, detail: str = "") -> Verdict:
    """Enter a trajectory in its final state: with the fact that waited for it, in quarantine where it is tainted."""
    status = _through(run, NONE if known is None else known.status, *found.events)
    after = fresh.but(status=status, revision=1 if known is None else known.revision + 1)
    released: tuple[Released, ...] = ()
    fact = reward_of(run, fresh.trajectory_id)
    if fact is not None:
        waited = row(StateOf.TRAJECTORY, fact.record_type, after.status)
        if waited.outcome is Outcome.ACCEPTED:
            after = after.but(status=_through(run, status, *waited.events), **rewarding(after, fact))
            tally_cause(run, fact)
        released = (drop(run, fact, waited.reason),)
    after, reason = _untainted(run, after, found.reason)
    after, trained = _trained_already(run, after, () if known is None else known.trained_by)
    run.trajectories.put(fresh.trajectory_id, after)
    return _verdict(known, Outcome.ACCEPTED, reason, after, detail=detail, released=(*released, *trained))


def _trained_already(
    run: Run, arriving: TrajectoryState, marked: tuple[str, ...]
) -> tuple[TrajectoryState, tuple[Released, ...]]:
    """What an update trained on before it was known is consumed with its reward, or keeps the mark until that comes."""
    fact = training_of(run, arriving.trajectory_id)
    by = (*marked, *(() if fact is None else fact.trained_by))
    after = arriving.but(trained_by=by) if by else arriving
    if after.status is TrajectoryStatus.REWARDED:
        events, changes = take_trained(run, after)
        after = after.but(status=_through(run, after.status, *events), **changes)
    reason = (
        Reason.OK if after.status in LIVE or after.status is TrajectoryStatus.CONSUMED else Reason.ILLEGAL_TRANSITION
    )
    return after, () if fact is None else (drop(run, fact, reason),)


def _through(run: Run, status: str, *events: Event) -> TrajectoryStatus:
    """The state of a trajectory on its way in, after events."""
    for event in events:
        status = next_state(status, event)
        run.tally(event._value_)
    return TrajectoryStatus(status)


def _untainted(run: Run, arrived: TrajectoryState, reason: Reason) -> tuple[TrajectoryState, Reason]:
    """What arrives by a policy that was undone, given up, or is known with another hash, arrives in quarantine."""
    if not (allowed(arrived.status, Event.QUARANTINE) and tainted(run, arrived)):
        return arrived, reason
    return arrived.but(status=_through(run, arrived.status, Event.QUARANTINE)), Reason.QUARANTINED
