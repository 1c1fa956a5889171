"""A small run for tests of the clients: configured, with a contract, and groups of trajectories on request."""

import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
from confluent_kafka import TopicPartition

from rollbook.infra.settings import Settings, Topic
from rollbook.producers import Coordinator, Options, RewardService, RolloutWorker, SegmentArrays, new_id, new_identity
from rollbook.producers.reading.reader import group_less_consumer, watermarks
from rollbook.schemas.codec import decode
from rollbook.schemas.partition import partition_of
from rollbook.schemas.records.common import PolicyRef
from rollbook.schemas.records.decision import Decision, Outcome
from rollbook.schemas.records.policy import EvidenceKind
from rollbook.schemas.records.rollout import FinishReason, TaskSource
from rollbook.schemas.records.run import (
    Admission,
    Artifact,
    ArtifactKind,
    DriftGate,
    Enforcement,
    InitialPolicy,
    LagUnit,
    LogProbKind,
    RewardIdentity,
    Sampling,
)
from rollbook.schemas.types import Part
from rollbook.tests.conftest import PARTITIONS
from rollbook.tests.processors.hosting import host_in_thread

POLICY = PolicyRef(version=0, artifact_hash="weights-0")
RULE = RewardIdentity(rule_id="exact", version="1", hash="rule-1")
TASK = TaskSource(task_id="addition", prompt_hash="0" * 64, dataset="made-up", row=0)
SAMPLING = Sampling(temperature=1.0, top_p=1.0, top_k=0, max_tokens=8, log_probs=LogProbKind.RAW)
CONTRACT_HASH = "c" * 64
PATIENT = Options(decision_timeout_s=20.0)
TOKENS = 5
MASK = (True, True, True, False, True)


def behavior_log_probs(seed: int) -> npt.NDArray[np.float32]:
    return -np.random.default_rng(seed).uniform(0.1, 3.0, TOKENS).astype(np.float32)


def row(seed: int = 0, policy: PolicyRef = POLICY) -> SegmentArrays:
    """A row of three prompt and five response tokens, the fourth masked."""
    return SegmentArrays(
        prompt_ids=[1, 2, 3],
        response_ids=np.arange(TOKENS) + seed,
        action_mask=MASK,
        log_probs=behavior_log_probs(seed),
        policy=policy,
    )


@dataclass
class World:
    """The clients of a configured run, and what they have published."""

    settings: Settings
    run_id: str
    worker: RolloutWorker
    rewards: RewardService
    coordinator: Coordinator
    contract_hash: str

    def group(self, size: int = 2, *, rewarded: bool = True, first_seed: int = 0) -> list[str]:
        """Publish a group; returns its trajectories."""
        group_id = new_id()
        ids = []
        for index in range(size):
            identity = new_identity(group_id, index, size)
            self.worker.generated(
                identity,
                [row(first_seed + index)],
                task=TASK,
                contract_hash=self.contract_hash,
                finish_reason=FinishReason.STOP,
                rollout_partition_id="batch-0",
            )
            ids.append(identity.trajectory_id)
            if rewarded:
                self.rewards.reward(identity.trajectory_id, float(index))
        return ids

    def seen(self, topic: Topic) -> "list[Seen]":
        """What a topic holds of this run now: others share it."""
        partition = partition_of(self.run_id, PARTITIONS)
        return [one for one in read_topic(self.settings, topic, partition) if one.key == self.run_id.encode()]

    def records(self) -> list[Part]:
        """The run's lifecycle records so far, in the log's order."""
        return [one.record for one in self.seen(Topic.LIFECYCLE)]

    def decisions(self, record_type: str) -> list[Decision]:
        """Decisions so far on records of a type."""
        decided = [one.record for one in self.seen(Topic.DECISIONS)]
        return [one for one in decided if isinstance(one, Decision) and one.record_type == record_type]

    def decided(self, record_type: str, outcome: Outcome = Outcome.ACCEPTED, *, deadline_s: float = 20.0) -> Decision:
        """Wait for a decision on a record of this type with this outcome."""
        end = time.monotonic() + deadline_s
        while time.monotonic() < end:
            for decision in self.decisions(record_type):
                if decision.outcome is outcome:
                    return decision
            time.sleep(0.05)
        raise AssertionError(f"no {record_type} was {outcome.value} within {deadline_s:g} s")


@contextmanager
def processor(settings: Settings) -> Iterator[None]:
    """A processor, started when the new topics' partitions have their leaders."""
    consumer = group_less_consumer(settings)
    for topic in (Topic.LIFECYCLE, Topic.LEDGER, Topic.DECISIONS):
        for partition in range(PARTITIONS):
            watermarks(consumer, settings, TopicPartition(settings.topic(topic), partition), 20)
    consumer.close()
    with host_in_thread(settings):
        yield


@contextmanager
def world(
    settings: Settings,
    *,
    drift_gate: DriftGate = DriftGate.REQUIRED,
    enforcement: Enforcement = Enforcement.GATE,
    lease_ms: int = 0,
) -> Iterator[World]:
    """A run of its own, opened; needs a processor."""
    run_id = f"run-{new_id()}"
    with (
        Coordinator(settings, run_id, "coordinator-0", options=PATIENT) as coordinator,
        RolloutWorker(settings, run_id, "worker-0", keep_tokens=True) as worker,
        RewardService(settings, run_id, "rewards-0", RULE) as rewards,
    ):
        coordinator.configure(
            admission=Admission(max_lag=1, lag_unit=LagUnit.DEPTH, max_mean_abs_log_ratio=0.2, drift_gate=drift_gate),
            required_workers=["worker-0"],
            initial_policy=InitialPolicy(
                version=POLICY.version, artifact=Artifact(hash=POLICY.artifact_hash, kind=ArtifactKind.FILE)
            ),
            enforcement=enforcement,
            lease_ms=lease_ms,
        )
        contract_hash = worker.register_contract(
            tokenizer="digits", template="plain", engine="toy 1.0", sampling=SAMPLING
        )
        worker.acknowledge(POLICY, EvidenceKind.FILE_HASH)
        assert worker.flush(20) == 0, "other workers cite the contract, too"
        yield World(settings, run_id, worker, rewards, coordinator, contract_hash)


@dataclass(frozen=True, slots=True)
class Seen:
    """A record as it lies in a topic; a tombstone has an empty value."""

    partition: int
    offset: int
    timestamp_ms: int
    key: bytes
    value: bytes

    @property
    def record(self) -> Part:
        return decode(self.value)


def read_topic(settings: Settings, topic: Topic, only: int | None = None) -> list[Seen]:
    """Everything in a topic now, or in one partition of it, committed, by partition and offset."""
    consumer = group_less_consumer(settings, isolation_level="read_committed", fetch_wait_max_ms=10)
    name = settings.topic(topic)
    seen: list[Seen] = []
    try:
        for partition in consumer.list_topics(name, timeout=10).topics[name].partitions if only is None else (only,):
            low, high = watermarks(consumer, settings, TopicPartition(name, partition), 10)
            consumer.unassign()  # an assignment over another one can stall
            consumer.assign([TopicPartition(name, partition, low)])
            while low < high and consumer.position([TopicPartition(name, partition)])[0].offset < high:
                message = consumer.poll(0.1)
                if message is not None and message.error() is None:
                    offset, value = message.offset(), message.value()
                    assert offset is not None
                    seen.append(Seen(partition, offset, message.timestamp()[1], message.key() or b"", value or b""))
    finally:
        consumer.close()
    return seen
