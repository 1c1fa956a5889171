"""Clients while the broker is slow, gone or killed, or while they are: nothing acknowledged is lost, a training loop is
never disturbed, and what became of a command is found out. On a real broker."""

import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import replace

import numpy as np
import pytest

from rollbook.infra.broker.ports import free_port
from rollbook.infra.settings import Settings, Topic
from rollbook.producers import (
    Coordinator,
    Counters,
    DecisionTimeout,
    DeliveryFailed,
    ObservingTrainer,
    OnUnavailable,
    Options,
    Phase,
    QueueFull,
    RewardService,
    RolloutWorker,
    Trainer,
    new_id,
    new_identity,
    read_payload,
)
from rollbook.schemas.errors import EnvironmentFault
from rollbook.schemas.partition import partition_of
from rollbook.schemas.records.decision import Outcome
from rollbook.schemas.records.policy import AckFailure, EvidenceKind
from rollbook.schemas.records.reward import DiscardReason, RewardFailure, RewardReady
from rollbook.schemas.records.rollout import FinishReason, Generated, GenerationFailure
from rollbook.schemas.records.run import DriftGate, Enforcement
from rollbook.tests import recount
from rollbook.tests.conftest import PARTITIONS
from rollbook.tests.producers.cluster import Cluster
from rollbook.tests.producers.test_observe import ready
from rollbook.tests.producers.world import (
    CONTRACT_HASH,
    PATIENT,
    POLICY,
    RULE,
    SAMPLING,
    TASK,
    World,
    processor,
    read_topic,
    row,
    world,
)

AT_ONCE_S = 0.5
"""Far above what queueing takes, far below any time-out of Kafka's."""


def rewarded(settings: Settings, run_id: str) -> list[str]:
    """The trajectories rewarded in the log, in its order."""
    partition = partition_of(run_id, PARTITIONS)
    found = [one for one in read_topic(settings, Topic.LIFECYCLE, partition) if one.key == run_id.encode()]
    return [item.trajectory_id for one in found if isinstance(one.record, RewardReady) for item in one.record.items]


def test_a_slow_broker_slows_nobody_and_loses_nothing(cluster: Cluster) -> None:
    run_id, names = new_id(), [f"t-{index}" for index in range(6)]
    spent = 0.0
    # It gives up waiting for an answer, and sends what has arrived already once more.
    impatient = replace(cluster.settings, kafka=(("socket.timeout.ms", "200"),))
    with RewardService(impatient, run_id, "rewards-0", RULE) as rewards:
        for at in range(0, len(names), 3):
            with cluster.frozen():
                began = time.monotonic()
                for name in names[at : at + 3]:
                    rewards.reward(name, 1.0)
                spent += time.monotonic() - began
                assert rewards.flush(0.4) > 0, "the broker answers nothing meanwhile"
        assert spent < AT_ONCE_S
        assert rewards.flush(20) == 0
        assert rewards.counters == Counters(published=len(names), delivered=len(names))
    assert rewarded(cluster.settings, run_id) == names


def test_a_process_that_is_killed_leaves_what_it_had_acknowledged_and_nothing_by_halves(cluster: Cluster) -> None:
    run_id = new_id()
    arguments = [cluster.settings.bootstrap_servers, cluster.settings.topic_prefix, run_id, "20"]
    process = subprocess.Popen(
        [sys.executable, "-m", "rollbook.tests.producers.dying", *arguments],
        text=True,
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
    )
    assert process.stdin is not None
    assert process.stdout is not None
    try:
        assert process.stdout.readline() == "acknowledged\n"
        with cluster.frozen():  # so that all that follows is still on its way
            process.stdin.write("go on\n")
            process.stdin.flush()
            counted = tuple(map(int, process.stdout.readline().split()))
            process.kill()
            process.wait()
    finally:
        process.kill()
        process.communicate()
    partition = partition_of(run_id, PARTITIONS)
    seen = [
        one.record for one in read_topic(cluster.settings, Topic.LIFECYCLE, partition) if one.key == run_id.encode()
    ]
    generated = [record for record in seen if isinstance(record, Generated)]
    ids = [record.identity.trajectory_id for record in generated]
    given = rewarded(cluster.settings, run_id)
    assert counted == (20, 20), "only what the broker had acknowledged was counted"
    assert (len(ids) >= 20, len(given) >= 20) == (True, True)
    assert given[:20] == ids[:20]
    assert (len(set(ids)), len(set(given))) == (len(ids), len(given)), "none is there twice"
    for record in generated:  # a record is never there without its payload
        assert record.segments[0].payload is not None
        assert read_payload(cluster.settings, record.segments[0].payload)


