"""Publishing on the real broker: payloads first, never blocking, bounded, and loud about what is lost."""

import subprocess
import sys
import time
from collections.abc import Callable
from dataclasses import replace

import numpy as np
import pytest

from rollbook.infra.broker.ports import free_port
from rollbook.infra.settings import Settings, Topic
from rollbook.producers import (
    ClientClosed,
    Counters,
    DeliveryFailed,
    Options,
    QueueFull,
    Redaction,
    Reward,
    RewardService,
    RolloutWorker,
    SegmentArrays,
    Trainer,
    Treatment,
    new_identity,
    read_payload,
)
from rollbook.schemas.codec import decode_as
from rollbook.schemas.digests import floats_of
from rollbook.schemas.errors import BadInput, EnvironmentFault, RollbookError
from rollbook.schemas.partition import partition_of
from rollbook.schemas.payload_io import CHUNK_BYTES
from rollbook.schemas.records.common import TrajectoryIdentity
from rollbook.schemas.records.decision import Outcome
from rollbook.schemas.records.payload import SegmentPayload
from rollbook.schemas.records.reward import Discarded, DiscardReason, RewardFailed, RewardFailure, RewardReady
from rollbook.schemas.records.rollout import FinishReason, Generated
from rollbook.tests.conftest import PARTITIONS
from rollbook.tests.producers.cluster import Cluster
from rollbook.tests.producers.world import CONTRACT_HASH, PATIENT, POLICY, RULE, TASK, World, read_topic, row


def publish(worker: RolloutWorker, segments: list[SegmentArrays], identity: TrajectoryIdentity | None = None) -> str:
    return worker.generated(
        identity or new_identity("group-0", 0, 1),
        segments,
        task=TASK,
        contract_hash=CONTRACT_HASH,
        finish_reason=FinishReason.STOP,
        rollout_partition_id="batch-0",
    )


def test_the_payload_lies_there_before_the_record_that_refers_to_it(settings: Settings) -> None:
    with RolloutWorker(settings, "run-0", "worker-0") as worker:
        ids = [publish(worker, [row(seed), row(seed + 1)]) for seed in range(20)]
        assert worker.flush(20) == 0
    assert worker.counters.published == worker.counters.delivered == 20
    payloads = {(seen.partition, seen.offset): seen for seen in read_topic(settings, Topic.PAYLOADS)}
    records = read_topic(settings, Topic.LIFECYCLE)
    assert len(payloads) == 40
    assert {seen.key for seen in records} == {b"run-0"}
    assert {seen.partition for seen in records} == {partition_of("run-0", PARTITIONS)}
    assert {record.record.identity.trajectory_id for record in records if isinstance(record.record, Generated)} == set(
        ids
    )
    for seen in records:
        assert isinstance(seen.record, Generated)
        for index, segment in enumerate(seen.record.segments):
            assert segment.payload is not None
            payload = payloads[segment.payload.partition, segment.payload.offsets[0]]
            assert payload.timestamp_ms <= seen.timestamp_ms, "both by the broker's clock"
            content = decode_as(SegmentPayload, read_payload(settings, segment.payload))
            assert (content.trajectory_id, content.segment) == (seen.record.identity.trajectory_id, index)


def test_a_payload_above_the_limit_of_a_record_is_cut_and_joined(settings: Settings) -> None:
    length = CHUNK_BYTES // 4 + 1000  # the log-probs alone are more than one chunk
    log_probs = -np.random.default_rng(0).random(length).astype(np.float32)
    segment = SegmentArrays(
        prompt_ids=[1],
        response_ids=np.random.default_rng(1).integers(0, 2**31, length),
        log_probs=log_probs,
        policy=POLICY,
    )
    with RolloutWorker(settings, "run-0", "worker-0", keep_tokens=True) as worker:
        publish(worker, [segment])
    (seen,) = read_topic(settings, Topic.LIFECYCLE)
    assert isinstance(seen.record, Generated)
    ref = seen.record.segments[0].payload
    assert ref is not None
    assert len(ref.offsets) == 3
    assert np.array_equal(floats_of(decode_as(SegmentPayload, read_payload(settings, ref)).log_probs), log_probs)


def test_without_payloads_a_trajectory_is_its_digests(settings: Settings) -> None:
    with RolloutWorker(settings, "run-0", "worker-0", keep_payloads=False) as worker:
        publish(worker, [row()])
    (seen,) = read_topic(settings, Topic.LIFECYCLE)
    assert isinstance(seen.record, Generated)
    assert seen.record.segments[0].payload is None
    assert read_topic(settings, Topic.PAYLOADS) == []


