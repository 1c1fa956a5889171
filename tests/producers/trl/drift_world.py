"""The ledger's side of the drift demonstration: a run of one learner and one worker."""

import hashlib
from collections.abc import Sequence
from contextlib import ExitStack
from dataclasses import dataclass

from rollbook.infra.settings import Settings
from rollbook.producers import (
    Coordinator,
    Reward,
    RewardService,
    RolloutWorker,
    SegmentArrays,
    Trainer,
    Update,
    new_id,
    new_identity,
)
from rollbook.schemas.digests import FloatArray
from rollbook.schemas.records.common import PolicyRef
from rollbook.schemas.records.decision import Decision
from rollbook.schemas.records.policy import EvidenceKind
from rollbook.schemas.records.rollout import FinishReason, TaskSource
from rollbook.schemas.records.run import (
    Admission,
    Artifact,
    ArtifactKind,
    DriftGate,
    InitialPolicy,
    LagUnit,
    LogProbKind,
    RewardIdentity,
    Sampling,
)
from rollbook.schemas.records.update import ReserveItem
from rollbook.tests.producers.trl.tiny import vowels
from rollbook.tests.producers.world import PATIENT

MAX_LAG = 1
LIMIT = 0.2
"""Nats a token, the mean over a trajectory."""

LENGTH = 8
"""Most response tokens."""

_REWARDED = 2
_ARRIVES_S = 20.0
_RULE = RewardIdentity(rule_id="vowels", version="1", hash="vowels")
_WORKER = "worker-0"


@dataclass(frozen=True, slots=True)
class Sampled:
    """A completion, with its log-probs [T] under the policy that sampled it."""

    trajectory_id: str
    prompt: str
    text: str
    prompt_ids: list[int]
    response_ids: list[int]
    behavior: FloatArray


class DriftWorld:
    """The ledger's side: a run of one learner and one worker."""

    def __init__(self, settings: Settings) -> None:
        self.run_id = f"drift-{new_id()}"
        self._clients = ExitStack()
        enter, options = self._clients.enter_context, PATIENT
        self.coordinator = enter(Coordinator(settings, self.run_id, "coordinator", options=options))
        self.worker = enter(RolloutWorker(settings, self.run_id, _WORKER, options=options))
        self.rewards = enter(RewardService(settings, self.run_id, "rewards", _RULE, options=options))
        self.trainer = enter(Trainer(settings, self.run_id, "learner", options=options))
        self.update: Update | None = None
        self.stepping: tuple[str, ...] = ()

    def open(self, policy: PolicyRef) -> None:
        self.policy = policy
        self.coordinator.configure(
            admission=Admission(
                max_lag=MAX_LAG,
                lag_unit=LagUnit.DEPTH,
                max_mean_abs_log_ratio=LIMIT,
                drift_gate=DriftGate.REQUIRED,
            ),
            required_workers=[_WORKER],
            initial_policy=InitialPolicy(version=policy.version, artifact=_artifact(policy)),
        )
        sampling = Sampling(temperature=1.0, top_p=1.0, top_k=0, max_tokens=LENGTH, log_probs=LogProbKind.PROCESSED)
        self.contract = self.worker.register_contract(
            tokenizer="letters", template="plain", engine="transformers", sampling=sampling
        )
        self.worker.acknowledge(policy, EvidenceKind.FILE_HASH)
        self.trainer.start()

    def publish(self, group: Sequence[Sampled]) -> None:
        """A group that the policy wrote, and its rewards."""
        group_id = new_id()
        for index, one in enumerate(group):
            identity = new_identity(group_id, index, len(group))
            self.worker.generated(
                identity.model_copy(update={"trajectory_id": one.trajectory_id}),
                [SegmentArrays(one.prompt_ids, one.response_ids, one.behavior, policy=self.policy)],
                task=TaskSource(
                    task_id="letters",
                    prompt_hash=hashlib.sha256(one.prompt.encode()).hexdigest(),
                    dataset="made-up",
                    row=0,
                ),
                contract_hash=self.contract,
                finish_reason=FinishReason.STOP if len(one.response_ids) < LENGTH else FinishReason.LENGTH,
                rollout_partition_id="batch-0",
            )
        assert self.worker.flush(_ARRIVES_S) == 0
        self.rewards.rewards([Reward(one.trajectory_id, vowels([one.text])[0]) for one in group])
        assert self.rewards.flush(_ARRIVES_S) == 0

    def begin(self, buffer: Sequence[Sampled]) -> None:
        """TRL's generation buffer is about to be trained on."""
        self.publish(buffer)
        update = self.update = self.trainer.update(rollout_id=0)
        self.reserve(update, buffer)
        update.admit({one.trajectory_id: one.behavior for one in buffer}, self.policy)
        update.start()
        assert len(update.trainable) == len(buffer)
        self.stepping = update.trainable

    def step(self) -> None:
        assert self.update is not None, "TRL steps on what it has generated"
        self.update.step(self.stepping)

    def commit(self, policy: PolicyRef) -> None:
        """TRL has stepped: these are the weights now, and they become the active policy."""
        assert self.update is not None
        self.update.commit()
        self.coordinator.prepare(
            version=policy.version,
            artifact=_artifact(policy),
            parent_version=self.policy.version,
            update_ids=[self.update.update_id],
            committed=True,
        )
        self.worker.acknowledge(policy, EvidenceKind.FILE_HASH)
        self.coordinator.activate(policy, self.policy.version, wait_for_acks_s=_ARRIVES_S)
        self.policy = policy

    def reserve(self, update: Update, rows: Sequence[Sampled]) -> Decision:
        items = [ReserveItem(trajectory_id=one.trajectory_id, expected_revision=_REWARDED) for one in rows]
        decision = update.reserve(items, self.policy)
        update.load()
        return decision

    def close(self) -> None:
        self._clients.close()


def _artifact(policy: PolicyRef) -> Artifact:
    return Artifact(hash=policy.artifact_hash, kind=ArtifactKind.DECLARED)
