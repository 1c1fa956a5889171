"""The fold of one partition: a record of the log in, one chained decision out, the ledger's state changed in between.

Deterministic: no clock, no randomness, no I/O, no order but the log's. The host calls it; so does the audit.
"""

import hashlib
from collections.abc import Callable
from functools import lru_cache
from typing import Any, NamedTuple

from rollbook.infra.settings import DECISION_MAX_BYTES
from rollbook.processors.decision_schema import decision_writer
from rollbook.processors.fold_version import FOLD_VERSION
from rollbook.processors.ledger import admit, ending, floor, learner, policy, reserve, reward, rollout, run, update
from rollbook.processors.ledger.keys import key_of
from rollbook.processors.ledger.store import NO_CHAIN, Run
from rollbook.processors.ledger.table import Journal
from rollbook.processors.ledger.tally import tally
from rollbook.processors.ledger.verdict import At, Verdict, mass_change
from rollbook.processors.lifecycle_schema import FIRST, read_since
from rollbook.processors.reasons import Reason
from rollbook.schemas.codec import (
    PREFIX_LENGTH,
    ContractViolation,
    Decoded,
    UndecodableRecord,
    encode,
    read,
    unwrap,
    validate,
)
from rollbook.schemas.partition import partition_of
from rollbook.schemas.records import policy as policy_records
from rollbook.schemas.records import reward as reward_records
from rollbook.schemas.records import rollout as rollout_records
from rollbook.schemas.records import run as run_records
from rollbook.schemas.records import update as update_records
from rollbook.schemas.records.common import Header, LearnerRef, Lifecycle
from rollbook.schemas.records.decision import Decision, Outcome, SourcePosition

MOST_DECISION_BYTES = DECISION_MAX_BYTES - 64 * 1024
CHAIN_BYTES = 66  # a 64-character string as Avro's last field: two bytes of length, then the text
STRAYS = "~partition-"
"""What the pseudo-run of a partition is called, before its number: records that belong to no run, or to none here."""

HANDLERS: dict[type[Lifecycle], Callable[[Run, Any, At], Verdict]] = {
    run_records.RunClosed: floor.run_closed,
    run_records.GenerationContract: run.generation_contract,
    rollout_records.Dispatched: rollout.dispatched,
    rollout_records.Generated: rollout.generated,
    rollout_records.GenerationFailed: rollout.generation_failed,
    reward_records.RewardReady: reward.reward_ready,
    reward_records.RewardFailed: reward.reward_failed,
    reward_records.Discarded: reward.discarded,
    reward_records.Quarantine: reward.quarantine,
    update_records.LearnerStarted: learner.learner_started,
    update_records.Reserve: reserve.reserve,
    update_records.Admit: admit.admit,
    update_records.UpdateStarted: update.update_started,
    update_records.Commit: update.commit,
    update_records.Abort: ending.abort,
    update_records.Renew: ending.renew,
    update_records.LeaseExpired: ending.lease_expired,
    update_records.RecordingSealed: ending.recording_sealed,
    update_records.CheckpointSaved: learner.checkpoint_saved,
    policy_records.PolicyPrepared: policy.policy_prepared,
    policy_records.PolicyCommitted: policy.policy_committed,
    policy_records.PolicyAbandoned: policy.policy_abandoned,
    policy_records.ActivationAck: policy.activation_ack,
    policy_records.Activate: policy.activate,
}
"""Which function decides which record; `RunConfigured` stands apart, since only it is decided before a run is open."""


_partition_of = lru_cache(maxsize=4096)(partition_of)
"""The hash runs in Python, byte by byte, and the runs of a partition are few."""


class NewerFoldVersion(Exception):
    """The log asks for rules that this package does not know: the host stops the partition here."""


class SourceRecord(NamedTuple):
    """A record of the lifecycle topic as it lies there."""

    partition: int
    offset: int
    key: bytes | None
    value: bytes | None


class Folded(NamedTuple):
    """One decision with its bytes, and what was wrong with a record that could not be decoded."""

    decision: Decision
    encoded: bytes
    undecodable: str | None = None


