"""What a record says in its own fields, in a few words; of one trajectory where it names many."""

from rollbook.infra.looking.show import figure
from rollbook.schemas.records import policy as p
from rollbook.schemas.records import reward as w
from rollbook.schemas.records import rollout as g
from rollbook.schemas.records import update as u
from rollbook.schemas.records.common import Lifecycle, TrajectoryIdentity
from rollbook.schemas.records.run import RunConfigured
from rollbook.schemas.text import plural


def said(record: Lifecycle, trajectory_id: str | None = None) -> str:
    """A few words; nothing where the record's type says it all."""
    match record:
        case g.Dispatched():
            return f"{_place(record.identity)}, policy {record.policy.version}, worker {record.worker_id}"
        case g.Generated():
            return _generated(record)
        case g.GenerationFailed():
            return f"{record.reason.value}, {_place(record.identity)}, policy {record.policy.version}"
        case w.RewardReady():
            return _rewards(record, trajectory_id)
        case w.RewardFailed():
            return f"{record.reason.value}, {'will be tried again' if record.retriable else 'for good'}"
        case w.Discarded():
            return record.reason.value
        case w.Quarantine():
            return record.reason
        case u.LearnerStarted():
            weights = "the initial policy" if record.checkpoint is None else f"checkpoint {record.checkpoint.id}"
            return f"learner {record.learner_id} with the weights of {weights}"
        case u.Reserve():
            return _reserve(record, trajectory_id)
        case u.Admit():
            return _admit(record, trajectory_id)
        case u.Commit():
            return _commit(record, trajectory_id)
        case u.RecordingSealed():
            return f"rank {record.rank}, {plural(len(record.recordings), 'recording')}"
        case u.Abort():
            return ", ".join(part for part in (record.reason.value, record.disposition.value, record.text) if part)
        case u.LeaseExpired():
            return f"nothing since offset {record.basis}"
        case u.CheckpointSaved():
            return f"checkpoint {record.checkpoint.id} up to update {record.last_update_id or 'none'}"
    return _policy(record)


def _policy(record: Lifecycle) -> str:
    match record:
        case p.PolicyPrepared():
            source = f"of version {record.parent_version}"
            if record.rollback_of is not None:
                source += f", weights of version {record.rollback_of} again"
            whole = "written whole" if record.committed else "not yet whole"
            return f"version {record.version} {source}, adds {plural(len(record.update_ids), 'update')}, {whole}"
        case p.PolicyCommitted():
            return f"version {record.policy.version} is written whole"
        case p.PolicyAbandoned():
            return f"version {record.version}: {record.reason.value}"
        case p.ActivationAck():
            return _ack(record)
        case p.Activate():
            return f"version {record.policy.version} after version {record.expected_active_version}"
        case RunConfigured():
            return f"configuration {record.config_version}, starts with policy {record.initial_policy.version}"
    return ""


def _place(identity: TrajectoryIdentity) -> str:
    return f"group {identity.group_id}, sample {identity.sample_index} of {identity.group_expected}"


def _generated(record: g.Generated) -> str:
    spans = [span for segment in record.segments for span in segment.spans]
    versions = sorted({span.policy.version for span in spans if span.policy is not None})
    tokens = sum(segment.active_tokens for segment in record.segments)
    return (
        f"{_place(record.identity)}, {record.purpose.value}, policies {', '.join(map(str, versions))}, {tokens:,} "
        f"active tokens in {plural(len(record.segments), 'segment')}, finished: {record.finish_reason.value}, worker "
        f"{record.provenance.worker_id}"
    )


def _rewards(record: w.RewardReady, trajectory_id: str | None) -> str:
    rule = f"by {record.reward.rule_id} {record.reward.version}"
    mine = [item.raw_reward for item in record.items if item.trajectory_id == trajectory_id]
    return f"reward {', '.join(f'{reward:.6g}' for reward in mine)} {rule}" if mine else rule


def _reserve(record: u.Reserve, trajectory_id: str | None) -> str:
    by = f"part {record.part}, learner's policy {record.policy.version}"
    if record.claim is not None:
        return f"{by}, claims {plural(record.claim.max_groups, 'group')}, {record.claim.order.value} first"
    mine = [item.expected_revision for item in record.items if item.trajectory_id == trajectory_id]
    expected = f", revision {mine[0]} expected" if mine else ""
    return f"{by}, {record.mode.value} of {len(record.items)} named{expected}"


def _admit(record: u.Admit, trajectory_id: str | None) -> str:
    by = f"part {record.part}, policy {record.policy.version} and {plural(record.own_updates, 'own update')}"
    mine = [item for item in record.items if item.trajectory_id == trajectory_id]
    if not mine:
        return by
    return f"{by}, {mine[0].active_tokens} tokens, largest drift {figure(mine[0].max_abs_log_ratio)}"


def _commit(record: u.Commit, trajectory_id: str | None) -> str:
    if trajectory_id is None:
        trained = {name for step in record.steps for name in step.trajectory_ids}
        return f"{plural(len(record.steps), 'step')}, {len(trained):,} trained on, {len(record.dropped):,} dropped"
    steps = [f"{step.rollout_id}.{step.step_id}" for step in record.steps if trajectory_id in step.trajectory_ids]
    dropped = [drop for drop in record.dropped if drop.trajectory_id == trajectory_id]
    if dropped:
        return f"dropped: {dropped[0].reason}, {dropped[0].disposition.value}"
    return f"trained on in step {', '.join(steps)}" if steps else "not named"


def _ack(record: p.ActivationAck) -> str:
    report = f"worker {record.worker_id} report {record.incarnation}.{record.report_seq}"
    if record.serves is None:
        return f"{report}: {'' if record.failure is None else record.failure.value}"
    evidence = "" if record.evidence is None else f" by {record.evidence.value}"
    return f"{report}: serves {record.serves.version}{evidence}"
