"""A run told record by record into a log in memory, and folded as it is told: committed updates with recordings that
agree with the log, and a place to plant contradictions before anything is written.

    story = Story().opened()
    group = story.group("g")
    story.update("u", [group])
"""

import hashlib
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace

import numpy as np

from rollbook.infra.settings import Settings, Topic
from rollbook.processors.ledger.fold import Ledger, SourceRecord
from rollbook.schemas.codec import encode, make
from rollbook.schemas.digests import digest_of_digests, log_probs_digest
from rollbook.schemas.records.common import (
    Header,
    LearnerRef,
    Lifecycle,
    PayloadRef,
    PolicyRef,
    Source,
    SourceKind,
    TrajectoryIdentity,
)
from rollbook.schemas.records.decision import Decision, Outcome
from rollbook.schemas.records.payload import SegmentPayload, StepRecording
from rollbook.schemas.records.reward import RewardFailed, RewardFailure, RewardItem, RewardReady
from rollbook.schemas.records.rollout import FinishReason, Generated, Provenance, Purpose, TaskSource
from rollbook.schemas.records.run import Enforcement, GenerationContract, RunConfigured
from rollbook.schemas.records.update import (
    Admit,
    AdmitItem,
    Checkpoint,
    CheckpointSaved,
    Commit,
    CommitStep,
    Disposition,
    DroppedItem,
    LearnerStarted,
    RecordingRef,
    RecordingSealed,
    Reserve,
    ReserveItem,
    ReserveMode,
    UpdateStarted,
)
from rollbook.schemas.types import Part
from rollbook.tests.replay.memory_log import MemoryLog
from rollbook.tests.replay.numbers import TrainedRow
from rollbook.tests.replay.story_parts import (
    ADMISSION,
    CONTRACT,
    CONTRACT_HASH,
    INITIAL,
    ROLLOUT_ID,
    RULE,
    SAMPLING,
    WEIGHTS,
    arrays_of,
    recording_of,
    row_of,
    segment_of,
)

SETTINGS = Settings(topic_prefix="t.")
LIFECYCLE, PAYLOADS, DECISIONS = (SETTINGS.topic(topic) for topic in (Topic.LIFECYCLE, Topic.PAYLOADS, Topic.DECISIONS))
TASK = TaskSource(task_id="addition", prompt_hash="0" * 64, dataset="made-up", row=0)
CHECKPOINT_DIGEST = "c" * 64
CHUNK_BYTES = 500
"""Small, so that recordings have several."""
WASTE = b"no record of ours"

Plant = Callable[[StepRecording], StepRecording]
PlantArrays = Callable[[SegmentPayload], SegmentPayload]


