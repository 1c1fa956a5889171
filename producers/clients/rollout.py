"""The client of a rollout worker: generation contracts, trajectories, failures, and which policy it serves."""

from collections.abc import Mapping, Sequence

from rollbook.infra.settings import Settings
from rollbook.producers import given
from rollbook.producers.arrays import Field
from rollbook.producers.clients.client import Client, Options
from rollbook.producers.clients.reports import Reports
from rollbook.producers.clients.segments import SegmentArrays, prepare_all
from rollbook.producers.identity import now_ms
from rollbook.producers.sending.outbox import PayloadBytes
from rollbook.schemas.digests import contract_hash
from rollbook.schemas.records.common import PayloadRef, PolicyRef, Source, SourceKind, TrajectoryIdentity
from rollbook.schemas.records.policy import AckFailure, EvidenceKind, Probe
from rollbook.schemas.records.rollout import (
    Dispatched,
    FinishReason,
    Generated,
    GenerationFailed,
    GenerationFailure,
    Provenance,
    Purpose,
    TaskSource,
)
from rollbook.schemas.records.run import GenerationContract, Sampling
from rollbook.schemas.types import NamedText


class RolloutWorker(Client):
    """Publishes what one worker generates; nothing here waits for the broker.

    `incarnation` must rise with each start of the worker: by default its clock in milliseconds. `keep_tokens` stores
    the token ids as well, but for those that `Options.redaction` drops, for trainers that load them from the log; else
    only their digest is published.
    `keep_payloads` False publishes digests only, so that neither `load` nor the audit can see masks and log-probs.
    """

    def __init__(
        self,
        settings: Settings,
        run_id: str,
        worker_id: str,
        *,
        incarnation: int | None = None,
        keep_payloads: bool = True,
        keep_tokens: bool = False,
        options: Options | None = None,
    ) -> None:
        source = Source(kind=SourceKind.ROLLOUT_WORKER, id=worker_id)
        super().__init__(settings, run_id, source, options, commands=False)
        self._worker_id = worker_id
        self._keep_payloads = keep_payloads
        if keep_tokens:
            self._redaction = self._redaction.keeping_tokens()
        self._reports = Reports(worker_id, now_ms() if incarnation is None else incarnation)

    @property
    def worker_id(self) -> str:
        return self._worker_id

    def register_contract(
        self, *, tokenizer: str, template: str, engine: str, sampling: Sampling, deterministic: bool = False
    ) -> str:
        """Publish the conditions of generation; returns the hash that trajectories cite. Each worker may do so."""
        named = {"tokenizer": tokenizer, "template": template, "engine": engine}
        tokenizer, template, engine = (given.a(str, name, "GenerationContract", of) for of, name in named.items())
        tokenizer, template = map(self._redaction.fingerprint, (tokenizer, template))
        engine = self._redaction.name(engine)
        digest = contract_hash(
            tokenizer=tokenizer,
            template=template,
            engine=engine,
            sampling=given.a(Sampling, sampling, "GenerationContract", "sampling"),
            deterministic=deterministic,
        )
        self._publish(
            GenerationContract(
                header=self._header(),
                contract_hash=digest,
                tokenizer=tokenizer,
                template=template,
                engine=engine,
                sampling=sampling,
                deterministic=deterministic,
            )
        )
        return digest

    def dispatched(self, identity: TrajectoryIdentity, policy: PolicyRef, *, task: TaskSource) -> None:
        """Publish that a generation has begun, so that one that dies is visible. Optional."""
        task = self._redaction.task(given.a(TaskSource, task, "Dispatched", "task"))
        self._publish(
            Dispatched(header=self._header(), identity=identity, task=task, policy=policy, worker_id=self._worker_id)
        )

    def generated(
        self,
        identity: TrajectoryIdentity,
        segments: Sequence[SegmentArrays],
        *,
        task: TaskSource,
        contract_hash: str,
        finish_reason: FinishReason,
        rollout_partition_id: str,
        purpose: Purpose = Purpose.TRAIN,
        overrides: Mapping[str, str] | None = None,
    ) -> str:
        """Publish a whole trajectory, payloads first; returns its id. Raises ContractViolation naming the field."""
        rows = prepare_all(given.listed(segments, "Generated", "segments"))
        redaction = self._redaction
        record = Generated(
            header=self._header(),
            identity=identity,
            purpose=purpose,
            task=redaction.task(given.a(TaskSource, task, "Generated", "task")),
            contract_hash=contract_hash,
            overrides=redaction.named(
                [
                    NamedText(name=name, value=redaction.setting(value))
                    for name, value in given.mapped(overrides or {}, Field("Generated", "overrides"))
                ]
            ),
            segments=tuple(row.record(redaction) for row in rows),
            finish_reason=finish_reason,
            provenance=Provenance(rollout_partition_id=redaction.name(rollout_partition_id), worker_id=self._worker_id),
        )
        key = identity.trajectory_id
        stored = rows if self._keep_payloads else []
        payloads = [PayloadBytes(key, row.payload(self._run_id, key, redaction)) for row in stored]
        self._outbox.publish(lambda refs: _referring(record, refs), payloads)
        return key

    def generation_failed(
        self, identity: TrajectoryIdentity, policy: PolicyRef, reason: GenerationFailure, *, text: str = ""
    ) -> None:
        """Publish that an attempt ended without a trajectory: never a reward of 0."""
        text = self._redaction.text(text)
        self._publish(
            GenerationFailed(header=self._header(), identity=identity, policy=policy, reason=reason, text=text)
        )

    def acknowledge(self, policy: PolicyRef, evidence: EvidenceKind, *, probe: Probe | None = None) -> None:
        """Publish which policy the worker serves: after each change, and at every start."""
        self._publish(self._reports.serving(self._header(), policy, evidence, probe))

    def acknowledge_failure(self, failure: AckFailure, *, text: str = "") -> None:
        """Publish that the worker does not serve what it should."""
        self._publish(self._reports.failing(self._header(), failure, self._redaction.text(text)))


def _referring(record: Generated, refs: tuple[PayloadRef, ...]) -> Generated:
    """The record with a reference in each segment. Cheap, since the publishing thread calls it: nothing is validated
    that was not made by us."""
    if not refs:
        return record
    segments = zip(record.segments, refs, strict=True)
    return record.model_copy(
        update={"segments": tuple(segment.model_copy(update={"payload": ref}) for segment, ref in segments)}
    )
