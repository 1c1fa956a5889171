"""What the lifecycle records share: header, identities, references."""

from enum import StrEnum
from typing import Self

from pydantic import Field, model_validator

from rollbook.schemas.types import Count, Digest, Id, Part, Positive, RunId


class SourceKind(StrEnum):
    """The role that wrote a record."""

    ROLLOUT_WORKER = "rollout_worker"
    REWARD_SERVICE = "reward_service"
    TRAINER = "trainer"
    COORDINATOR = "coordinator"
    OPERATOR = "operator"
    PROCESSOR = "processor"


class Source(Part):
    """Who wrote a record."""

    kind: SourceKind = Field(description="Role of the writer.")
    id: Id = Field(description="Name of the writer within its role.")


class Header(Part):
    """First field of every lifecycle record."""

    run_id: RunId = Field(description="The run; also the Kafka key of the record.")
    event_id: Id = Field(
        description="UUIDv7 minted by the client; correlates the decision, never used to find duplicates."
    )
    occurred_at: Count = Field(description="Client clock in milliseconds since the epoch; information only.")
    source: Source = Field(description="The writer.")


class Lifecycle(Part):
    """Base of the records of the `lifecycle` topic."""

    header: Header = Field(description="Run, event id, client time and writer.")


class PolicyRef(Part):
    """A policy by version and content."""

    version: Count = Field(description="Policy version; only rises within a run.")
    artifact_hash: Id = Field(description="Hash of the weights artifact.")


class LearnerRef(Part):
    """A learner in one of its epochs."""

    learner_id: Id = Field(description="Name of the learner, the same over restarts.")
    epoch: Count = Field(description="Sequence of the accepted LearnerStarted; records of another epoch are fenced.")


class PayloadRef(Part):
    """Where the bytes of a payload lie in the `payloads` topic."""

    topic: Id = Field(description="Topic name.")
    partition: Count = Field(description="Partition.")
    offsets: tuple[Count, ...] = Field(
        min_length=1, description="Offset of each chunk, in order; one when it fits a record."
    )
    size: Positive = Field(description="Bytes of the whole payload.")
    sha256: Digest = Field(description="sha256 of the whole payload, chunks joined.")


class TrajectoryIdentity(Part):
    """One attempt at one episode."""

    trajectory_id: Id = Field(description="Minted by the client (UUIDv7), one an attempt; never recurs in the run.")
    group_id: Id = Field(description="Trajectories of one prompt, generated together.")
    sample_index: Count = Field(description="Place of the trajectory in its group, from 0.")
    group_expected: Positive = Field(description="How many trajectories the group has when complete.")

    @model_validator(mode="after")
    def _has_a_place(self) -> Self:
        if self.sample_index >= self.group_expected:
            raise ValueError("sample_index: it must be below group_expected")
        return self
