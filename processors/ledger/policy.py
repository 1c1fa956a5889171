"""Weights from PolicyPrepared to Activate: prepared, written, acknowledged, active, or abandoned."""

from rollbook.processors.gates import ack_gate
from rollbook.processors.ledger.floor import raise_floor
from rollbook.processors.ledger.lag import known_policy
from rollbook.processors.ledger.matrix import LastReport, PolicyPhase, PolicyStanding, Row, StateOf, row
from rollbook.processors.ledger.moves import quarantine_tainted
from rollbook.processors.ledger.store import Run
from rollbook.processors.ledger.verdict import At, Verdict, subject
from rollbook.processors.ledger.waiting import POLICY_COMMITTED, drop, keep, key_of
from rollbook.processors.reasons import Reason
from rollbook.schemas.records.common import PolicyRef
from rollbook.schemas.records.decision import Outcome, Released, Subject
from rollbook.schemas.records.ledger import PendingFact, PolicyState, UpdateStatus, WorkerState
from rollbook.schemas.records.policy import Activate, ActivationAck, PolicyAbandoned, PolicyCommitted, PolicyPrepared

UNDONE = (UpdateStatus.ABORTED, UpdateStatus.ROLLED_BACK)


def policy_prepared(run: Run, record: PolicyPrepared, at: At) -> Verdict:
    """New weights exist. Facts that waited for the version take their turn; its trajectories are judged by its hash."""
    about = subject("policy", record.version, record.artifact.hash)
    known = run.policies.get(record.version)
    found = row(StateOf.POLICY, "PolicyPrepared", standing_of(run, known))
    if known is not None and known.content == at.content:
        return Verdict(Outcome.DUPLICATE, Reason.DUPLICATE, subject=about)
    if found.outcome is not Outcome.ACCEPTED:
        return Verdict(found.outcome, found.reason, subject=about)
    parent = run.policies.get(record.parent_version)
    if parent is None:
        return Verdict(Outcome.REJECTED, Reason.UNKNOWN_PARENT, f"version {record.parent_version}", about)
    restored = None if record.rollback_of is None else run.policies.get(record.rollback_of)
    if record.rollback_of is not None and restored is None:
        return Verdict(Outcome.REJECTED, Reason.UNKNOWN_ROLLBACK, f"version {record.rollback_of}", about)
    if restored is not None and restored.abandoned:
        return Verdict(Outcome.REJECTED, Reason.POLICY_ABANDONED, f"version {restored.version}", about)
    source = restored or parent
    again = _contained_already(run, source, record.update_ids)
    if again is not None:
        return Verdict(Outcome.REJECTED, Reason.CONFLICT, f"update {again} is contained in its parent already", about)
    policy = _new_policy(run, record, source, restored is not None, at)
    committed, waiting = _committed_early(run, policy)
    run.policies.put(record.version, policy.but(committed=committed))
    changes = quarantine_tainted(run, (record.version,), "a tainted policy")
    return Verdict(
        found.outcome,
        found.reason,
        subject=about,
        released=(*waiting, *_acked_early(run, record)),
        mass_changes=changes,
    )


def _new_policy(run: Run, record: PolicyPrepared, source: PolicyState, rollback: bool, at: At) -> PolicyState:
    undone = any(
        update is not None and update.status in UNDONE for update in (run.updates.get(u) for u in record.update_ids)
    )
    return PolicyState(
        version=record.version,
        artifact=record.artifact,
        content=at.content,
        source_version=source.version,
        update_ids=record.update_ids,
        depth=source.depth if rollback else source.depth + 1,
        ordinal=source.ordinal + len(record.update_ids),
        committed=record.committed,
        activated=False,
        orphaned=source.orphaned or undone,
    )


def _contained_already(run: Run, source: PolicyState, update_ids: tuple[str, ...]) -> str | None:
    for update_id in sorted(update_ids):
        if any(_is_made_of(run, source, version) for version in run.policies.adding(update_id)):
            return update_id
    return None


def _is_made_of(run: Run, policy: PolicyState, version: int) -> bool:
    ancestor: PolicyState | None = policy
    while ancestor is not None and ancestor.version != version:
        ancestor = None if ancestor.source_version is None else run.policies.get(ancestor.source_version)
    return ancestor is not None


