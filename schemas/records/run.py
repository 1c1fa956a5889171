"""Records that set up a run: its configuration and its generation contracts."""

from enum import StrEnum
from typing import Self

from pydantic import Field, model_validator

from rollbook.schemas.records.common import Lifecycle
from rollbook.schemas.types import Count, Digest, Finite, Flag, Id, NonNegative, Part, Positive, Text


class Enforcement(StrEnum):
    """Whether decisions bind the clients."""

    GATE = "gate"
    OBSERVE = "observe"


class LagUnit(StrEnum):
    """What lag and horizon count in."""

    DEPTH = "depth"
    ORDINAL = "ordinal"


class DriftGate(StrEnum):
    """Whether a row needs an accepted Admit before it may be trained on."""

    REQUIRED = "required"
    OFF = "off"


class Admission(Part):
    """Limits that a trajectory must keep to be trained on."""

    max_lag: Count = Field(description="Largest tolerated lag, in lag_unit.")
    lag_unit: LagUnit = Field(description="depth: policies exported since; ordinal: updates committed since.")
    max_mean_abs_log_ratio: NonNegative = Field(description="Largest mean of |current - behavior| log-prob, in nats.")
    drift_gate: DriftGate = Field(description="required: trained rows need an accepted Admit; off: Admit only records.")


class ArtifactKind(StrEnum):
    """How the weights of a policy reach the workers."""

    FILE = "file"
    TRANSFERRED_BUCKETS = "transferred_buckets"
    DECLARED = "declared"


class Artifact(Part):
    """The weights of a policy."""

    hash: Id = Field(description="Hash of the artifact.")
    kind: ArtifactKind = Field(description="file, transferred_buckets, or declared (nobody can check the hash).")
    uri: Text = Field(default="", description="Where it can be fetched; empty when it cannot.")


class InitialPolicy(Part):
    """The policy a run starts with: depth 0, ordinal 0, active from the start."""

    version: Count = Field(description="Its version.")
    artifact: Artifact = Field(description="Its weights.")
    label: Text = Field(default="", description="The trainer's own name for it.")


class RewardIdentity(Part):
    """Which rule gave a reward."""

    rule_id: Id = Field(description="Name of the reward rule.")
    version: Id = Field(description="Version of the rule.")
    hash: Id = Field(description="Hash of its code or prompt.")


class Unpinned(StrEnum):
    """What becomes of trajectories and rewards that cite an unregistered or unpinned contract or reward identity."""

    REFUSE = "refuse"
    APART = "apart"


class RunClosed(Lifecycle):
    """The run is over: aborts, expires and forgets everything of it; every later record of the run is refused."""

    text: Text = Field(default="", description="Free text for people.")


class RunConfigured(Lifecycle):
    """Opens a run, or changes its limits. Before the first one a run refuses everything."""

    config_version: Positive = Field(description="Must rise with each RunConfigured.")
    fold_version: Positive = Field(description="Version of the fold's rules; never falls.")
    partition_count: Positive = Field(description="Partitions of the lifecycle topic; fixed for its life.")
    enforcement: Enforcement = Field(description="gate or observe; never changes within a run.")
    admission: Admission = Field(description="Limits for being trained on.")
    required_workers: tuple[Id, ...] = Field(max_length=4096, description="Workers whose ack an activation needs.")
    initial_policy: InitialPolicy = Field(description="The policy the run starts with.")
    pinned_contracts: tuple[Digest, ...] = Field(
        default=(),
        max_length=256,
        description="Generation contracts that trajectories may cite; empty: any registered.",
    )
    pinned_rewards: tuple[RewardIdentity, ...] = Field(
        default=(), max_length=256, description="Reward identities that may give rewards; empty: any."
    )
    unpinned: Unpinned = Field(
        default=Unpinned.REFUSE, description="refuse what is not registered or pinned, or keep its groups apart."
    )
    horizon: Count = Field(default=0, description="Lag beyond which trajectories are forgotten; 0: never.")
    max_live: Positive = Field(default=1_000_000, description="Live trajectories above which Generated is refused.")
    max_pending: Positive = Field(default=100_000, description="Facts kept until their turn, at most.")
    lease_ms: Count = Field(default=0, description="Time an update may be held without Renew; 0: no lease.")

    @model_validator(mode="after")
    def _consistent(self) -> Self:
        if self.horizon and self.horizon < self.admission.max_lag:
            raise ValueError("horizon: what may still be trained on must not be forgotten, set it to max_lag or more")
        if len(set(self.required_workers)) != len(self.required_workers):
            raise ValueError("required_workers: each worker once")
        return self


class LogProbKind(StrEnum):
    """Which log-probs an engine reports."""

    RAW = "raw"
    PROCESSED = "processed"


class Sampling(Part):
    """How tokens are sampled."""

    temperature: NonNegative = Field(description="Softmax temperature; 0 is greedy.")
    top_p: NonNegative = Field(description="Nucleus mass, 1 for all.")
    top_k: Count = Field(description="Most likely tokens kept, 0 for all.")
    max_tokens: Positive = Field(description="Most response tokens.")
    log_probs: LogProbKind = Field(description="raw (before temperature and cuts) or processed.")
    seed: Count | None = Field(default=None, description="Sampler seed where there is one.")
    repetition_penalty: Finite = Field(default=1.0, description="1 for none.")


class GenerationContract(Lifecycle):
    """Conditions of generation, registered once and cited by hash."""

    contract_hash: Digest = Field(description="sha256 over the other fields; see rollbook.schemas.digests.")
    tokenizer: Id = Field(description="Tokenizer name and revision, or its hash.")
    template: Id = Field(description="Chat template name or hash.")
    engine: Id = Field(description="Inference engine, with version.")
    sampling: Sampling = Field(description="How tokens are sampled.")
    deterministic: Flag = Field(default=False, description="Whether the engine promises the same tokens for a seed.")
