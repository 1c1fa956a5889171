"""Identifiers are published as they are: what is a place or a text is refused where it is handed over, unquoted."""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Any

import pytest

from rollbook.infra.settings import Settings, Topic
from rollbook.producers import (
    Coordinator,
    ObservingTrainer,
    Options,
    Reward,
    RewardService,
    RolloutWorker,
    Trainer,
    new_identity,
)
from rollbook.producers.redaction.identifiers import check_identifiers
from rollbook.schemas.codec import ContractViolation
from rollbook.schemas.errors import RollbookError
from rollbook.schemas.records.common import PolicyRef
from rollbook.schemas.records.policy import EvidenceKind
from rollbook.schemas.records.reward import DiscardReason
from rollbook.schemas.records.rollout import FinishReason
from rollbook.schemas.records.run import Admission, Artifact, ArtifactKind, DriftGate, InitialPolicy, LagUnit
from rollbook.schemas.records.update import Checkpoint, ReserveItem
from rollbook.tests.producers.planted import PATH, SECRET, SENTENCE, SHAPES, URL
from rollbook.tests.producers.test_recording import step_of
from rollbook.tests.producers.world import CONTRACT_HASH, POLICY, RULE, TASK, World, read_topic, row
from rollbook.tests.session_broker import own_topics

PLACES = [PATH, URL, SENTENCE, *SHAPES[:7], "user@host", "10.0.0.7", "node7:8000", "~me", "a/b", "two words"]
NAMES = [
    "worker-0",
    "Qwen2.5-0.5B",
    "a" * 64,
    "sha256:" + "ab" * 32,
    "seed=3",
    "épreuve",
    "019ab4de-1234-7abc",
    "x.y_z",
]


@pytest.mark.parametrize("value", PLACES)
def test_what_is_no_name_is_refused(value: str) -> None:
    with pytest.raises(ContractViolation) as refusal:
        check_identifiers(PolicyRef(version=0, artifact_hash=value))
    assert str(refusal.value).startswith("PolicyRef: field artifact_hash: it holds a ")
    assert value not in str(refusal.value)
    assert "\n" not in str(refusal.value)


@pytest.mark.parametrize("value", NAMES)
def test_a_name_passes(value: str) -> None:
    check_identifiers(PolicyRef(version=0, artifact_hash=value))


@dataclass
class Clients:
    """One of each client; nothing of theirs is published."""

    worker: RolloutWorker
    rewards: RewardService
    coordinator: Coordinator
    trainer: Trainer


@pytest.fixture(scope="module")
def clients(broker: str) -> Iterator[Clients]:
    with (
        own_topics(broker, 1) as settings,
        RolloutWorker(settings, "run-0", "worker-0") as worker,
        RewardService(settings, "run-0", "rewards-0", RULE) as rewards,
        Coordinator(settings, "run-0", "coordinator-0") as coordinator,
        Trainer(settings, "run-0", "learner-0") as trainer,
    ):
        yield Clients(worker, rewards, coordinator, trainer)
        assert worker.flush(20) == rewards.flush(20) == coordinator.flush(20) == trainer.flush(20) == 0
        assert read_topic(settings, Topic.LIFECYCLE) == read_topic(settings, Topic.PAYLOADS) == []


Call = Callable[[Clients], object]
ADMISSION = Admission(max_lag=1, lag_unit=LagUnit.DEPTH, max_mean_abs_log_ratio=0.2, drift_gate=DriftGate.OFF)


def generate(worker: RolloutWorker, **identity: str) -> str:
    return worker.generated(
        new_identity("group-0", 0, 1).model_copy(update=identity),
        [row()],
        task=TASK,
        contract_hash=CONTRACT_HASH,
        finish_reason=FinishReason.STOP,
        rollout_partition_id="batch-0",
    )


def configure(coordinator: Coordinator, *, workers: Sequence[str] = ("w",), hashed: str = "h") -> None:
    artifact = Artifact(hash=hashed, kind=ArtifactKind.FILE)
    policy = InitialPolicy(version=0, artifact=artifact)
    coordinator.configure(admission=ADMISSION, required_workers=workers, initial_policy=policy)


def prepare(coordinator: Coordinator, *, hashed: str = "h", updates: Sequence[str] = ()) -> None:
    artifact = Artifact(hash=hashed, kind=ArtifactKind.FILE)
    coordinator.prepare(version=1, artifact=artifact, parent_version=0, update_ids=updates)