def tell_everything(worker: RolloutWorker, rewards: RewardService) -> int:
    """Every event that a training loop tells of; returns how many."""
    identity = new_identity("group-0", 0, 1)
    worker.register_contract(tokenizer="digits", template="plain", engine="toy 1.0", sampling=SAMPLING)
    worker.acknowledge(POLICY, EvidenceKind.FILE_HASH)
    worker.acknowledge_failure(AckFailure.LOAD_FAILED)
    worker.dispatched(identity, POLICY, task=TASK)
    worker.generated(
        identity,
        [row()],
        task=TASK,
        contract_hash=CONTRACT_HASH,
        finish_reason=FinishReason.STOP,
        rollout_partition_id="batch-0",
    )
    worker.generation_failed(new_identity("group-0", 0, 1), POLICY, GenerationFailure.TIMEOUT)
    worker.discarded([identity.trajectory_id], DiscardReason.SURPLUS)
    rewards.reward(identity.trajectory_id, np.float32(1.0))
    rewards.failed(identity.trajectory_id, RewardFailure.TIMEOUT, retriable=True)
    return 9


def test_nothing_is_raised_into_a_loop_that_tells_of_itself(cluster: Cluster) -> None:
    run_id = new_id()
    worker = RolloutWorker(cluster.settings, run_id, "worker-0", options=Options(delivery_timeout_s=1, max_events=9))
    rewards = cluster.rewards(run_id, delivery_timeout_s=1, max_events=3)
    with worker, rewards:
        with cluster.frozen():
            began = time.monotonic()
            told = sum(tell_everything(worker, rewards) for _ in range(3))
            assert time.monotonic() - began < AT_ONCE_S
            assert (worker.counters, rewards.counters) == (
                Counters(published=9, lost=12),
                Counters(published=3, lost=3),
            )
            for client in (worker, rewards):
                with pytest.raises(QueueFull):  # asked, it says what was the first trouble
                    client.flush(20)
        assert worker.counters.lost + rewards.counters.lost == told, "what waited was given up, and is counted as well"
        for client in (worker, rewards):
            with suppress(DeliveryFailed):
                client.flush(20)
        tell_everything(worker, rewards)
        assert worker.flush(20) == rewards.flush(20) == 0, "and the clients go on"
    assert (worker.counters.delivered, rewards.counters.delivered) == (7, 2)


def test_what_is_given_up_at_the_end_is_counted(cluster: Cluster) -> None:
    rewards = cluster.rewards(close_timeout_s=0.1)
    with cluster.frozen():
        rewards.reward("t-0", 1.0)
        rewards.reward("t-1", 1.0)
        with pytest.raises(DeliveryFailed, match="2 of 2 events"):
            rewards.close()
    assert rewards.counters == Counters(published=2, lost=2)


def test_who_needs_decisions_is_told_of_a_broker_that_is_down_too() -> None:
    nowhere, brief = Settings(bootstrap_servers=f"127.0.0.1:{free_port()}"), Options(connect_timeout_s=0.2)
    for make in (Trainer, Coordinator):
        with pytest.raises(EnvironmentFault, match=rf"{nowhere.bootstrap_servers} .*rollbook broker start"):
            make(nowhere, "run-0", "name-0", options=brief)


@pytest.fixture(scope="module")
def processed_here(cluster: Cluster) -> Iterator[Settings]:
    """A processor on the broker that the tests treat badly."""
    with processor(cluster.settings):
        yield cluster.settings


@pytest.fixture
def here(processed_here: Settings) -> Iterator[World]:
    with world(processed_here, drift_gate=DriftGate.OFF) as made:
        yield made


def learner(run: World, on_unavailable: OnUnavailable = OnUnavailable.STOP, **options: float) -> Trainer:
    trainer = Trainer(
        run.settings,
        run.run_id,
        "learner-0",
        drift_gate=DriftGate.OFF,
        on_unavailable=on_unavailable,
        options=Options(**{"decision_timeout_s": 20.0, **options}),  # type: ignore[arg-type]
    )
    trainer.start()
    return trainer


def outcomes(run: World, record_type: str) -> list[Outcome]:
    return [decision.outcome for decision in run.decisions(record_type)]


