"""Records of the trainer: learner epochs, and an update from its reservation to its recordings."""

from enum import StrEnum
from typing import Self

from pydantic import Field, model_validator

from rollbook.schemas.records.common import LearnerRef, Lifecycle, PayloadRef, PolicyRef, SourceKind
from rollbook.schemas.types import MAX_ITEMS, Count, Digest, Flag, Id, NonNegative, Part, Positive, Text


class Checkpoint(Part):
    """A saved state of a learner."""

    id: Id = Field(description="Minted per save, never overwritten.")
    digest: Id = Field(description="Hash of its content.")


class LearnerStarted(Lifecycle):
    """A process takes over a learner: compare-and-set on its epoch. Without a checkpoint it undoes all it committed."""

    learner_id: Id = Field(description="The learner.")
    incarnation: Id = Field(description="UUID of the process; never inherited by a fork or an image.")
    expected_epoch: Count = Field(description="The epoch that it believes to follow; the first is 0.")
    checkpoint: Checkpoint | None = Field(default=None, description="Its weights; none: those of the initial policy.")


class ReserveMode(StrEnum):
    """What a Reserve takes when not every item passes."""

    ALL = "all"
    AVAILABLE = "available"


class ClaimOrder(StrEnum):
    """Which groups a claim takes first."""

    OLDEST = "oldest"
    FRESHEST = "freshest"


class ReserveItem(Part):
    """A trajectory that the trainer wants, as it last saw it."""

    trajectory_id: Id = Field(description="The trajectory.")
    expected_revision: Count = Field(description="Its revision; another one is a conflict.")


class Claim(Part):
    """Lets the ledger choose whole groups."""

    max_groups: Positive = Field(description="Most groups to take.")
    order: ClaimOrder = Field(description="oldest or freshest behavior version first, then offset.")


class Reserve(Lifecycle):
    """Asks for trajectories for an update: by name, or by a claim. Carries no tensors."""

    learner: LearnerRef = Field(description="Who asks.")
    update_id: Id = Field(description="The update that will train on them.")
    part: Count = Field(description="Number of the request within the update; (update_id, part) is its natural key.")
    policy: PolicyRef = Field(description="The learner's policy.")
    items: tuple[ReserveItem, ...] = Field(default=(), max_length=MAX_ITEMS, description="Trajectories by name.")
    claim: Claim | None = Field(default=None, description="Instead of items: groups of the ledger's choice.")
    mode: ReserveMode = Field(description="all: every item or none; available: those that pass.")

    @model_validator(mode="after")
    def _items_or_claim(self) -> Self:
        if bool(self.items) == (self.claim is not None):
            raise ValueError("items: give either items or a claim")
        if len({item.trajectory_id for item in self.items}) != len(self.items):
            raise ValueError("items: each trajectory once")
        return self


class AdmitItem(Part):
    """Drift figures of one reserved trajectory."""

    trajectory_id: Id = Field(description="The trajectory.")
    active_tokens: Count = Field(description="Positions compared; must be those of Generated.")
    sum_abs_log_ratio: NonNegative = Field(description="Sum of |current - behavior|, exactly rounded float64, nats.")
    max_abs_log_ratio: NonNegative = Field(description="Largest |current - behavior|, nats.")
    evidence_digest: Digest = Field(description="Digest of the behavior evidence; must be that of Generated.")
    current_digest: Digest = Field(description="sha256 of the current log-probs at active positions.")
    payload: PayloadRef | None = Field(default=None, description="The current log-probs, for the audit.")


class Admit(Lifecycle):
    """Shows how far the learner's policy has drifted from the behavior policy on reserved rows."""

    learner: LearnerRef = Field(description="Who asks.")
    update_id: Id = Field(description="The update that holds them.")
    part: Count = Field(description="Number of the request within the update.")
    policy: PolicyRef = Field(description="The policy whose weights (plus own updates) gave the current log-probs.")
    own_updates: Count = Field(description="Own committed or open updates in those weights; only compared.")
    items: tuple[AdmitItem, ...] = Field(min_length=1, max_length=MAX_ITEMS, description="Figures by trajectory.")

    @model_validator(mode="after")
    def _each_once(self) -> Self:
        if len({item.trajectory_id for item in self.items}) != len(self.items):
            raise ValueError("items: each trajectory once")
        return self


class UpdateStarted(Lifecycle):
    """From here on the rows may be in the weights."""

    learner: LearnerRef = Field(description="Who trains.")
    update_id: Id = Field(description="The update.")


class CommitStep(Part):
    """One optimizer step of the update."""

    rollout_id: Count = Field(description="Training iteration that this update makes.")
    step_id: Count = Field(description="Optimizer step within the update, from 0.")
    trajectory_ids: tuple[Id, ...] = Field(max_length=MAX_ITEMS, description="Trajectories trained on in this step.")


