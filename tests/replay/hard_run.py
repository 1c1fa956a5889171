"""A run on the real broker through the real clients to which everything happens: a processor that dies in a
transaction, a producer's transaction that is aborted, dead letters, leases that end, aborted updates, a resume from a
checkpoint that orphans the active policy. Its updates have steps that two ranks record. Beside it lie a run that is
only observed and, in its own partition, a neighbour."""

import signal
import time
from collections.abc import Sequence
from contextlib import ExitStack, suppress
from dataclasses import dataclass
from itertools import count

import pytest
from confluent_kafka import Producer

from rollbook.infra.settings import Settings, Topic
from rollbook.producers import (
    Coordinator,
    LoadedTrajectory,
    ObservedRow,
    ObservingTrainer,
    RowArrays,
    StartAnew,
    StepArrays,
    Trainer,
    Update,
    new_id,
    new_identity,
)
from rollbook.producers.observing import observer
from rollbook.schemas.codec import encode
from rollbook.schemas.partition import partition_of
from rollbook.schemas.records.common import Header, PolicyRef, Source, SourceKind
from rollbook.schemas.records.payload import Cohort, CohortMember, Kernel, OldSource
from rollbook.schemas.records.payload import World as Parallel
from rollbook.schemas.records.policy import EvidenceKind
from rollbook.schemas.records.rollout import FinishReason
from rollbook.schemas.records.run import (
    Admission,
    Artifact,
    ArtifactKind,
    DriftGate,
    Enforcement,
    InitialPolicy,
    LagUnit,
    RunClosed,
)
from rollbook.schemas.records.update import Checkpoint
from rollbook.tests.conftest import PARTITIONS
from rollbook.tests.processors.hosting import host_in_thread, spawn_host
from rollbook.tests.producers.world import (
    MASK,
    PATIENT,
    POLICY,
    TASK,
    World,
    behavior_log_probs,
    processor,
    row,
    world,
)
from rollbook.tests.replay.numbers import CONFIG, TrainedRow, step_numbers
from rollbook.tests.replay.trained_run import await_decided

LEASE_MS = 1_500
RANKS = 2
WAIT_S = 30.0
POISON = b"no record at all"
CHECKPOINT = Checkpoint(id="checkpoint-1", digest="d" * 64)
ABORTED_RECORDS = 3
"""Each would have closed the run."""


@dataclass(frozen=True, slots=True)
class HardRun:
    """The run and its updates: the first, one that a resume undid, and one of the resumed learner. `gap`: a lifecycle
    offset in a transaction that was aborted; `observed`: the run beside it; `neighbour`: that in its own partition."""

    run_id: str
    partition: int
    first: str
    undone: str
    resumed: str
    gap: int
    observed: str
    neighbour: str

    @property
    def observed_partition(self) -> int:
        return partition_of(self.observed, PARTITIONS)


class Killed(Exception):
    """A training ends here."""


def policy(version: int) -> PolicyRef:
    return PolicyRef(version=version, artifact_hash=f"weights-{version}")


def make(settings: Settings) -> HardRun:
    """Needs new topics."""
    with ExitStack() as open_:
        with processor(settings):
            made = open_.enter_context(world(settings, lease_ms=LEASE_MS))
            partition = partition_of(made.run_id, PARTITIONS)
            lost = lose_before_start(made)
            trainer = open_.enter_context(learner(made))
            trainer.start()
            groups(made, 4)
            give_back(trainer)
            first = train(trainer, policy(0), 0, steps=2, drifted=1)
            activate(made, 1, 0, [first])
            trainer.checkpoint_saved(CHECKPOINT.id, CHECKPOINT.digest, policy(1))
        gap = without_processor(made, partition)
        die_in_a_transaction(settings)
        with host_in_thread(settings):
            in_doubt = lose_after_start(made)
            undone = train(trainer, policy(1), 1)
            activate(made, 2, 1, [undone])
            groups(made, 1, policy(2))  # of weights that will have come to nothing
            trainer.close()
            resumed = resume(made, trainer.learner.epoch)
            observed = observe(settings)
            await_expired(made, {lost, in_doubt})
            made.coordinator.abort(in_doubt, text="its learner died")
            neighbour = open_run_beside(settings, partition)
            open_.close()
            send(settings, partition, made.run_id.encode(), POISON)
            for each in (partition, partition_of(observed, PARTITIONS)):
                await_decided(settings, each)
    return HardRun(made.run_id, partition, first, undone, resumed, gap, observed, neighbour)


def learner(made: World, name: str = "learner-0") -> Trainer:
    return Trainer(made.settings, made.run_id, name, lease_ms=LEASE_MS, options=PATIENT)


