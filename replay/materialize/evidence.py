"""What the log says about one committed update: typed, read, and each record true to its decision and digests."""

from collections.abc import Mapping
from dataclasses import dataclass

from rollbook.replay.materialize.facts import Fact
from rollbook.replay.materialize.provenance import UsedPayload, UsedRecord
from rollbook.schemas.digests import FloatArray, Mask
from rollbook.schemas.records.payload import StepRecording
from rollbook.schemas.records.reward import RewardItem, RewardReady
from rollbook.schemas.records.rollout import Generated
from rollbook.schemas.records.update import Commit


@dataclass(frozen=True, slots=True)
class SegmentEvidence:
    """One training row as the worker published it, [T] over its response tokens. Without a payload the mask is that of
    the model's spans, and nothing is known of the log-probs."""

    place: str
    action_mask: Mask
    log_probs: FloatArray | None
    used: UsedPayload | None


@dataclass(frozen=True, slots=True)
class TrajectoryEvidence:
    """One trajectory of the update, with no reward where nothing scored it. `refused` is where and why it left the
    update before the commit; empty for those that the Commit names."""

    generated: Fact[Generated]
    reward: Fact[RewardReady] | None
    reward_item: RewardItem | None
    segments: tuple[SegmentEvidence, ...]
    refused: str

    @property
    def raw_reward(self) -> float:
        """0 where there is none, which is then said beside it."""
        return 0.0 if self.reward_item is None else self.reward_item.raw_reward


@dataclass(frozen=True, slots=True)
class Recording:
    """The recording of one optimizer step by one rank."""

    step: StepRecording
    place: str
    used: UsedPayload


@dataclass(frozen=True, slots=True)
class UpdateEvidence:
    """Everything of one update: its own records, the recordings of each step of its Commit, one a rank in rank order,
    and its trajectories."""

    commit: Fact[Commit]
    records: tuple[UsedRecord, ...]
    recordings: tuple[tuple[Recording, ...], ...]
    trajectories: Mapping[str, TrajectoryEvidence]