class Disposition(StrEnum):
    """What becomes of a row that was not trained on."""

    RELEASE = "release"
    DISCARD = "discard"


class DroppedItem(Part):
    """A held trajectory that was not trained on."""

    trajectory_id: Id = Field(description="The trajectory.")
    reason: Id = Field(description="Why.")
    disposition: Disposition = Field(description="release or discard.")


class Commit(Lifecycle):
    """The update is in the weights: names exactly what it holds."""

    learner: LearnerRef = Field(description="Who trained.")
    update_id: Id = Field(description="The update.")
    steps: tuple[CommitStep, ...] = Field(max_length=MAX_ITEMS, description="Optimizer steps, in order.")
    dropped: tuple[DroppedItem, ...] = Field(default=(), max_length=MAX_ITEMS, description="Held, not trained on.")
    expected_ranks: tuple[Count, ...] = Field(
        default=(), max_length=65536, description="Ranks whose recordings will be sealed; empty: none are recorded."
    )
    unreserved: Flag = Field(
        default=False, description="Trained without an answer of the ledger: taken as a fact, and a violation."
    )

    @model_validator(mode="after")
    def _each_step_once(self) -> Self:
        if [step.step_id for step in self.steps] != list(range(len(self.steps))):
            raise ValueError("steps: step_id must count 0, 1, 2, ...")
        if len({step.rollout_id for step in self.steps}) > 1:
            raise ValueError("steps: one rollout_id for the whole update")
        if len(set(self.expected_ranks)) != len(self.expected_ranks):
            raise ValueError("expected_ranks: each rank once")
        return self


class RecordingRef(Part):
    """One recording of a rank."""

    rollout_id: Count = Field(description="Training iteration.")
    step_id: Count = Field(description="Optimizer step.")
    payload: PayloadRef = Field(description="The recording, a StepRecording.")


class RecordingSealed(Lifecycle):
    """All recordings of one rank are written; may come after the commit."""

    learner: LearnerRef = Field(description="Who trained.")
    update_id: Id = Field(description="The update.")
    rank: Count = Field(description="Rank of the recording process.")
    recordings: tuple[RecordingRef, ...] = Field(max_length=MAX_ITEMS, description="One for each optimizer step.")
    digest: Digest = Field(description="sha256 over the recordings' sha256 in order.")


class Renew(Lifecycle):
    """The learner is alive and keeps its update: restarts the lease, and clears the doubt about a started one."""

    learner: LearnerRef = Field(description="Who holds it.")
    update_id: Id = Field(description="The update.")


class LeaseExpired(Lifecycle):
    """The lease clerk saw nothing of an update for longer than its lease."""

    update_id: Id = Field(description="The update.")
    basis: Count = Field(description="Offset of the last Reserve, Admit or Renew that the clerk saw of it.")

    @model_validator(mode="after")
    def _by_the_clerk(self) -> Self:
        if self.header.source.kind is not SourceKind.PROCESSOR:
            raise ValueError("header.source.kind: only the processor's lease clerk says that a lease expired")
        return self


class CheckpointSaved(Lifecycle):
    """A learner's state is on disk: which updates are in its weights."""

    learner: LearnerRef = Field(description="Whose weights.")
    checkpoint: Checkpoint = Field(description="The checkpoint.")
    last_update_id: Id | None = Field(
        description="Its last update in commit order; none: the initial policy's weights."
    )
    policy: PolicyRef = Field(description="The learner's policy when it was saved.")
    chain: Digest = Field(description="Chain of a decision that the learner had read: vouches for the log before it.")


class AbortReason(StrEnum):
    """Why an update ends without a commit."""

    UPDATE_FAILED = "update_failed"
    OPERATOR = "operator"


class AbortDisposition(StrEnum):
    """What becomes of the rows of an aborted update."""

    RELEASE = "release"
    QUARANTINE = "quarantine"


class Abort(Lifecycle):
    """Ends an update without a commit: by its learner before UpdateStarted, or by an operator at any time."""

    learner: LearnerRef | None = Field(default=None, description="Its learner; none: an operator.")
    update_id: Id = Field(description="The update.")
    reason: AbortReason = Field(description="update_failed or operator.")
    text: Text = Field(default="", description="Free text for people.")
    disposition: AbortDisposition = Field(description="release or quarantine.")

    @model_validator(mode="after")
    def _operator_has_no_learner(self) -> Self:
        if (self.learner is None) != (self.reason is AbortReason.OPERATOR):
            raise ValueError("reason: operator exactly when no learner is named")
        if self.learner is None and self.header.source.kind is not SourceKind.OPERATOR:
            raise ValueError("header.source.kind: operator, where no learner is named")
        return self