def groups(made: World, number: int, by: PolicyRef = POLICY) -> None:
    """Groups of two, by the worker with these weights; each is there, rewarded, when it is asked for."""
    for _ in range(number):
        group_id = new_id()
        for index in range(2):
            identity = new_identity(group_id, index, 2)
            made.worker.generated(
                identity,
                [row(index, by)],
                task=TASK,
                contract_hash=made.contract_hash,
                finish_reason=FinishReason.STOP,
                rollout_partition_id="batch-0",
            )
            made.rewards.reward(identity.trajectory_id, float(index))
    assert made.worker.flush(WAIT_S) == made.rewards.flush(WAIT_S) == 0


def lose_before_start(made: World) -> str:
    """A learner takes a group and is never heard of again; the lease ends, and the group is free."""
    groups(made, 1)
    with learner(made, "learner-1") as lost:
        lost.start()
        with lost.update(0, renew_every_s=0) as update:
            update.claim(POLICY, 1, wait_s=WAIT_S)
            update.handle()
    return update.update_id


def give_back(trainer: Trainer) -> None:
    """An update that fails before its start."""
    with suppress(Killed), trainer.update(0) as update:
        update.claim(POLICY, 1, wait_s=WAIT_S)
        raise Killed


def lose_after_start(made: World) -> str:
    """A learner dies with rows in its weights; the lease ends, and that is all that the ledger knows."""
    with learner(made, "learner-2") as lost, suppress(StartAnew):
        lost.start()
        with lost.update(0, renew_every_s=0) as update:
            admitted(update, policy(1), 1)
            update.start()
            raise Killed
    return update.update_id


def await_expired(made: World, update_ids: set[str]) -> None:
    end = time.monotonic() + WAIT_S
    while not update_ids <= {one.update_id for one in made.decisions("LeaseExpired")}:
        assert time.monotonic() < end, "the leases did not end"
        time.sleep(0.05)


def train(trainer: Trainer, by: PolicyRef, rollout_id: int, *, steps: int = 1, drifted: int = 0) -> str:
    """An update of a group for each rank and step; its last rows are refused where they drifted."""
    with trainer.update(rollout_id) as update:
        loaded = admitted(update, by, RANKS * steps, drifted)
        update.start()
        names = list(dict.fromkeys(one.group_id for one in loaded))
        for at in range(0, len(names), RANKS):
            step(update, [[one for one in loaded if one.group_id == name] for name in names[at : at + RANKS]], by)
        update.commit()
    return update.update_id


def admitted(update: Update, by: PolicyRef, number: int, drifted: int = 0) -> Sequence[LoadedTrajectory]:
    for _ in range(number):
        update.claim(by, 1, wait_s=WAIT_S)
    loaded = update.load()
    near = len(loaded) - drifted
    update.admit({one.trajectory_id: one.log_probs - (0.01 if at < near else 0.9) for at, one in enumerate(loaded)}, by)
    return loaded


def step(update: Update, of_ranks: Sequence[Sequence[LoadedTrajectory]], by: PolicyRef) -> None:
    """A step in which each rank has a group."""
    taken = [one.trajectory_id for group in of_ranks for one in group if one.trajectory_id in update.admitted]
    step_id = update.step(taken)
    for rank, group in enumerate(of_ranks):
        update.record_step(step_id, recorded(group, by, set(taken), seed=step_id + rank), rank=rank)


def recorded(group: Sequence[LoadedTrajectory], by: PolicyRef, taken: set[str], seed: int) -> StepArrays:
    rows = [
        TrainedRow(
            one.trajectory_id,
            one.group_id,
            one.raw_reward,
            one.action_mask & (one.trajectory_id in taken),
            one.log_probs,
        )
        for one in group
    ]
    numbers = step_numbers(rows, seed)
    members = tuple(CohortMember(trajectory_id=one.trajectory_id, raw_reward=one.raw_reward) for one in rows)
    return StepArrays(
        consumer_batch_id="batch-0",
        policy=by,
        config=CONFIG,
        cohorts=[Cohort(cohort_id=rows[0].group_id, group_id=rows[0].group_id, members=members)],
        rows=[
            RowArrays(one.trajectory_id, one.group_id, "mb-0000", 3, one.loss_mask, reward)
            for one, reward in zip(rows, numbers.rewards, strict=True)
        ],
        arrays=numbers.arrays,
        old_source=OldSource.ROLLOUT,
        results=numbers.results,
        row_terms=numbers.row_terms,
        kernel=Kernel(implementation="numpy", package="tests", version="1", function="step_numbers"),
        world=Parallel(dp=RANKS),
    )