def _committed_early(run: Run, policy: PolicyState) -> tuple[bool, tuple[Released, ...]]:
    version = str(policy.version)
    waiting = [f for f in run.pending.values() if f.record_type == POLICY_COMMITTED and f.subject_id == version]
    fits = {fact.artifact_hash == policy.artifact.hash for fact in waiting}
    released = tuple(
        drop(run, fact, Reason.OK if fact.artifact_hash == policy.artifact.hash else Reason.ARTIFACT_MISMATCH)
        for fact in waiting
    )
    return policy.committed or True in fits, released


def _acked_early(run: Run, record: PolicyPrepared) -> tuple[Released, ...]:
    released = []
    for worker in run.workers.values():
        if worker.serves is not None and worker.serves.version == record.version:
            fits = worker.serves.artifact_hash == record.artifact.hash
            released.append(
                Released(
                    offset=worker.offset,
                    record_type="ActivationAck",
                    subject_id=worker.worker_id,
                    reason=(Reason.OK if fits else Reason.ARTIFACT_MISMATCH).value,
                )
            )
    return tuple(released)


def policy_committed(run: Run, record: PolicyCommitted, at: At) -> Verdict:
    """The artifact is written whole; before its PolicyPrepared the fact waits."""
    ref = record.policy
    about = subject("policy", ref.version, ref.artifact_hash)
    policy = run.policies.get(ref.version)
    found = row(StateOf.POLICY, "PolicyCommitted", standing_of(run, policy))
    if found.outcome is Outcome.PENDING:
        return _keep_committed(run, ref, at, about)
    if policy is not None and policy.artifact.hash != ref.artifact_hash:
        return Verdict(Outcome.REJECTED, Reason.ARTIFACT_MISMATCH, f"known as {policy.artifact.hash}", about)
    if policy is not None and found.outcome is Outcome.ACCEPTED:
        run.policies.put(ref.version, policy.but(committed=True))
    return Verdict(found.outcome, found.reason, subject=about)


def _keep_committed(run: Run, ref: PolicyRef, at: At, about: Subject) -> Verdict:
    fact = PendingFact(
        subject_id=str(ref.version),
        record_type=POLICY_COMMITTED,
        content=at.content,
        offset=at.offset,
        artifact_hash=ref.artifact_hash,
    )
    if key_of(fact) in run.pending:
        return Verdict(Outcome.DUPLICATE, Reason.DUPLICATE, subject=about)
    kept, evicted = keep(run, fact)
    if not kept:
        return Verdict(Outcome.REJECTED, Reason.PENDING_FULL, subject=about)
    return Verdict(Outcome.PENDING, Reason.PENDING, subject=about, released=evicted)


def activation_ack(run: Run, record: ActivationAck, at: At) -> Verdict:
    """What a worker serves: the highest (incarnation, report_seq) counts, whatever the order of arrival."""
    about = subject("worker", record.worker_id, "" if record.serves is None else record.serves.artifact_hash)
    known = run.workers.get(record.worker_id)
    last = _last_report(known, record)
    found = row(StateOf.WORKER, "ActivationAck", last)
    if known is not None and known.content == at.content and last is LastReport.SAME:
        return Verdict(Outcome.DUPLICATE, Reason.DUPLICATE, subject=about)
    if found.outcome is not Outcome.ACCEPTED:
        newer = known if last is LastReport.NEWER else None
        detail = "" if newer is None else f"later report {newer.incarnation}.{newer.report_seq}"
        return Verdict(found.outcome, found.reason, detail, about)
    run.workers.put(
        record.worker_id,
        WorkerState(
            worker_id=record.worker_id,
            incarnation=record.incarnation,
            report_seq=record.report_seq,
            serves=record.serves,
            failure="" if record.failure is None else record.failure.value,
            offset=at.offset,
            content=at.content,
        ),
    )
    if record.serves is None:
        return Verdict(found.outcome, found.reason, "" if record.failure is None else record.failure.value, about)
    policy = run.policies.get(record.serves.version)
    served = row(StateOf.POLICY, "ActivationAck", standing_of(run, policy))
    if policy is None:
        return Verdict(served.outcome, served.reason, f"version {record.serves.version} is not prepared", about)
    if policy.artifact.hash != record.serves.artifact_hash:
        return Verdict(Outcome.ACCEPTED, Reason.ARTIFACT_MISMATCH, f"known as {policy.artifact.hash}", about)
    return Verdict(served.outcome, served.reason, subject=about)


def _last_report(known: WorkerState | None, record: ActivationAck) -> LastReport | None:
    if known is None:
        return None
    order, before = (record.incarnation, record.report_seq), (known.incarnation, known.report_seq)
    if order < before:
        return LastReport.NEWER
    return LastReport.SAME if order == before else LastReport.OLDER