@pytest.mark.parametrize(
    ("call", "record", "field"),
    [
        (lambda c: generate(c.worker, group_id=SENTENCE), "Generated", "identity.group_id"),
        (lambda c: generate(c.worker, trajectory_id=PATH), "Generated", "identity.trajectory_id"),
        (
            lambda c: c.worker.acknowledge(PolicyRef(version=0, artifact_hash=PATH), EvidenceKind.FILE_HASH),
            "ActivationAck",
            "serves.artifact_hash",
        ),
        (lambda c: c.worker.discarded(["t", URL], DiscardReason.SURPLUS), "Discarded", "trajectory_ids.1"),
        (lambda c: c.rewards.rewards([Reward("t", 1.0), Reward(PATH, 1.0)]), "RewardReady", "items.1.trajectory_id"),
        (lambda c: configure(c.coordinator, workers=["w", URL]), "RunConfigured", "required_workers.1"),
        (lambda c: configure(c.coordinator, hashed=PATH), "RunConfigured", "initial_policy.artifact.hash"),
        (lambda c: prepare(c.coordinator, hashed=URL), "PolicyPrepared", "artifact.hash"),
        (lambda c: prepare(c.coordinator, updates=[PATH]), "PolicyPrepared", "update_ids.0"),
        (lambda c: c.coordinator.acknowledge(URL, POLICY), "ActivationAck", "worker_id"),
        (lambda c: c.coordinator.abort(PATH, text=""), "Abort", "update_id"),
        (lambda c: c.trainer.start(Checkpoint(id=PATH, digest="d")), "LearnerStarted", "checkpoint.id"),
        (lambda c: c.trainer.start(Checkpoint(id="c", digest=PATH)), "LearnerStarted", "checkpoint.digest"),
    ],
)
def test_a_call_of_a_client(clients: Clients, call: Call, record: str, field: str) -> None:
    with pytest.raises(ContractViolation) as refusal:
        call(clients)
    assert (refusal.value.record_type, refusal.value.field) == (record, field)
    assert SECRET not in str(refusal.value)


NOWHERE = Settings(bootstrap_servers="127.0.0.1:1")


@pytest.mark.parametrize(
    "make",
    [
        lambda: RolloutWorker(NOWHERE, "run-0", PATH),
        lambda: RewardService(NOWHERE, "run-0", URL, RULE),
        lambda: Coordinator(NOWHERE, "run-0", PATH),
        lambda: Trainer(NOWHERE, "run-0", PATH),
        lambda: ObservingTrainer(NOWHERE, "run-0", PATH),
    ],
)
def test_a_client_named_after_a_place_opens_nothing(make: Callable[[], object]) -> None:
    with pytest.raises(ContractViolation, match=r"field source\.id: it holds a path, a URL or an address"):
        make()


def test_the_ids_of_updates_and_checkpoints(run: World, trainer: Trainer) -> None:
    with pytest.raises(ContractViolation, match="Reserve: field update_id"):
        trainer.update(0, update_id=PATH)
    with pytest.raises(ContractViolation, match=r"CheckpointSaved: field checkpoint\.id"):
        trainer.checkpoint_saved(PATH, "d", POLICY)
    trainer.checkpoint_saved("c", "d", POLICY)  # the one before is no command under way
    with trainer.update(0) as update, pytest.raises(ContractViolation, match=r"items\.0\.trajectory_id"):
        update.reserve([ReserveItem(trajectory_id=URL, expected_revision=0)], POLICY)
    assert run.decisions("Reserve") == []


def test_an_update_that_nothing_can_name_is_refused_before_the_training(trainer: Trainer) -> None:
    options = Options(connect_timeout_s=0.1, on_error=lambda _: None)
    with ObservingTrainer(NOWHERE, "run-0", "l", options=options) as observing:
        wrong: list[Any] = [[1], "", 7, "a\nb", PATH, "x" * 257]
        for update_id in wrong:
            for client in (trainer, observing):
                with pytest.raises(ContractViolation, match="Reserve: field update_id"):
                    client.update(0, update_id=update_id)
        for client in (trainer, observing):
            with pytest.raises(ContractViolation, match="Commit: field rollout_id"):
                client.update(-1)
        observing.close(0.1)


def test_a_recording_whose_ids_are_no_names_costs_the_recording(ungated: World) -> None:
    ungated.group(1)
    errors: list[RollbookError] = []
    options = Options(on_error=errors.append, decision_timeout_s=20)
    with Trainer(ungated.settings, ungated.run_id, "l", drift_gate=DriftGate.OFF, options=options) as trainer:
        trainer.start()
        with trainer.update(0) as update:
            update.claim(POLICY, max_groups=1, wait_s=60)
            update.start()
            (one,) = update.trainable
            step = step_of(one)
            update.record_step(update.step([one]), replace(step, rows=[replace(step.rows[0], group_id=PATH)]))
    assert [str(error).partition(":")[2].split(":")[0] for error in errors[:1]] == [" field rows.0.group_id"]
    assert ungated.decisions("RecordingSealed") == []
