"""Reserved trajectories read back from the real broker: whole, or refused with the place of what is wrong."""

from dataclasses import dataclass
from typing import Any

import numpy as np
import pytest
from confluent_kafka import TopicPartition

from rollbook.infra.settings import Settings, Topic
from rollbook.infra.topics.admin import connect
from rollbook.producers import PayloadLost, RewardService, RolloutWorker, SegmentArrays, new_identity
from rollbook.producers.reading.fetch import Fetcher, Place
from rollbook.producers.reading.loading import LoadedTrajectory, load_trajectories
from rollbook.schemas.codec import encode
from rollbook.schemas.errors import BadInput, RollbookError
from rollbook.schemas.partition import partition_of
from rollbook.schemas.payload_io import PayloadCorrupt
from rollbook.schemas.records.common import PolicyRef
from rollbook.schemas.records.decision import ItemDecision
from rollbook.schemas.records.rollout import FinishReason, Generated, Origin, Span
from rollbook.tests.conftest import PARTITIONS
from rollbook.tests.processors.hosting import send
from rollbook.tests.producers.world import CONTRACT_HASH, RULE, TASK, behavior_log_probs, read_topic, row

RUN = "run-0"
PARTITION = partition_of(RUN, PARTITIONS)
OLDER = PolicyRef(version=0, artifact_hash="older")


@dataclass
class Published:
    """Trajectories that were published with their rewards, and where the records lie."""

    settings: Settings
    generated: list[Generated]
    items: list[ItemDecision]

    def load(self, items: list[ItemDecision] | None = None) -> list[LoadedTrajectory]:
        with Fetcher(self.settings) as fetcher:
            return load_trajectories(
                fetcher, self.settings, PARTITION, self.items if items is None else items, deadline_s=20
            )

    def load_changed(self, segment: dict[str, Any], ref: dict[str, Any] | None = None) -> list[LoadedTrajectory]:
        """Load the first trajectory from a `Generated` with a changed segment, or a changed payload reference."""
        record = self.generated[0]
        first = record.segments[0]
        if ref is not None:
            assert first.payload is not None
            segment = {**segment, "payload": first.payload.model_copy(update=ref)}
        changed = record.model_copy(update={"segments": (first.model_copy(update=segment),)})
        send(self.settings, [(PARTITION, RUN.encode(), encode(changed))])
        offset = read_topic(self.settings, Topic.LIFECYCLE)[-1].offset
        return self.load([self.items[0].model_copy(update={"generated_offset": offset})])


def publish(settings: Settings, trajectories: list[list[SegmentArrays]]) -> Published:
    ids = []
    with (
        RolloutWorker(settings, RUN, "worker-0", keep_tokens=True) as worker,
        RewardService(settings, RUN, "rewards-0", RULE) as rewards,
    ):
        for segments in trajectories:
            ids.append(
                worker.generated(
                    new_identity("group-0", 0, 1),
                    segments,
                    task=TASK,
                    contract_hash=CONTRACT_HASH,
                    finish_reason=FinishReason.STOP,
                    rollout_partition_id="batch-0",
                )
            )
            rewards.reward(ids[-1], float(len(ids)), components={"length": 2.0})
    generated: dict[str, Generated] = {}
    places: dict[str, dict[str, int]] = {one: {} for one in ids}
    for seen in read_topic(settings, Topic.LIFECYCLE):
        if isinstance(seen.record, Generated):
            generated[seen.record.identity.trajectory_id] = seen.record
            places[seen.record.identity.trajectory_id]["generated_offset"] = seen.offset
        else:
            places[seen.record.items[0].trajectory_id]["reward_offset"] = seen.offset  # type: ignore[attr-defined]
    items = [ItemDecision(trajectory_id=one, reason="reserved", **places[one]) for one in ids]
    return Published(settings, [generated[one] for one in ids], items)


@pytest.fixture
def published(settings: Settings) -> Published:
    return publish(settings, [[row(0)], [row(1)]])


def test_several_segments_come_back_joined_in_order(settings: Settings) -> None:
    spans = [
        Span(start=0, end=2, origin=Origin.MODEL, policy=OLDER),
        Span(start=2, end=3, origin=Origin.TOOL),
        Span(start=3, end=5, origin=Origin.MODEL, policy=PolicyRef(version=3, artifact_hash="newer")),
    ]
    mixed = SegmentArrays([7], np.arange(5), behavior_log_probs(2), [1, 1, 0, 1, 1], spans=spans)
    (loaded,) = publish(settings, [[row(0), mixed]]).load()
    np.testing.assert_array_equal(loaded.log_probs, np.concatenate([behavior_log_probs(0), behavior_log_probs(2)]))
    assert loaded.action_mask.tolist() == [True, True, True, False, True, True, True, False, True, True]
    assert loaded.segments[1].spans == tuple(spans)
    assert [policy.version for policy in loaded.policies] == [0, 0, 3]
    assert (loaded.raw_reward, loaded.components, loaded.reward_rule) == (1.0, (("length", 2.0),), RULE)


def test_the_order_is_that_of_the_decision(published: Published) -> None:
    assert [one.raw_reward for one in published.load(published.items[::-1])] == [2.0, 1.0]


@pytest.mark.parametrize(
    ("segment", "ref", "error", "message"),
    [
        ({"evidence_digest": "e" * 64}, None, PayloadCorrupt, "mask and log-probs are not those that Generated"),
        ({"tokens_digest": "e" * 64}, None, PayloadCorrupt, "its tokens are not those that Generated"),
        ({}, {"sha256": "e" * 64}, PayloadCorrupt, "sha256 is .*the reference says eee"),
        ({}, {"size": 12}, PayloadCorrupt, "bytes where the reference says 12"),
        ({}, {"offsets": (9_999,)}, PayloadLost, r"payloads:\d@9999 is not there any more \(retained are 0 to"),
        ({"payload": None}, None, BadInput, "was published without payloads"),
    ],
)
def test_what_does_not_fit_is_refused(
    published: Published,
    segment: dict[str, Any],
    ref: dict[str, Any] | None,
    error: type[RollbookError],
    message: str,
) -> None:
    with pytest.raises(error, match=message):
        published.load_changed(segment, ref)


def test_the_payload_of_another_trajectory_is_refused(published: Published) -> None:
    other = published.generated[1].segments[0]
    with pytest.raises(PayloadCorrupt, match=f"it is of trajectory {published.items[1].trajectory_id}"):
        published.load_changed({"payload": other.payload})


def test_a_payload_whose_retention_is_over_is_lost(published: Published) -> None:
    ref = published.generated[0].segments[0].payload
    assert ref is not None
    admin = connect(published.settings)
    for future in admin.delete_records([TopicPartition(ref.topic, ref.partition, ref.offsets[0] + 1)]).values():
        future.result(timeout=20)
    with pytest.raises(PayloadLost, match=rf"{ref.topic}:{ref.partition}@{ref.offsets[0]} .*payload_lost"):
        published.load()


def test_only_what_a_decision_places_can_be_loaded(published: Published) -> None:
    with pytest.raises(BadInput, match="names no records"):
        published.load([published.items[0].model_copy(update={"reward_offset": None})])


def test_records_far_apart_are_jumped_to(published: Published) -> None:
    topic = published.settings.topic(Topic.LIFECYCLE)
    with Fetcher(published.settings) as fetcher:
        places = [Place(PARTITION, offset) for offset in (3, 0)]
        assert fetcher.fetch(topic, places, skip=0, deadline_s=20) == fetcher.fetch(
            topic, places, skip=100, deadline_s=20
        )
