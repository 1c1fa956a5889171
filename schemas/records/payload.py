"""What the `payloads` topic carries: the arrays behind a trajectory and the recordings of an optimizer step.

Arrays are flat and little-endian: float32 for real values, int32 for token ids, one byte per position for masks.
"""

from enum import StrEnum

from pydantic import Field

from rollbook.schemas.records.common import LearnerRef, PolicyRef
from rollbook.schemas.records.convention import Conventions
from rollbook.schemas.types import Bytes, Count, Finite, Flag, Id, NamedNumber, NonNegative, Part, Positive, RunId, Text


class SegmentPayload(Part):
    """The arrays of one segment of a trajectory."""

    run_id: RunId = Field(description="The run.")
    trajectory_id: Id = Field(description="The trajectory.")
    segment: Count = Field(description="Index of the segment.")
    prompt_ids: Bytes = Field(description="int32 token ids of the prompt; empty when redacted.")
    response_ids: Bytes = Field(description="int32 token ids of the response; empty when redacted.")
    action_mask: Bytes = Field(description="One byte per response token: 1 where the model acted.")
    log_probs: Bytes = Field(description="float32 behavior log-probs per response token; masked ones may be anything.")


class CurrentLogProbs(Part):
    """The learner's log-probs behind an `Admit` item."""

    run_id: RunId = Field(description="The run.")
    update_id: Id = Field(description="The update.")
    trajectory_id: Id = Field(description="The trajectory.")
    log_probs: Bytes = Field(description="float32 per response token, segments joined in order.")


class Role(StrEnum):
    """Which network a recording is of."""

    ACTOR = "actor"
    CRITIC = "critic"


class OldSource(StrEnum):
    """Where the old log-probs come from."""

    RECOMPUTED = "recomputed"
    ROLLOUT = "rollout"
    TRAIN_FORWARD = "train_forward"


class ArrayName(StrEnum):
    """The per-token arrays a trainer can record."""

    BEHAVIOR_LOG_PROBS = "behavior_log_probs"
    OLD_LOG_PROBS = "old_log_probs"
    LOG_PROBS = "log_probs"
    REF_LOG_PROBS = "ref_log_probs"
    ENTROPY = "entropy"
    KL = "kl"
    ADVANTAGES = "advantages"
    VALUES = "values"
    RETURNS = "returns"
    IMPORTANCE_WEIGHTS = "importance_weights"
    NEW_VALUES = "new_values"


class RecordedArray(Part):
    """One per-token array over all rows of the step."""

    name: ArrayName = Field(description="Which.")
    data: Bytes = Field(description="float32 little-endian, response tokens of all rows joined in row order.")


class World(Part):
    """Sizes of the parallel dimensions."""

    dp: Positive = Field(default=1, description="Data parallel.")
    tp: Positive = Field(default=1, description="Tensor parallel.")
    pp: Positive = Field(default=1, description="Pipeline parallel.")
    cp: Positive = Field(default=1, description="Context parallel.")


class CohortMember(Part):
    """A trajectory whose reward took part in a normalisation."""

    trajectory_id: Id = Field(description="The trajectory.")
    raw_reward: Finite = Field(description="Its reward.")


class Cohort(Part):
    """Rewards normalised together, also those of rows that were not consumed: a semantic group, or several under one
    name where more than each of them by itself took part."""

    cohort_id: Id = Field(description="Name of the cohort, which several groups may share.")
    group_id: Id = Field(description="The semantic group that it is.")
    members: tuple[CohortMember, ...] = Field(min_length=1, description="All members.")


class RecordedRow(Part):
    """One training row of the step."""

    trajectory_id: Id = Field(description="The trajectory.")
    segment: Count = Field(description="Its segment.")
    group_id: Id = Field(description="Its semantic group.")
    micro_batch_id: Id = Field(description="Micro-batch, mb-0000 and so on in the iterator's order.")
    prompt_length: Count = Field(description="Tokens before the response.")
    loss_mask: Bytes = Field(description="One byte per response token: 1 where it counts in the loss.")
    reward: Finite = Field(description="Post-processed reward.")
    padding: Flag = Field(default=False, description="A row that only fills the batch.")


class RowTerms(Part):
    """One result of the loss, split by row: each row's mean over its loss mask."""

    name: Id = Field(description="pg_loss, entropy_loss, pg_clipfrac or ppo_kl.")
    values: tuple[Finite, ...] = Field(description="One for each row.")


class GrpoConfig(Part):
    """The conventions the step was computed under."""

    advantage_estimator: Id = Field(description="grpo.")
    n_samples_per_prompt: Positive = Field(description="Members of a group.")
    grpo_std_normalization: Flag = Field(description="Whether group rewards are divided by their standard deviation.")
    kl_loss_type: Id = Field(description="k1, k2, k3 or low_var_kl.")
    kl_coef: NonNegative = Field(description="0: kl is not computed; otherwise it is recorded unscaled.")
    eps_clip: NonNegative = Field(description="Lower clip of the ratio.")
    eps_clip_high: NonNegative = Field(description="Upper clip of the ratio.")
    entropy_coef: Finite = Field(description="Weight of the entropy in the loss.")


class Kernel(Part):
    """The code that computed the recorded results."""

    implementation: Id = Field(description="Name of the implementation.")
    package: Id = Field(description="Package it comes from.")
    version: Id = Field(description="Version of the package.")
    function: Id = Field(description="Function within it.")


class StepRecording(Part):
    """One optimizer step of one rank, as the trainer computed it; enough to compute it again."""

    run_id: RunId = Field(description="The run.")
    update_id: Id = Field(description="The update.")
    learner: LearnerRef = Field(description="Who trained.")
    role: Role = Field(description="actor or critic.")
    rollout_id: Count = Field(description="Training iteration.")
    step_id: Count = Field(description="Optimizer step within the update.")
    epoch: Count = Field(description="Pass over the update's rows, from 0.")
    rank: Count = Field(description="Rank of the recording process.")
    world: World = Field(description="Sizes of the parallel dimensions.")
    consumer_batch_id: Id = Field(description="The batch as the trainer took it.")
    policy: PolicyRef = Field(description="The actor's policy at the start of the update.")
    config: GrpoConfig = Field(description="Conventions of the computation.")
    cohorts: tuple[Cohort, ...] = Field(description="What was normalised together.")
    rows: tuple[RecordedRow, ...] = Field(min_length=1, description="Training rows, in order.")
    arrays: tuple[RecordedArray, ...] = Field(description="Per-token arrays.")
    old_source: OldSource = Field(description="Where the old log-probs come from.")
    normalizer: Finite = Field(description="What the sum of row terms was divided by; 1 for a plain sum.")
    results: tuple[NamedNumber, ...] = Field(
        description="Scalar results: loss, pg_loss, entropy_loss, pg_clipfrac, ppo_kl; of a critic value_loss, "
        "value_clipfrac."
    )
    row_terms: tuple[RowTerms, ...] = Field(default=(), description="The results split by row.")
    kernel: Kernel = Field(description="The code that computed them.")
    framework_version: Text = Field(default="", description="Version of the tensor framework.")
    conventions: Conventions | None = Field(default=None, description="Formulas that are not those of format 1.0.0.")
