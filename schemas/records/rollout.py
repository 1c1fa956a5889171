"""Records of rollout workers: what was generated, and what failed to be."""

from enum import StrEnum
from typing import Self

from pydantic import Field, model_validator

from rollbook.schemas.records.common import Lifecycle, PayloadRef, PolicyRef, TrajectoryIdentity
from rollbook.schemas.types import INT63_MAX, Count, Digest, Id, NamedText, Part, Positive, Text


class Purpose(StrEnum):
    """What a trajectory is for; eval is never reservable."""

    TRAIN = "train"
    EVAL = "eval"


class Origin(StrEnum):
    """Who wrote the tokens of a span."""

    MODEL = "model"
    TOOL = "tool"
    TEMPLATE = "template"


class FinishReason(StrEnum):
    """Why generation ended."""

    STOP = "stop"
    LENGTH = "length"
    TOOL_LIMIT = "tool_limit"
    ABORTED = "aborted"


class GenerationFailure(StrEnum):
    """Why there is no trajectory. An interruption that will be continued is not a failure."""

    TIMEOUT = "timeout"
    ENGINE_ERROR = "engine_error"
    OUT_OF_MEMORY = "out_of_memory"
    WORKER_LOST = "worker_lost"


class Span(Part):
    """Response tokens [start, end) of one origin; those of the model name the policy that wrote them."""

    start: Count = Field(description="First response token of the span.")
    end: Positive = Field(description="One past its last response token.")
    origin: Origin = Field(description="model, tool or template.")
    policy: PolicyRef | None = Field(default=None, description="The policy; set exactly when the origin is model.")

    @model_validator(mode="after")
    def _model_names_policy(self) -> Self:
        if self.end <= self.start:
            raise ValueError("end: a span has at least one token")
        if (self.origin is Origin.MODEL) != (self.policy is not None):
            raise ValueError("policy: set it exactly when the origin is model")
        return self


class Segment(Part):
    """One training row of a trajectory."""

    prompt_length: Count = Field(description="Tokens before the response.")
    response_length: Positive = Field(description="Response tokens, all origins.")
    spans: tuple[Span, ...] = Field(min_length=1, max_length=4096, description="Cover the response in order, no gaps.")
    active_tokens: Count = Field(description="Positions with action mask 1.")
    tokens_digest: Digest = Field(description="sha256 of prompt and response ids, int32 little-endian.")
    evidence_digest: Digest = Field(description="sha256 over mask and log-probs at active positions.")
    payload: PayloadRef | None = Field(default=None, description="The arrays; none when the run keeps none.")

    @model_validator(mode="after")
    def _spans_cover(self) -> Self:
        at = 0
        for span in self.spans:
            if span.start != at:
                raise ValueError("spans: they must cover the response in order without gaps")
            at = span.end
        if at != self.response_length:
            raise ValueError("spans: they must end at response_length")
        by_model = sum(span.end - span.start for span in self.spans if span.origin is Origin.MODEL)
        if self.active_tokens > by_model:
            raise ValueError("active_tokens: more than the tokens that the model wrote")
        return self


class TaskSource(Part):
    """Which task a trajectory answers."""

    task_id: Id = Field(description="Name of the task.")
    prompt_hash: Digest = Field(description="sha256 of the prompt.")
    dataset: Id = Field(description="Data set and split.")
    row: Count = Field(description="Row in the data set.")


class Provenance(Part):
    """Where a trajectory was made, physically; information only."""

    rollout_partition_id: Id = Field(description="The physical batch of the rollout system.")
    worker_id: Id = Field(description="The worker.")


class Dispatched(Lifecycle):
    """A generation has begun, so that one that dies is visible. Optional."""

    identity: TrajectoryIdentity = Field(description="Trajectory and group.")
    task: TaskSource = Field(description="Task source.")
    policy: PolicyRef = Field(description="The policy that generates.")
    worker_id: Id = Field(description="The worker.")


class Generated(Lifecycle):
    """A trajectory is whole: identity, policy, conditions, evidence."""

    identity: TrajectoryIdentity = Field(description="Trajectory and group.")
    purpose: Purpose = Field(description="train or eval.")
    task: TaskSource = Field(description="Task source.")
    contract_hash: Digest = Field(description="The registered generation contract.")
    overrides: tuple[NamedText, ...] = Field(default=(), max_length=64, description="What deviates from the contract.")
    segments: tuple[Segment, ...] = Field(min_length=1, max_length=1024, description="Training rows, in order.")
    finish_reason: FinishReason = Field(description="Why generation ended.")
    provenance: Provenance = Field(description="Physical batch and worker.")

    @model_validator(mode="after")
    def _has_a_policy(self) -> Self:
        if not any(span.policy for segment in self.segments for span in segment.spans):
            raise ValueError("segments: no span names a policy")
        if sum(segment.active_tokens for segment in self.segments) > INT63_MAX:
            raise ValueError("segments.active_tokens: more than can be counted together")
        return self


class GenerationFailed(Lifecycle):
    """An attempt ended without a trajectory. Never a reward of 0."""

    identity: TrajectoryIdentity = Field(description="Trajectory and group.")
    policy: PolicyRef = Field(description="The policy that was generating.")
    reason: GenerationFailure = Field(description="Why.")
    text: Text = Field(default="", description="Free text for people; no prompts, responses or paths.")