def test_rewards_and_failures_arrive_in_order(settings: Settings) -> None:
    with RewardService(settings, "run-0", "rewards-0", RULE) as rewards:
        rewards.failed("t-0", RewardFailure.TIMEOUT, retriable=True)
        rewards.reward("t-0", np.float32(0.5), components={"format": np.float64(0.25)}, label_hash="labels")
    first, second = (seen.record for seen in read_topic(settings, Topic.LIFECYCLE))
    assert isinstance(first, RewardFailed)
    assert isinstance(second, RewardReady)
    assert (second.items[0].raw_reward, second.items[0].components[0].value) == (0.5, 0.25)


def test_a_record_does_not_overtake_the_one_that_waits_for_its_payload(run: World) -> None:
    ids = []
    for _ in range(20):
        ids += run.group(1, rewarded=False)
        run.worker.discarded(ids[-1:], DiscardReason.SURPLUS)
    assert run.worker.flush(20) == 0
    with Trainer(run.settings, run.run_id, "learner-0", options=PATIENT) as trainer:
        trainer.start()  # decided after all that lies before it
    assert [decision.outcome for decision in run.decisions("Discarded")] == [Outcome.ACCEPTED] * 20


def test_a_full_queue_costs_the_event_and_not_the_training(cluster: Cluster) -> None:
    errors: list[RollbookError] = []
    with cluster.rewards(max_events=5, on_error=errors.append) as rewards:
        cluster.broker.stop()
        began = time.monotonic()
        for index in range(8):
            rewards.reward(f"t-{index}", 1.0)
        assert time.monotonic() - began < 0.5, "publishing does not wait for a broker"
        assert [type(error) for error in errors] == [QueueFull] * 3
        assert rewards.flush(0.1) == 5
        cluster.broker.start()
        assert rewards.flush(30) == 0
        assert rewards.counters == Counters(published=5, delivered=5, lost=3)


def test_a_full_queue_is_also_one_of_bytes(cluster: Cluster) -> None:
    with RolloutWorker(cluster.settings, "run-0", "worker-0", options=Options(max_bytes=2_000)) as worker:
        with cluster.frozen():
            for seed in range(4):
                publish(worker, [row(seed)])
        with pytest.raises(QueueFull, match="the event was not taken"):
            worker.flush(30)
        assert worker.flush(30) == 0
        assert 0 < worker.counters.delivered < 4


def test_what_is_never_acknowledged_is_reported(cluster: Cluster) -> None:
    with cluster.rewards(delivery_timeout_s=1) as rewards:
        with cluster.frozen():
            rewards.reward("t-0", 1.0)
            with pytest.raises(DeliveryFailed, match=r"lifecycle:\d on 127\.0\.0\.1:\d+: .*publish the event again"):
                rewards.flush(20)
        assert rewards.counters.lost == 1


def test_a_payload_that_is_lost_takes_its_record_with_it(cluster: Cluster) -> None:
    lost: list[RollbookError] = []
    options = Options(delivery_timeout_s=1, on_error=lost.append)
    with RolloutWorker(cluster.settings, "lost", "worker-0", options=options) as worker, cluster.frozen():
        publish(worker, [row()])
        assert worker.flush(20) == 0
    assert [type(error) for error in lost] == [DeliveryFailed]
    assert not [seen for seen in read_topic(cluster.settings, Topic.LIFECYCLE) if seen.key == b"lost"]


def test_what_waits_behind_a_lost_payload_goes_on(cluster: Cluster) -> None:
    lost: list[RollbookError] = []
    options = Options(delivery_timeout_s=1, on_error=lost.append)
    with RolloutWorker(cluster.settings, "behind", "worker-0", options=options) as worker:
        with cluster.frozen():
            publish(worker, [row()])
            worker.discarded(["another"], DiscardReason.SURPLUS)
            deadline = time.monotonic() + 20
            while not lost and time.monotonic() < deadline:
                time.sleep(0.01)
        assert worker.flush(20) == 0
        assert worker.counters == Counters(published=2, delivered=1, lost=1)
    records = [seen.record for seen in read_topic(cluster.settings, Topic.LIFECYCLE) if seen.key == b"behind"]
    assert [type(record) for record in records] == [Discarded]