@dataclass
class Story:
    """One run. Several can share a log and its ledger."""

    run_id: str = "run-a"
    log: MemoryLog = field(default_factory=MemoryLog)
    ledger: Ledger = field(default_factory=lambda: Ledger(0, 1))
    rows: dict[str, TrainedRow] = field(default_factory=dict)
    learner_id: str = "learner-0"
    enforcement: Enforcement = Enforcement.GATE
    epoch: int = 0
    events: int = 0
    remote_rewards: bool = False
    keep_payloads: bool = True
    plant_arrays: PlantArrays = lambda arrays: arrays
    task: TaskSource = TASK
    weights: PolicyRef = WEIGHTS
    """The learner's."""
    served: PolicyRef = WEIGHTS
    """The workers'."""

    @property
    def end(self) -> int:
        """The next offset of the lifecycle topic."""
        return self.log.bounds(LIFECYCLE, 0).end

    @property
    def learner(self) -> LearnerRef:
        return LearnerRef(learner_id=self.learner_id, epoch=self.epoch)

    def say(self, model: type[Lifecycle], **fields: object) -> Decision:
        """Write a lifecycle record and its decision; after every third one the end of a transaction."""
        self.events += 1
        source = Source(kind=SourceKind.OPERATOR, id="teller")
        header = Header(run_id=self.run_id, event_id=f"{self.run_id}-{self.events}", occurred_at=0, source=source)
        key, value = self.run_id.encode(), encode(make(model, header=header, **fields))
        offset = self.log.append(LIFECYCLE, 0, key, value)
        folded = self.ledger.fold(SourceRecord(0, offset, key, value))
        self.log.append(DECISIONS, 0, key, folded.encoded)
        if offset % 3 == 2:
            self.log.marker(DECISIONS, 0)
        return folded.decision

    def stray(self, key: bytes) -> None:
        """A record that belongs to no run, under any key."""
        folded = self.ledger.fold(SourceRecord(0, self.log.append(LIFECYCLE, 0, key, WASTE), key, WASTE))
        self.log.append(DECISIONS, 0, folded.decision.run_id.encode(), folded.encoded)

    def accepted(self, model: type[Lifecycle], **fields: object) -> Decision:
        decision = self.say(model, **fields)
        assert decision.outcome is Outcome.ACCEPTED, decision
        return decision

    def payload(self, key: str, record: Part) -> PayloadRef:
        data = encode(record)
        chunks = [data[at : at + CHUNK_BYTES] for at in range(0, len(data), CHUNK_BYTES)]
        offsets = tuple(self.log.append(PAYLOADS, 0, key.encode(), chunk) for chunk in chunks)
        digest = hashlib.sha256(data).hexdigest()
        return PayloadRef(topic=PAYLOADS, partition=0, offsets=offsets, size=len(data), sha256=digest)

    def opened(self) -> "Story":
        """Configured, with a contract and a learner."""
        self.accepted(
            RunConfigured,
            config_version=1,
            fold_version=1,
            partition_count=1,
            enforcement=self.enforcement,
            admission=ADMISSION,
            required_workers=("worker-0",),
            initial_policy=INITIAL,
        )
        self.accepted(GenerationContract, contract_hash=CONTRACT_HASH, sampling=SAMPLING, **CONTRACT)
        self.start_learner()
        return self

    def start_learner(self, checkpoint: str | None = None) -> Decision:
        """A new incarnation from a checkpoint, or from none: what the learner committed and it does not contain is
        undone."""
        decision = self.accepted(
            LearnerStarted,
            learner_id=self.learner_id,
            incarnation=f"i{self.events}",
            expected_epoch=self.epoch,
            checkpoint=None if checkpoint is None else Checkpoint(id=checkpoint, digest=CHECKPOINT_DIGEST),
        )
        assert decision.learner is not None
        self.epoch = decision.learner.epoch
        return decision

    def save(self, checkpoint: str, last_update_id: str) -> None:
        """The learner's state is on disk."""
        self.accepted(
            CheckpointSaved,
            learner=self.learner,
            checkpoint=Checkpoint(id=checkpoint, digest=CHECKPOINT_DIGEST),
            last_update_id=last_update_id,
            policy=WEIGHTS,
            chain=self.ledger.run(self.run_id).head.chain,
        )

    def group(
        self, group_id: str, raw_rewards: Sequence[float | None] = (1.0, 0.0), worker: str = "worker-0"
    ) -> list[str]:
        """A group, generated and rewarded (None: nothing could score it); its trajectories."""
        ids = [f"{group_id}.{index}" for index in range(len(raw_rewards))]
        for index, raw in enumerate(raw_rewards):
            row = row_of(ids[index], group_id, raw or 0.0, length=4 + index, seed=len(self.rows))
            self.rows[ids[index]] = row
            self._generated(row, index, len(ids), worker)
        rewards = {name: raw for name, raw in zip(ids, raw_rewards, strict=True) if raw is not None}
        items = tuple(RewardItem(trajectory_id=name, raw_reward=raw) for name, raw in rewards.items())
        self.accepted(RewardReady, items=items, reward=RULE, remote=self.remote_rewards, label_hash="labels-1")
        for name in sorted(set(ids) - rewards.keys()):
            reason = RewardFailure.INVALID_OUTPUT
            self.accepted(RewardFailed, trajectory_id=name, reason=reason, retriable=False, text="")
        return ids

    def _generated(self, row: TrainedRow, index: int, size: int, worker: str) -> None:
        arrays = self.plant_arrays(arrays_of(self.run_id, row))
        ref = self.payload(row.trajectory_id, arrays) if self.keep_payloads else None
        self.accepted(
            Generated,
            identity=TrajectoryIdentity(
                trajectory_id=row.trajectory_id, group_id=row.group_id, sample_index=index, group_expected=size
            ),
            purpose=Purpose.TRAIN,
            task=self.task,
            contract_hash=CONTRACT_HASH,
            segments=(segment_of(row, ref, self.served),),
            finish_reason=FinishReason.STOP,
            provenance=Provenance(rollout_partition_id=f"batch-{worker}", worker_id=worker),
        )

    def reserve(
        self,
        update_id: str,
        ids: Sequence[str],
        drifted: Sequence[str] = (),
        part: int = 0,
        mode: ReserveMode = ReserveMode.ALL,
    ) -> None:
        """Reserve and admit; those named as drifted are refused."""
        items = tuple(ReserveItem(trajectory_id=name, expected_revision=2) for name in ids)
        self._of(Reserve, update_id, part=part, policy=self.weights, items=items, mode=mode)
        figures = tuple(self._figures(name, 1.0 if name in drifted else 0.01) for name in ids)
        self._of(Admit, update_id, part=part, policy=self.weights, own_updates=0, items=figures)

    def start(self, update_id: str) -> None:
        self._of(UpdateStarted, update_id)

    def commit(
        self,
        update_id: str,
        steps: Sequence[Sequence[str]],
        expected_ranks: Sequence[int] = (0,),
        dropped: Sequence[str] = (),
    ) -> Decision:
        taken = (
            CommitStep(rollout_id=ROLLOUT_ID, step_id=at, trajectory_ids=tuple(ids)) for at, ids in enumerate(steps)
        )
        drops = (
            DroppedItem(trajectory_id=name, reason="too_long", disposition=Disposition.DISCARD) for name in dropped
        )
        return self._of(
            Commit, update_id, steps=tuple(taken), dropped=tuple(drops), expected_ranks=tuple(expected_ranks)
        )

    def recording(self, update_id: str, step_id: int, ids: Sequence[str], masked: Sequence[str] = ()) -> StepRecording:
        """What the trainer recorded of a step; rows named as masked do not count in the loss."""
        rows = [self.rows[name] for name in ids]
        rows = [replace(row, loss_mask=row.loss_mask & np.bool_(row.trajectory_id not in masked)) for row in rows]
        return recording_of(self.run_id, self.learner, update_id, step_id, rows)

    def seal(self, update_id: str, recordings: Sequence[StepRecording], rank: int = 0) -> Decision:
        refs = tuple(
            RecordingRef(rollout_id=ROLLOUT_ID, step_id=at, payload=self.payload(update_id, recording))
            for at, recording in enumerate(recordings)
        )
        digest = digest_of_digests([ref.payload.sha256 for ref in refs])
        return self._of(RecordingSealed, update_id, rank=rank, recordings=refs, digest=digest)

    def update(
        self,
        update_id: str,
        steps: Sequence[Sequence[str]],
        *,
        drifted: Sequence[str] = (),
        plant: Plant = lambda recording: recording,
        expected_ranks: Sequence[int] = (0,),
    ) -> Decision:
        """A whole update, sealed after its Commit, whose decision this is. `plant` changes each recording before it is
        written; drifted rows stay in it with a zero loss mask."""
        ids = list(dict.fromkeys(name for step in steps for name in step))
        self.reserve(update_id, ids, drifted)
        self.start(update_id)
        recordings = [plant(self.recording(update_id, at, step, drifted)) for at, step in enumerate(steps)]
        trained = [[name for name in step if name not in drifted] for step in steps]
        decision = self.commit(update_id, trained, expected_ranks)
        self.seal(update_id, recordings)
        return decision

    def _of(self, model: type[Lifecycle], update_id: str, **fields: object) -> Decision:
        return self.accepted(model, learner=self.learner, update_id=update_id, **fields)

    def _figures(self, name: str, drift: float) -> AdmitItem:
        row = self.rows[name]
        segment = segment_of(row, None)
        return AdmitItem(
            trajectory_id=name,
            active_tokens=segment.active_tokens,
            sum_abs_log_ratio=drift * segment.active_tokens,
            max_abs_log_ratio=drift,
            evidence_digest=segment.evidence_digest,
            current_digest=log_probs_digest(row.loss_mask, row.log_probs + np.float32(drift)),
        )
