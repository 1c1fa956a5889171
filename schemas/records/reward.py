"""Records of reward services, and of whoever filters after the reward."""

from enum import StrEnum

from pydantic import Field

from rollbook.schemas.records.common import Lifecycle, PayloadRef
from rollbook.schemas.records.run import RewardIdentity
from rollbook.schemas.types import MAX_ITEMS, Finite, Flag, Id, NamedNumber, Part, Text


class RewardFailure(StrEnum):
    """Why there is no reward."""

    TIMEOUT = "timeout"
    SERVICE_ERROR = "service_error"
    INVALID_OUTPUT = "invalid_output"


class DiscardReason(StrEnum):
    """Why a trajectory is filtered out."""

    ZERO_VARIANCE = "zero_variance"
    SURPLUS = "surplus"
    LENGTH = "length"
    PAYLOAD_LOST = "payload_lost"
    CUSTOM = "custom"


class RewardItem(Part):
    """The reward of one trajectory."""

    trajectory_id: Id = Field(description="The trajectory.")
    raw_reward: Finite = Field(description="Reward before any post-processing.")
    components: tuple[NamedNumber, ...] = Field(default=(), max_length=256, description="Parts of the reward, by name.")
    payload: PayloadRef | None = Field(default=None, description="Per-token rewards, float32 little-endian.")


class RewardReady(Lifecycle):
    """Rewards, each of one trajectory, by one rule."""

    items: tuple[RewardItem, ...] = Field(min_length=1, max_length=MAX_ITEMS, description="Rewards.")
    reward: RewardIdentity = Field(description="The rule that gave them.")
    remote: Flag = Field(description="Whether a service gave them that nobody can run again.")
    label_hash: Text = Field(default="", description="Hash of the labels judged against; empty for none.")


class RewardFailed(Lifecycle):
    """The reward of a trajectory could not be had. Never a reward of 0."""

    trajectory_id: Id = Field(description="The trajectory.")
    reason: RewardFailure = Field(description="Why.")
    retriable: Flag = Field(description="Whether another attempt will be made.")
    text: Text = Field(default="", description="Free text for people; no prompts, responses or paths.")


class Quarantine(Lifecycle):
    """Trajectories taken out of use by a person or a check: never trained on again."""

    trajectory_ids: tuple[Id, ...] = Field(min_length=1, max_length=MAX_ITEMS, description="The trajectories.")
    reason: Id = Field(description="Why.")


class Discarded(Lifecycle):
    """Trajectories filtered out: neither a failure nor a refusal."""

    trajectory_ids: tuple[Id, ...] = Field(min_length=1, max_length=MAX_ITEMS, description="The trajectories.")
    reason: DiscardReason = Field(description="Why.")
    text: Text = Field(default="", description="Free text for people.")
