"""The compacted current state, one small record a thing: what the fold knows, and what a restart restores."""

from enum import StrEnum

from pydantic import Field

from rollbook.schemas.records.common import LearnerRef, PolicyRef
from rollbook.schemas.records.decision import ItemDecision, Outcome
from rollbook.schemas.records.rollout import Purpose
from rollbook.schemas.records.run import Admission, Artifact, Enforcement, RewardIdentity, Unpinned
from rollbook.schemas.types import Count, Digest, Flag, Id, NonNegative, Part, Positive, Text


class TrajectoryStatus(StrEnum):
    """Lifecycle states of a trajectory."""

    DISPATCHED = "dispatched"
    GENERATED = "generated"
    GENERATION_FAILED = "generation_failed"
    REWARDED = "rewarded"
    REWARD_FAILED = "reward_failed"
    RESERVED = "reserved"
    CONSUMED = "consumed"
    DISCARDED = "discarded"
    QUARANTINED = "quarantined"
    OFFLINE = "offline"


class UpdateStatus(StrEnum):
    """States of an update; all but open and started are final."""

    OPEN = "open"
    STARTED = "started"
    COMMITTED = "committed"
    ABORTED = "aborted"
    ROLLED_BACK = "rolled_back"


class RunHead(Part):
    """The run in a nutshell."""

    run_id: Id = Field(description="The run, or the partition's pseudo-run.")
    sequence: Count = Field(description="Decisions so far.")
    chain: Digest = Field(description="Chain of the last decision.")
    config_version: Count = Field(default=0, description="Configuration in force; 0: none yet.")
    fold_version: Count = Field(default=0, description="Rules in force; 0: none yet.")
    active: PolicyRef | None = Field(default=None, description="The active policy.")
    active_orphaned: Flag = Field(default=False, description="Whether the active policy contains undone updates.")
    commits: Count = Field(default=0, description="Commits so far; gives the commit order.")
    floor: Count = Field(default=0, description="Versions below it are forgotten; only rises.")
    closed: Flag = Field(default=False, description="Whether the run is over.")


class RunConfig(Part):
    """One configuration; an update keeps being judged by the one of its first Reserve."""

    config_version: Positive = Field(description="Its version.")
    fold_version: Positive = Field(description="Rules it asks for.")
    content: Digest = Field(description="Content digest of its RunConfigured.")
    partition_count: Positive = Field(description="Partitions of the lifecycle topic.")
    enforcement: Enforcement = Field(description="gate or observe.")
    admission: Admission = Field(description="Limits.")
    required_workers: tuple[Id, ...] = Field(description="Workers whose ack counts.")
    pinned_contracts: tuple[Digest, ...] = Field(description="Contracts that may be cited; empty: any registered.")
    pinned_rewards: tuple[RewardIdentity, ...] = Field(description="Reward identities that count; empty: any.")
    unpinned: Unpinned = Field(description="What becomes of what is not registered or pinned.")
    horizon: Count = Field(description="Lag beyond which trajectories are forgotten; 0: never.")
    lease_ms: Count = Field(description="Lease of an update; 0: none.")
    max_live: Positive = Field(description="Most live trajectories.")
    max_pending: Positive = Field(description="Most kept facts.")


class ContractState(Part):
    """A registered generation contract."""

    contract_hash: Digest = Field(description="Its hash.")
    content: Digest = Field(description="Content digest of its record.")
    offset: Count = Field(description="Offset of its record.")


class TrajectoryState(Part):
    """One trajectory."""

    trajectory_id: Id = Field(description="Its id.")
    status: TrajectoryStatus = Field(description="Lifecycle state.")
    revision: Count = Field(description="Changes so far.")
    group_id: Id = Field(description="Its group.")
    sample_index: Count = Field(description="Place in the group.")
    group_expected: Positive = Field(description="Size of the complete group.")
    apart: Text = Field(default="", description="Unpinned contract and reward that keep it apart from its group.")
    purpose: Purpose = Field(description="train or eval.")
    policies: tuple[PolicyRef, ...] = Field(description="Policies of its model spans, each once, by version.")
    active_tokens: Count = Field(description="Active positions over all segments.")
    evidence_digest: Text = Field(description="Behavior evidence over all segments; empty when it failed.")
    content: Digest = Field(description="Content digest of the record that made it known.")
    generated_offset: Count = Field(description="Offset of that record.")
    reward_content: Text = Field(default="", description="Content digest of its reward.")
    failure_content: Text = Field(default="", description="Content digest of its RewardFailed.")
    reward_offset: Count | None = Field(default=None, description="Offset of its RewardReady.")
    update_id: Text = Field(default="", description="The update that holds or consumed it.")
    trained_by: tuple[Id, ...] = Field(
        default=(),
        description="Updates that trained on it as a fact, without having it: the first consumes it when it can.",
    )
    lag: int | None = Field(default=None, description="Lag when it was last judged for that update.")
    admitted_ratio: NonNegative | None = Field(
        default=None, description="Drift at its accepted Admit; none: not admitted."
    )