class Ledger:
    """The state of one partition. `topic_partitions` is the partition count of the lifecycle topic."""

    def __init__(self, partition: int, topic_partitions: int) -> None:
        self.partition = partition
        self.topic_partitions = topic_partitions
        self.journal = Journal()
        self.runs: dict[str, Run] = {}

    def run(self, run_id: str) -> Run:
        """The state of a run; an empty one when it is new."""
        found = self.runs.get(run_id)
        if found is None:
            found = self.runs[run_id] = Run(run_id, self.journal)
        return found

    def fold(self, record: SourceRecord) -> Folded:
        """Decide one record. An exception is a defect of ours: the record's changes are undone before it goes on."""
        mark = self.journal.mark()
        try:
            return self._fold(record)
        except BaseException:
            self.journal.undo(mark)
            raise

    def _fold(self, record: SourceRecord) -> Folded:
        source = SourcePosition.trusted(  # what the broker says of a record
            partition=record.partition, offset=record.offset, sha256=hashlib.sha256(record.value or b"").hexdigest()
        )
        found = read(record.value or b"")
        if found is not None and isinstance(found[0], Lifecycle) and _since(record) == FIRST:
            return self._decide_read(source, record, found[0], found[0].header, found[1])
        try:
            decoded = unwrap(record.value or b"")
            if not issubclass(decoded.model, Lifecycle):
                raise UndecodableRecord(f"a {decoded.model.__name__} does not belong on the lifecycle topic")
            self._check_is_read(decoded, record)
        except UndecodableRecord as error:
            self._check_is_nobodys(record)
            verdict = Verdict(Outcome.UNDECODABLE, Reason.UNDECODABLE)
            return self._decide(source, self._strays(), "", "", verdict, undecodable=str(error))
        record_type = decoded.model.__name__
        valid = _validated(decoded)
        try:
            header = valid.header if isinstance(valid, Lifecycle) else decoded.header()
        except ContractViolation as error:
            verdict = Verdict(Outcome.INVALID, Reason.CONTRACT_VIOLATION, detail=f"header.{error.field}")
            return self._decide(source, self._strays(), record_type, "", verdict)
        return self._decide_read(source, record, valid, header, decoded.content, record_type)

    def _decide_read(
        self,
        source: SourcePosition,
        record: SourceRecord,
        valid: Lifecycle | ContractViolation,
        header: Header,
        content: str,
        record_type: str = "",
    ) -> Folded:
        """Decide a record of a type that is read and a header that is valid. `record_type`: where it is not valid."""
        record_type = record_type or type(valid).__name__
        if not self._in_place(header.run_id, record.key):
            verdict = Verdict(Outcome.INVALID, Reason.WRONG_PARTITION, detail=header.run_id)
            return self._decide(source, self._strays(), record_type, header.event_id, verdict)
        of_run = self.run(header.run_id)
        _know(of_run.head.fold_version, of_run, record)
        if isinstance(valid, ContractViolation):
            verdict = Verdict(Outcome.INVALID, Reason.CONTRACT_VIOLATION, detail=valid.field)
        else:
            verdict = self._judge(of_run, valid, content, record)
        return self._decide(source, of_run, record_type, header.event_id, verdict)

    def _check_is_read(self, decoded: Decoded, record: SourceRecord) -> None:
        """Raises `UndecodableRecord` for a schema that the run does not read yet, and where there is no run to ask: a
        package that does not know the schema finds neither header nor place."""
        since = _since(record)
        if since == FIRST:
            return
        try:
            run_id = decoded.header().run_id
        except ContractViolation:
            run_id = ""
        known = self.runs.get(run_id) if self._in_place(run_id, record.key) else None
        if known is None or known.head.fold_version < since:
            raise UndecodableRecord(
                f"a {decoded.model.__name__} under schema {_schema(record)}, which runs of fold version {since} read: "
                "configure the run with that version first"
            )

    def _check_is_nobodys(self, record: SourceRecord) -> None:
        """Raises `NewerFoldVersion` for what cannot be read under the key of a run with newer rules: those may."""
        named = self.runs.get((record.key or b"").decode(errors="replace"))
        if named is not None:
            _know(named.head.fold_version, named, record)

    def _in_place(self, run_id: str, key: bytes | None) -> bool:
        return key == run_id.encode() and _partition_of(run_id, self.topic_partitions) == self.partition

    def _strays(self) -> Run:
        """Where records without a run of their own are counted; no run id can begin with a tilde."""
        return self.run(f"{STRAYS}{self.partition}")

    def _judge(self, of_run: Run, record: Lifecycle, content: str, source: SourceRecord) -> Verdict:
        at = At(offset=source.offset, sequence=of_run.head.sequence + 1, content=content)
        refusal = run.refuse(of_run, type(record).__name__)
        if refusal is not None:
            return refusal
        if isinstance(record, run_records.RunConfigured):
            _know(record.fold_version, of_run, source)
            return run.run_configured(of_run, record, at, self.topic_partitions)
        return HANDLERS[type(record)](of_run, record, at)

    def _decide(
        self,
        source: SourcePosition,
        of_run: Run,
        record_type: str,
        event_id: str,
        verdict: Verdict,
        undecodable: str | None = None,
    ) -> Folded:
        tally(of_run, record_type, verdict)
        head = of_run.head
        decision = Decision.trusted(
            run_id=of_run.run_id,
            sequence=head.sequence + 1,
            source=source,
            record_type=record_type,
            event_id=event_id,
            outcome=verdict.outcome,
            violation=verdict.violation or (verdict.outcome is Outcome.REJECTED and of_run.observes),
            reason=verdict.reason._value_,  # `value` is looked up in Python
            detail=verdict.detail,
            subject=verdict.subject,
            update_id=verdict.update_id,
            learner=_learner(of_run, verdict.learner_id),
            active_policy=head.active,
            config_version=head.config_version,
            fold_version=head.fold_version,
            missing_workers=verdict.missing_workers,
            mismatched_workers=verdict.mismatched_workers,
            items=verdict.items,
            released=verdict.released,
            mass_changes=verdict.mass_changes,
            chain=NO_CHAIN,
        )
        write = decision_writer(head.fold_version)
        body = write(decision)[:-CHAIN_BYTES]
        if len(body) > MOST_DECISION_BYTES:
            decision = _without_lists(decision)
            body = write(decision)[:-CHAIN_BYTES]
        chain = chain_of(head.chain, source.sha256, body)
        of_run.change_head(sequence=decision.sequence, chain=chain)
        decision.__dict__["chain"] = chain  # nobody has seen it yet: another one would cost as much as the link
        return Folded(decision, body + b"\x80\x01" + chain.encode(), undecodable)

    def changes(self) -> list[tuple[bytes, bytes | None]]:
        """What changed since the last kept batch, as records of the ledger topic; None removes a key."""
        return [
            (key_of(table.run_id, table.kind, key), None if (row := table.get(key)) is None else encode(row))
            for table, key in self.journal.changes()
        ]


