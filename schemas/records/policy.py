"""Records of the weight coordinator: a policy from its preparation to its activation."""

from enum import StrEnum
from typing import Self

from pydantic import Field, model_validator

from rollbook.schemas.records.common import Lifecycle, PolicyRef
from rollbook.schemas.records.run import Artifact
from rollbook.schemas.types import MAX_ITEMS, Count, Flag, Id, NonNegative, Part, Positive, Text


class PolicyPrepared(Lifecycle):
    """New weights exist: what they are made of."""

    version: Count = Field(description="Version of the policy.")
    label: Text = Field(default="", description="The trainer's own step number or name.")
    artifact: Artifact = Field(description="Its weights.")
    parent_version: Count = Field(description="The policy it continues.")
    rollback_of: Count | None = Field(default=None, description="The older policy whose weights these are again.")
    update_ids: tuple[Id, ...] = Field(max_length=MAX_ITEMS, description="Updates that it adds to its parent.")
    committed: Flag = Field(description="True where the artifact is already written whole.")

    @model_validator(mode="after")
    def _rollback_adds_nothing(self) -> Self:
        if self.rollback_of is not None and self.update_ids:
            raise ValueError("update_ids: a rollback adds none")
        if self.parent_version == self.version or self.rollback_of == self.version:
            raise ValueError("parent_version: a policy is not its own ancestor")
        if len(set(self.update_ids)) != len(self.update_ids):
            raise ValueError("update_ids: each update once")
        return self


class PolicyCommitted(Lifecycle):
    """The artifact of a policy is written whole."""

    policy: PolicyRef = Field(description="Version and artifact hash.")


class AbandonReason(StrEnum):
    """Why a policy will never be used."""

    ARTIFACT_INCOMPLETE = "artifact_incomplete"
    DISTRIBUTION_FAILED = "distribution_failed"
    LOAD_FAILED = "load_failed"
    OPERATOR = "operator"


class PolicyAbandoned(Lifecycle):
    """A policy will never be active. Concerns its own version alone; its descendants stand."""

    version: Count = Field(description="Its version.")
    reason: AbandonReason = Field(description="Why.")


class EvidenceKind(StrEnum):
    """How a worker knows what it serves."""

    FILE_HASH = "file_hash"
    ENGINE_ECHO = "engine_echo"
    PROBE = "probe"


class Probe(Part):
    """Log-probs of probe tokens compared with the trainer's."""

    tokens: Positive = Field(description="Tokens compared.")
    mean_abs: NonNegative = Field(description="Mean |difference|, nats.")
    max_abs: NonNegative = Field(description="Largest |difference|, nats.")


class AckFailure(StrEnum):
    """Why a worker does not serve what it should."""

    DOWNLOAD_FAILED = "download_failed"
    HASH_MISMATCH = "hash_mismatch"
    LOAD_FAILED = "load_failed"
    TIMEOUT = "timeout"


class ActivationAck(Lifecycle):
    """What a worker serves, or why it does not. The highest (incarnation, report_seq) of a worker counts."""

    worker_id: Id = Field(description="The worker.")
    incarnation: Count = Field(description="Rises with each start of the worker.")
    report_seq: Count = Field(description="Rises with each report of an incarnation.")
    serves: PolicyRef | None = Field(default=None, description="Version and artifact hash that it serves.")
    evidence: EvidenceKind | None = Field(default=None, description="How it knows.")
    probe: Probe | None = Field(default=None, description="Figures of a probe.")
    failure: AckFailure | None = Field(default=None, description="Why it does not serve.")
    text: Text = Field(default="", description="Free text for people; no paths.")

    @model_validator(mode="after")
    def _serves_or_fails(self) -> Self:
        if (self.serves is None) != (self.failure is not None):
            raise ValueError("failure: give either serves or failure")
        if (self.serves is None) != (self.evidence is None):
            raise ValueError("evidence: it goes with serves")
        if (self.evidence is EvidenceKind.PROBE) != (self.probe is not None):
            raise ValueError("probe: it goes with evidence probe")
        return self


class Activate(Lifecycle):
    """Asks to make a policy the active one: compare-and-set on the active version."""

    policy: PolicyRef = Field(description="The policy to activate.")
    expected_active_version: Count = Field(description="The version believed active; another is refused.")