class PendingFact(Part):
    """A fact that waits for what it is about."""

    subject_id: Id = Field(description="Trajectory, or version in decimal.")
    record_type: Id = Field(description="RewardReady, RewardFailed, PolicyCommitted or Commit.")
    content: Digest = Field(description="Content digest of the fact.")
    offset: Count = Field(description="Offset of its record.")
    artifact_hash: Text = Field(default="", description="Hash that a PolicyCommitted names.")
    apart: Text = Field(default="", description="Hash of an unpinned reward identity.")
    replaced: Text = Field(default="", description="Content digest of the failure that this fact took the place of.")
    trained_by: tuple[Id, ...] = Field(default=(), description="Updates whose Commit trained on what is not known yet.")
    cause: Text = Field(default="", description="Why a reward could not be had.")


class Answer(Part):
    """The first answer to a command: what a retry gets."""

    record_type: Id = Field(description="Reserve, Admit or UpdateStarted.")
    part: Count = Field(description="Its part.")
    content: Digest = Field(description="Content digest of the command.")
    outcome: Outcome = Field(description="Its outcome.")
    reason: Id = Field(description="Its reason.")
    items: tuple[ItemDecision, ...] = Field(description="Its items.")


class SealedRank(Part):
    """The recordings of one rank."""

    rank: Count = Field(description="Rank.")
    content: Digest = Field(description="Content digest of its RecordingSealed.")
    offset: Count = Field(description="Offset of that record.")


class UpdateState(Part):
    """One update; its id never reopens."""

    update_id: Id = Field(description="Its id.")
    status: UpdateStatus = Field(description="State.")
    learner: LearnerRef | None = Field(description="Its learner; none: ended by an operator before its Reserve.")
    config_version: Count = Field(description="Configuration it is judged by.")
    opened_sequence: Count = Field(description="Sequence of its first Reserve.")
    last_activity_offset: Count = Field(description="Offset of its last Reserve, Admit or Renew.")
    held: tuple[Id, ...] = Field(default=(), description="Trajectories it holds, in the order they were reserved.")
    answers: tuple[Answer, ...] = Field(default=(), description="First answers, while it is open or started.")
    in_doubt: Flag = Field(
        default=False, description="Its lease expired: after the start, and in observe mode before it."
    )
    end_content: Text = Field(default="", description="Content digest of the Commit or Abort that ended it.")
    commit_order: Count = Field(default=0, description="Its place among the run's commits; 0: not committed.")
    trained: tuple[Id, ...] = Field(default=(), description="Trajectories it trained on that are not forgotten yet.")
    sealed: tuple[SealedRank, ...] = Field(default=(), description="Ranks whose recordings are sealed.")
    forgotten: Count = Field(default=0, description="How many it trained on that are forgotten.")


class LearnerState(Part):
    """One learner."""

    learner_id: Id = Field(description="Its id.")
    epoch: Count = Field(description="Its epoch.")
    incarnation: Id = Field(description="The process that holds the epoch.")
    content: Digest = Field(description="Content digest of its LearnerStarted.")
    fenced: Flag = Field(default=False, description="Fenced by an operator's abort of a started update.")


class CheckpointState(Part):
    """One saved state of a learner."""

    checkpoint_id: Id = Field(description="Its id.")
    learner_id: Id = Field(description="Whose it is.")
    content: Digest = Field(description="Content digest of its CheckpointSaved.")
    digest: Id = Field(description="Hash of its content.")
    commit_order: Count = Field(
        description="Commit order of its last update; 0: none. It contains that and all before."
    )
    orphaned: Flag = Field(default=False, description="Whether it contains a rolled-back update.")


class PolicyState(Part):
    """One policy."""

    version: Count = Field(description="Its version.")
    artifact: Artifact = Field(description="Its weights.")
    content: Digest = Field(description="Content digest of its PolicyPrepared, or of the run's configuration.")
    source_version: Count | None = Field(description="Parent or rolled-back-to policy, whose updates it contains.")
    update_ids: tuple[Id, ...] = Field(description="Updates that it adds.")
    depth: Count = Field(description="Exports since the initial policy, along its ancestry.")
    ordinal: Count = Field(description="Updates contained in its weights.")
    committed: Flag = Field(description="Whether the artifact is written whole.")
    activated: Flag = Field(description="Whether it was ever active.")
    orphaned: Flag = Field(default=False, description="Whether it contains an aborted or rolled-back update.")
    abandoned: Flag = Field(default=False, description="Whether it will never be active.")
    activated_offset: Count | None = Field(default=None, description="Offset of the Activate that made it active.")
    activation_content: Text = Field(default="", description="Content digest of the Activate that made it active.")


class WorkerState(Part):
    """What a worker last reported."""

    worker_id: Id = Field(description="Its id.")
    incarnation: Count = Field(description="Its incarnation.")
    report_seq: Count = Field(description="Number of the report.")
    serves: PolicyRef | None = Field(description="What it serves; none: it failed to load.")
    failure: Text = Field(default="", description="Why it does not serve.")
    offset: Count = Field(description="Offset of the report.")
    content: Digest = Field(description="Content digest of the report.")


class Position(Part):
    """Where the fold of a partition stands."""

    next_offset: Count = Field(description="First lifecycle offset not yet folded.")
    transactional_id: Id = Field(description="The processor instance that wrote it.")
