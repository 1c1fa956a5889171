"""Loads reserved trajectories: each `Generated` and `RewardReady` at the offset in the decision, then the payloads."""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from rollbook.infra.settings import Settings, Topic
from rollbook.producers.reading.fetch import Fetcher, Place
from rollbook.producers.reading.payloads import read_payloads
from rollbook.schemas.codec import decode_as
from rollbook.schemas.digests import (
    FloatArray,
    IntArray,
    Mask,
    evidence_digest,
    floats_of,
    ints_of,
    mask_of,
    tokens_digest,
    trajectory_evidence_digest,
)
from rollbook.schemas.errors import BadInput
from rollbook.schemas.payload_io import PayloadCorrupt
from rollbook.schemas.records.common import PayloadRef, PolicyRef, TrajectoryIdentity
from rollbook.schemas.records.decision import ItemDecision
from rollbook.schemas.records.payload import SegmentPayload
from rollbook.schemas.records.reward import RewardItem, RewardReady
from rollbook.schemas.records.rollout import Generated, Segment, Span, TaskSource
from rollbook.schemas.records.run import RewardIdentity

# Lifecycle records are small and a group's lie close together.
_SKIP = 1000


@dataclass(frozen=True, slots=True)
class LoadedSegment:
    """A training row: `prompt_ids` [P] int32, the others [T] over the response tokens. Token ids are empty where the
    worker did not store them."""

    prompt_ids: IntArray
    response_ids: IntArray
    action_mask: Mask
    log_probs: FloatArray
    spans: tuple[Span, ...]


@dataclass(frozen=True, slots=True)
class LoadedTrajectory:
    """A reserved trajectory, read back and verified against its digests."""

    identity: TrajectoryIdentity
    task: TaskSource
    contract_hash: str
    segments: tuple[LoadedSegment, ...]
    raw_reward: float
    components: tuple[tuple[str, float], ...]
    reward_rule: RewardIdentity
    evidence_digest: str
    reserved: ItemDecision

    @property
    def trajectory_id(self) -> str:
        return self.identity.trajectory_id

    @property
    def group_id(self) -> str:
        return self.identity.group_id

    @property
    def policies(self) -> tuple[PolicyRef, ...]:
        """Policies that wrote its tokens, each once, in order of version."""
        found = {span.policy for segment in self.segments for span in segment.spans if span.policy is not None}
        return tuple(sorted(found, key=lambda policy: policy.version))

    @property
    def log_probs(self) -> FloatArray:
        """Behavior log-probs [T] of all segments joined in order."""
        return np.concatenate([segment.log_probs for segment in self.segments])

    @property
    def action_mask(self) -> Mask:
        """Action mask [T] of all segments joined in order."""
        return np.concatenate([segment.action_mask for segment in self.segments])


def load_trajectories(
    fetcher: Fetcher, settings: Settings, partition: int, items: Sequence[ItemDecision], *, deadline_s: float
) -> list[LoadedTrajectory]:
    """The trajectories that a decision names, in its order. Raises PayloadLost, PayloadCorrupt, EnvironmentFault."""
    topic = settings.topic(Topic.LIFECYCLE)
    offsets = {offset for item in items for offset in (item.generated_offset, item.reward_offset) if offset is not None}
    places = [Place(partition, offset) for offset in offsets]
    values = fetcher.fetch(topic, places, skip=_SKIP, deadline_s=deadline_s)
    # One RewardReady may carry thousands of rewards: decode each record once.
    rewards: dict[int, RewardReady] = {}
    generated: list[Generated] = []
    for item in items:
        if item.generated_offset is None or item.reward_offset is None:
            raise BadInput(f"the decision names no records of trajectory {item.trajectory_id}: only reserved ones load")
        generated.append(decode_as(Generated, values[Place(partition, item.generated_offset)]))
        if item.reward_offset not in rewards:
            value = values[Place(partition, item.reward_offset)]
            rewards[item.reward_offset] = decode_as(RewardReady, value)
    refs = [_ref(record, index) for record in generated for index in range(len(record.segments))]
    payloads = iter(zip(refs, read_payloads(fetcher, refs, deadline_s=deadline_s), strict=True))
    loaded = []
    for item, record in zip(items, generated, strict=True):
        assert item.reward_offset is not None
        segments = tuple(_segment(record, segment, *next(payloads)) for segment in record.segments)
        loaded.append(_trajectory(item, record, segments, rewards[item.reward_offset]))
    return loaded


def _ref(record: Generated, index: int) -> PayloadRef:
    ref = record.segments[index].payload
    if ref is None:
        raise BadInput(
            f"trajectory {record.identity.trajectory_id} was published without payloads: its arrays are only where it "
            "was made; publish with keep_payloads=True to load them"
        )
    return ref


def _segment(record: Generated, segment: Segment, ref: PayloadRef, data: bytes) -> LoadedSegment:
    payload = decode_as(SegmentPayload, data)
    for name in ("prompt_ids", "response_ids", "log_probs"):
        if (size := len(getattr(payload, name))) % 4:
            raise PayloadCorrupt(ref, f"its {name} have {size} bytes, and a number has four")
    row = LoadedSegment(
        prompt_ids=ints_of(payload.prompt_ids),
        response_ids=ints_of(payload.response_ids),
        action_mask=mask_of(payload.action_mask),
        log_probs=floats_of(payload.log_probs),
        spans=segment.spans,
    )
    trajectory_id = record.identity.trajectory_id
    if payload.trajectory_id != trajectory_id:
        raise PayloadCorrupt(ref, f"it is of trajectory {payload.trajectory_id}, not of {trajectory_id}")
    if not len(row.action_mask) == len(row.log_probs) == segment.response_length:
        raise PayloadCorrupt(ref, f"its arrays have not the {segment.response_length} tokens of {trajectory_id}")
    if evidence_digest(row.action_mask, row.log_probs) != segment.evidence_digest:
        raise PayloadCorrupt(ref, f"mask and log-probs are not those that Generated of {trajectory_id} vouches for")
    lengths = (len(row.prompt_ids), len(row.response_ids))
    if lengths == (segment.prompt_length, segment.response_length):
        fits = tokens_digest(row.prompt_ids, row.response_ids) == segment.tokens_digest
    else:  # redacted, each wholly
        fits = lengths[0] in (0, segment.prompt_length) and lengths[1] in (0, segment.response_length)
    if not fits:
        raise PayloadCorrupt(ref, f"its tokens are not those that Generated of {trajectory_id} vouches for")
    return row


def _trajectory(
    item: ItemDecision, record: Generated, segments: tuple[LoadedSegment, ...], rewards: RewardReady
) -> LoadedTrajectory:
    reward = _reward(rewards, item.trajectory_id)
    return LoadedTrajectory(
        identity=record.identity,
        task=record.task,
        contract_hash=record.contract_hash,
        segments=segments,
        raw_reward=reward.raw_reward,
        components=tuple((component.name, component.value) for component in reward.components),
        reward_rule=rewards.reward,
        evidence_digest=trajectory_evidence_digest([segment.evidence_digest for segment in record.segments]),
        reserved=item,
    )


def _reward(record: RewardReady, trajectory_id: str) -> RewardItem:
    for item in record.items:
        if item.trajectory_id == trajectory_id:
            return item
    raise BadInput(
        f"the RewardReady that the decision names holds no reward of trajectory {trajectory_id}: see `rollbook audit`"
    )