def _schema(record: SourceRecord) -> str:
    return (record.value or b"")[2:PREFIX_LENGTH].hex()


def _since(record: SourceRecord) -> int:
    """The fold version since which records like this one are read."""
    return read_since(_schema(record))


def _validated(decoded: Decoded) -> Lifecycle | ContractViolation:
    try:
        record = validate(decoded)
    except ContractViolation as error:
        return error
    assert isinstance(record, Lifecycle), "only lifecycle records come this far"
    return record


def _learner(of_run: Run, learner_id: str | None) -> LearnerRef | None:
    if learner_id is None:
        return None
    state = of_run.learners.get(learner_id)
    return LearnerRef.trusted(learner_id=learner_id, epoch=0 if state is None else state.epoch)


def _know(fold_version: int, of_run: Run, source: SourceRecord) -> None:
    """Raises `NewerFoldVersion` for rules that this package does not have."""
    if fold_version > FOLD_VERSION:
        raise NewerFoldVersion(
            f"lifecycle partition {source.partition} offset {source.offset}: run {of_run.run_id} asks for fold version "
            f"{fold_version}, this package knows {FOLD_VERSION}; install a newer rollbook"
        )


def _without_lists(decision: Decision) -> Decision:
    """A decision that would not fit its topic, with digests in place of its lists: what they held is in the log."""
    omitted = (
        *mass_change("items omitted", (one.trajectory_id for one in decision.items)),
        *mass_change("released facts omitted", (one.subject_id for one in decision.released)),
        *mass_change("workers omitted", (*decision.missing_workers, *decision.mismatched_workers)),
    )
    return decision.but(
        items=(),
        released=(),
        missing_workers=(),
        mismatched_workers=(),
        mass_changes=(*decision.mass_changes, *omitted),
    )


def chain_of(previous: str, source_sha256: str, body: bytes) -> str:
    """The link of a decision: sha256 over the previous link, the source record's sha256 and the decision's bytes up to
    its chain field."""
    return hashlib.sha256(bytes.fromhex(previous) + bytes.fromhex(source_sha256) + body).hexdigest()