def leave_undelivered(cluster: Cluster, failure: Exception | None) -> None:
    rewards = cluster.rewards(close_timeout_s=0.2)
    with cluster.frozen(), rewards:
        rewards.reward("t-0", 1.0)
        if failure is not None:
            raise failure


def test_leaving_the_block_says_what_did_not_arrive(cluster: Cluster) -> None:
    with pytest.raises(DeliveryFailed, match=r"1 of 1 events had not reached 127\.0\.0\.1:\d+ after 0\.2 s"):
        leave_undelivered(cluster, None)


def test_the_blocks_own_exception_is_the_one_to_see(cluster: Cluster) -> None:
    with pytest.raises(ZeroDivisionError) as seen:
        leave_undelivered(cluster, ZeroDivisionError())
    assert "1 of 1 events had not reached" in seen.value.__notes__[0]


def test_an_error_callback_that_fails_stops_nothing(cluster: Cluster) -> None:
    def fail(error: RollbookError) -> None:
        raise ZeroDivisionError

    with cluster.rewards(max_events=1, on_error=fail) as rewards:
        with cluster.frozen():
            rewards.reward("t-0", 1.0)
            rewards.reward("t-1", 1.0)
        assert rewards.flush(30) == 0
        assert rewards.counters.lost == 1


def test_a_client_may_be_closed_by_its_error_callback(cluster: Cluster) -> None:
    heard: list[str] = []

    def give_up(error: RollbookError) -> None:
        heard.append(type(error).__name__)
        rewards.close()

    with cluster.rewards(delivery_timeout_s=1, on_error=give_up) as rewards:
        with cluster.frozen():
            for index in range(3):
                rewards.reward(f"t-{index}", 1.0)
            deadline = time.monotonic() + 20
            while len(heard) < 3 and time.monotonic() < deadline:
                time.sleep(0.01)
        with pytest.raises(ClientClosed):
            rewards.reward("t-3", 1.0)
    assert heard == ["DeliveryFailed"] * 3


def test_after_its_block_a_client_is_closed(settings: Settings) -> None:
    with RewardService(settings, "run-0", "rewards-0", RULE) as rewards:
        pass
    with pytest.raises(ClientClosed):
        rewards.reward("t-0", 1.0)
    rewards.close()


Make = Callable[[Settings], object]


@pytest.mark.parametrize(
    "make",
    [
        lambda settings: RolloutWorker(settings, "run-0", "worker-0", options=Options(connect_timeout_s=1)),
        lambda settings: RewardService(settings, "run-0", "rewards-0", RULE, options=Options(connect_timeout_s=1)),
    ],
)
def test_a_broker_that_is_down_is_named_with_the_remedy(make: Make, capfd: pytest.CaptureFixture[str]) -> None:
    nowhere = Settings(bootstrap_servers=f"127.0.0.1:{free_port()}")
    with pytest.raises(EnvironmentFault, match=rf"{nowhere.bootstrap_servers} .*rollbook broker start"):
        make(nowhere)
    assert capfd.readouterr().err == "", "librdkafka keeps quiet"


def test_missing_topics_are_named_with_the_remedy(settings: Settings) -> None:
    with pytest.raises(EnvironmentFault, match=r"topic nowhere\.lifecycle does not exist .*rollbook topics create"):
        RolloutWorker(replace(settings, topic_prefix="nowhere."), "run-0", "worker-0")


def test_a_record_above_the_limit_is_refused_at_the_client(settings: Settings) -> None:
    components = {f"{index:03}" + "x" * 250: 0.0 for index in range(256)}
    options = Options(redaction=Redaction(texts=Treatment.KEEP))  # as hashes the names would be shorter
    with RewardService(settings, "run-0", "rewards-0", RULE, options=options) as rewards:
        with pytest.raises(BadInput, match=r"RewardReady has \d+ bytes, a lifecycle record at most"):
            rewards.rewards([Reward(f"t-{index}", 1.0, components) for index in range(70)])
        rewards.reward("t-0", 1.0, components=components)
    assert len(read_topic(settings, Topic.LIFECYCLE)) == 1


def test_a_forked_child_is_told_and_can_exit(settings: Settings) -> None:
    done = subprocess.run(
        [sys.executable, "-m", "rollbook.tests.producers.forking", settings.bootstrap_servers, settings.topic_prefix],
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    assert done.stdout.splitlines() == [
        "child: ForkedClient: make a client of its own in each process, after the fork",
        "child exited with 0",
        "parent delivered 2",
    ]
    assert done.returncode == 0, done.stderr