def activate(run: Run, record: Activate, at: At) -> Verdict:
    """Move the active pointer; first refusal wins, and the old pointer stays."""
    wanted = record.policy
    about = subject("policy", wanted.version, wanted.artifact_hash)
    policy = known_policy(run, wanted)
    found = row(StateOf.POLICY, "Activate", standing_of(run, policy))
    if policy is None:
        return Verdict(found.outcome, found.reason, subject=about)
    if policy.activation_content == at.content:
        return Verdict(Outcome.DUPLICATE, Reason.DUPLICATE, subject=about)
    refusal, detail = _unfit(run, policy, record, found)
    if refusal is not None and not run.observes:
        return Verdict(Outcome.REJECTED, refusal, detail, about)
    serves = {
        worker.worker_id: None if worker.serves is None else (worker.serves.version, worker.serves.artifact_hash)
        for worker in run.workers.values()
    }
    acks, missing, mismatched = ack_gate((wanted.version, wanted.artifact_hash), serves, run.config.required_workers)
    if acks is not None and not run.observes:
        return Verdict(Outcome.REJECTED, acks, subject=about, missing_workers=missing, mismatched_workers=mismatched)
    activated = {"activated": True, "activated_offset": at.offset, "activation_content": at.content}
    run.policies.put(wanted.version, policy.but(**activated))
    run.change_head(active=wanted, active_orphaned=policy.orphaned)
    broken = refusal or acks
    return Verdict(
        Outcome.ACCEPTED,
        broken or found.reason,
        detail if broken else "",
        about,
        missing_workers=missing,
        mismatched_workers=mismatched,
        mass_changes=raise_floor(run),
        violation=broken is not None,
    )


def policy_abandoned(run: Run, record: PolicyAbandoned, at: At) -> Verdict:
    """The version will never be active; concerns it alone, its descendants stand."""
    policy = run.policies.get(record.version)
    found = row(StateOf.POLICY, "PolicyAbandoned", standing_of(run, policy))
    about = subject("policy", record.version, "" if policy is None else policy.artifact.hash)
    if policy is None or found.outcome is not Outcome.ACCEPTED:
        return Verdict(found.outcome, found.reason, subject=about)
    run.policies.put(record.version, policy.but(abandoned=True))
    changes = quarantine_tainted(run, (record.version,), "an abandoned policy")
    return Verdict(found.outcome, found.reason, record.reason.value, about, mass_changes=changes)


def phase_of(run: Run, policy: PolicyState) -> PolicyPhase:
    """What a policy is, in a word."""
    active = run.head.active is not None and run.head.active.version == policy.version
    if active:
        return PolicyPhase.ACTIVE
    if policy.abandoned:
        return PolicyPhase.ABANDONED
    if policy.orphaned:
        return PolicyPhase.ORPHANED
    if policy.activated:
        return PolicyPhase.SUPERSEDED
    return PolicyPhase.COMMITTED if policy.committed else PolicyPhase.PREPARED


def standing_of(run: Run, policy: PolicyState | None) -> PolicyStanding | None:
    """What a policy is, for the table of records and states; None: unknown."""
    if policy is None:
        return None
    passed = run.head.active is not None and policy.version < run.head.active.version
    return PolicyStanding(phase_of(run, policy), policy.committed, passed)


def _unfit(run: Run, policy: PolicyState, record: Activate, found: Row) -> tuple[Reason | None, str]:
    active = run.head.active
    assert active is not None, "a configured run has an active policy"
    if record.expected_active_version != active.version:
        return Reason.WRONG_EXPECTED, f"active version {active.version}"
    if found.outcome is not Outcome.ACCEPTED:
        spoilt = found.reason in (Reason.POLICY_ABANDONED, Reason.POLICY_ORPHANED)
        return found.reason, "" if spoilt else f"active version {active.version}"
    ancestor: PolicyState | None = policy
    # in gate mode what was activated before had its updates committed
    while ancestor is not None and (run.observes or not ancestor.activated):
        for update_id in ancestor.update_ids:
            update = run.updates.get(update_id)
            if update is None or update.status is not UpdateStatus.COMMITTED:
                return Reason.UPDATE_NOT_COMMITTED, update_id
        ancestor = None if ancestor.source_version is None else run.policies.get(ancestor.source_version)
    return None, ""