def activate(made: World, version: int, parent: int, update_ids: Sequence[str], restores: int | None = None) -> None:
    made.coordinator.prepare(
        version=version,
        artifact=Artifact(hash=policy(version).artifact_hash, kind=ArtifactKind.FILE),
        parent_version=parent,
        rollback_of=restores,
        update_ids=update_ids,
        committed=True,
    )
    made.worker.acknowledge(policy(version), EvidenceKind.FILE_HASH)
    made.coordinator.activate(policy(version), version - 1, wait_for_acks_s=WAIT_S)


def resume(made: World, epoch: int) -> str:
    """From the checkpoint: what came after it is undone, and the active policy is an orphan until another is active."""
    with learner(made) as trainer:
        trainer.start(CHECKPOINT, expected_epoch=epoch)
        activate(made, 3, 2, [], restores=1)
        update_id = train(trainer, policy(3), 1)
        activate(made, 4, 3, [update_id])
    return update_id


def without_processor(made: World, partition: int) -> int:
    """What comes while none runs: rows, a dead letter, records in the wrong place, and a transaction that is aborted:
    its first offset."""
    groups(made, 3)
    key = made.run_id.encode()
    send(made.settings, partition, key, POISON)
    send(made.settings, partition, key, closing("another-run"))
    send(made.settings, partition, b"another key", closing(made.run_id))
    return aborted(made.settings, partition, key, closing(made.run_id))


def closing(run_id: str) -> bytes:
    source = Source(kind=SourceKind.OPERATOR, id="somebody")
    return encode(RunClosed(header=Header(run_id=run_id, event_id=new_id(), occurred_at=0, source=source), text=""))


def send(settings: Settings, partition: int, key: bytes, value: bytes) -> None:
    producer = Producer(settings.client({"acks": "all"}))
    producer.produce(settings.topic(Topic.LIFECYCLE), value, key, partition)
    assert producer.flush(WAIT_S) == 0


def aborted(settings: Settings, partition: int, key: bytes, value: bytes) -> int:
    """A producer's transaction that leaves nothing but a gap; the offset of its first record."""
    offsets: list[int | None] = []
    producer = Producer(settings.client({"transactional.id": f"{settings.topic_prefix}somebody"}))
    producer.init_transactions(WAIT_S)
    producer.begin_transaction()
    for _ in range(ABORTED_RECORDS):
        producer.produce(
            settings.topic(Topic.LIFECYCLE),
            value,
            key,
            partition,
            on_delivery=lambda _, sent: offsets.append(sent.offset()),
        )
    assert producer.flush(WAIT_S) == 0
    producer.abort_transaction(WAIT_S)
    first = offsets[0]
    assert first is not None
    return first


def die_in_a_transaction(settings: Settings) -> None:
    """A processor that has written its decisions, and is killed before it commits them."""
    assert spawn_host(settings, kill_at="offsets").wait(60) == -signal.SIGKILL


def observe(settings: Settings) -> str:
    """A run that trains twice on a group, the first time after it drifted, and is only watched."""
    with pytest.MonkeyPatch.context() as patch, world(settings, enforcement=Enforcement.OBSERVE) as made:
        patch.setattr(observer, "SETTLE_S", 0.0)
        group = made.group(2)
        made.worker.flush(WAIT_S)
        made.rewards.flush(WAIT_S)
        with ObservingTrainer(settings, made.run_id, "learner-0", options=PATIENT) as trainer:
            for rollout_id in range(2):
                with trainer.update(rollout_id) as update:
                    update.reserve(group, POLICY)
                    behavior = [behavior_log_probs(seed) for seed in range(2)]
                    rows = [
                        ObservedRow(name, [(one, MASK)], one - 1.0) for name, one in zip(group, behavior, strict=True)
                    ]
                    update.admit(rows, POLICY, keep_log_probs=True)
                    update.start()
                    update.step(group)
        made.coordinator.prepare(
            version=1,
            artifact=Artifact(hash="weights-1", kind=ArtifactKind.FILE),
            parent_version=0,
            update_ids=[update.update_id],
            committed=True,
        )
        return made.run_id


def open_run_beside(settings: Settings, partition: int) -> str:
    """A run that says no more than that it is there, last in the partition but for what comes then."""
    run_id = next(name for at in count() if partition_of(name := f"neighbour-{at}", PARTITIONS) == partition)
    with Coordinator(settings, run_id, "coordinator-0", options=PATIENT) as coordinator:
        coordinator.configure(
            admission=Admission(
                max_lag=1, lag_unit=LagUnit.DEPTH, max_mean_abs_log_ratio=0.2, drift_gate=DriftGate.REQUIRED
            ),
            required_workers=["worker-0"],
            initial_policy=InitialPolicy(version=0, artifact=Artifact(hash="weights-0", kind=ArtifactKind.FILE)),
        )
    return run_id