def test_a_command_that_timed_out_is_asked_about_again_and_counts_once(cluster: Cluster, here: World) -> None:
    group = here.group(2)
    with learner(here) as trainer, trainer.update(rollout_id=0) as update:
        update.claim(POLICY, max_groups=1, wait_s=20)
        trainer._options = Options(decision_timeout_s=0.3)
        with (
            cluster.frozen(),
            pytest.raises(DecisionTimeout, match=r"UpdateStarted .*then send the same command again"),
        ):
            update.start()
        trainer._options = PATIENT
        update.resend()
        assert sorted(update.trainable) == sorted(group)
        update.step(update.trainable)
    assert update.phase is Phase.COMMITTED
    first, *others = outcomes(here, "UpdateStarted")
    assert (first, set(others)) == (Outcome.ACCEPTED, {Outcome.DUPLICATE}), "both copies arrived, one counted"


def thaw_when_lost(cluster: Cluster, client: Trainer) -> None:
    deadline = time.monotonic() + 20
    while not client.counters.lost and time.monotonic() < deadline:
        time.sleep(0.01)
    cluster.thaw()


def test_a_commit_that_was_given_up_is_sent_again_before_the_learner_is(cluster: Cluster, here: World) -> None:
    here.group(1)
    with learner(here, delivery_timeout_s=1) as trainer:
        with trainer.update(rollout_id=0) as update:
            update.claim(POLICY, max_groups=1, wait_s=20)
            update.start()
            update.step(update.trainable)
            cluster.freeze()
            back = threading.Thread(target=thaw_when_lost, args=(cluster, trainer))
            back.start()
        back.join()
        assert (update.phase, trainer.may_export) == (Phase.COMMITTED, True)
        assert trainer.counters.lost == 1
    assert outcomes(here, "Commit")[0] is Outcome.ACCEPTED


def test_nothing_acknowledged_is_lost_and_a_run_goes_on_over_a_broker_that_is_killed(
    cluster: Cluster, here: World
) -> None:
    (first,) = here.group(1)
    other, names = new_id(), [f"t-{index}" for index in range(400)]
    with learner(here, OnUnavailable.WAIT) as trainer, cluster.rewards(other) as rewards:
        with trainer.update(rollout_id=0) as update:
            update.claim(POLICY, max_groups=1, wait_s=20)
            update.start()
            trainer._options = Options(decision_timeout_s=1.0)
            for name in names[:200]:
                rewards.reward(name, 1.0)
            while rewards.counters.delivered < 50:  # so that some are acknowledged, and others on their way
                time.sleep(0.001)
            cluster.broker.kill()
            for name in names[200:]:
                rewards.reward(name, 1.0)
            (second,) = here.group(1, first_seed=1)
            assert (rewards.counters.published, rewards.counters.lost) == (400, 0)
            back = threading.Timer(0.1, cluster.broker.start)
            back.start()
            update.step(update.trainable)  # the block is left with a commit, for whose decision it waits
        back.join()
        assert update.phase is Phase.COMMITTED
        trainer._options = PATIENT
        with trainer.update(rollout_id=1) as update:
            update.claim(POLICY, max_groups=1, wait_s=20)
            update.start()
            assert [*update.trainable] == [second] != [first]
            update.step(update.trainable)
        for client in (here.worker, here.rewards, rewards):
            assert client.flush(20) == 0
            assert (client.counters.delivered, client.counters.lost) == (client.counters.published, 0)
    assert rewarded(cluster.settings, other) == names, "each once, in its order"
    topics = (cluster.settings.topic(topic) for topic in (Topic.LIFECYCLE, Topic.DECISIONS))
    lifecycle, decisions = (recount.read_topic(cluster.settings.bootstrap_servers, topic) for topic in topics)
    assert len(decisions) > len(outcomes(here, "Commit")) == 2
    places = {partition: sum(one.partition == partition for one in decisions) for partition in range(PARTITIONS)}
    decided = [one for one in lifecycle if one.offset < places[one.partition]]  # what came last may not be yet
    recount.check_decisions(decided, decisions, recount.Codec())


def test_an_observing_trainer_joins_a_broker_that_comes_up_after_it(cluster: Cluster, processed_here: Settings) -> None:
    with world(processed_here, drift_gate=DriftGate.OFF, enforcement=Enforcement.OBSERVE) as run:
        group = ready(run)
        cluster.freeze()
        began = time.monotonic()
        with ObservingTrainer(
            run.settings, run.run_id, "learner-0", options=Options(connect_timeout_s=0.2, decision_timeout_s=20.0)
        ) as trainer:
            with trainer.update(rollout_id=0) as update:
                update.reserve(group, POLICY)
                update.start()
                update.step(group)
            assert time.monotonic() - began < AT_ONCE_S, "the training waits for nothing"
            time.sleep(0.5)  # the first attempt to connect is over
            cluster.thaw()
            decision = run.decided("Commit")
        assert (decision.violation, [item.state_after for item in decision.items]) == (False, ["consumed"])
        assert trainer.counters.lost == 0
