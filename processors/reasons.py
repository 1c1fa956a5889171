"""Every reason that a decision or one of its items can carry: ONE table, by the stage that gives it, with its meaning.

One enum with a stage, and not an enum a stage: a decision has one field for its reason, whatever the stage.
"""

from dataclasses import dataclass
from enum import StrEnum


class Stage(StrEnum):
    """The stages of the pipeline."""

    RECORD = "record"
    RUN = "run"
    GENERATION = "generation"
    REWARD = "reward"
    ADMISSION = "admission"
    UPDATE = "update"
    ARTIFACT = "artifact"
    DISTRIBUTION = "distribution"
    ACTIVATION = "activation"


@dataclass(frozen=True, slots=True)
class Meaning:
    """What a reason says, and the stage whose rule gives it."""

    stage: Stage
    text: str


class Reason(StrEnum):
    """Why a record, or one of its items, was decided as it was."""

    # record
    OK = "ok"
    UNDECODABLE = "undecodable"
    CONTRACT_VIOLATION = "contract_violation"
    WRONG_PARTITION = "wrong_partition"
    DUPLICATE = "duplicate"
    CONFLICT = "conflict"
    PENDING = "pending"
    PENDING_FULL = "pending_full"
    ILLEGAL_TRANSITION = "illegal_transition"
    # run
    RUN_NOT_CONFIGURED = "run_not_configured"
    RUN_CLOSED = "run_closed"
    CONFIG_VERSION_NOT_RISING = "config_version_not_rising"
    FOLD_VERSION_FALLS = "fold_version_falls"
    PARTITION_COUNT_CHANGED = "partition_count_changed"
    ENFORCEMENT_CHANGED = "enforcement_changed"
    INITIAL_POLICY_CHANGED = "initial_policy_changed"
    # generation
    CONTRACT_HASH_MISMATCH = "contract_hash_mismatch"
    UNREGISTERED_CONTRACT = "unregistered_contract"
    CONTRACT_NOT_PINNED = "contract_not_pinned"
    DISPATCHED = "dispatched"
    LATE_DISPATCH = "late_dispatch"
    BEYOND_HORIZON = "beyond_horizon"
    BACKLOG_FULL = "backlog_full"
    GENERATED = "generated"
    GENERATION_FAILED = "generation_failed"
    # reward
    REWARD_NOT_PINNED = "reward_not_pinned"
    REWARD_FAILED = "reward_failed"
    REWARDED = "rewarded"
    DISCARDED = "discarded"
    QUARANTINED = "quarantined"
    # admission
    MISSING_ROLLOUT = "missing_rollout"
    IDEMPOTENT_RETRY = "idempotent_retry"
    REVISION_CONFLICT = "revision_conflict"
    NOT_REWARDED = "not_rewarded"
    EVAL_ONLY = "eval_only"
    UNKNOWN_POLICY = "unknown_policy"
    POLICY_NOT_ACTIVE = "policy_not_active"
    FUTURE_POLICY = "future_policy"
    STALE_POLICY = "stale_policy"
    RESERVED = "reserved"
    ALL_OR_NONE = "all_or_none"
    NOTHING_TAKEN = "nothing_taken"
    UPDATE_FULL = "update_full"
    NOT_RESERVED = "not_reserved"
    EVIDENCE_MISMATCH = "evidence_mismatch"
    EMPTY_ACTION_MASK = "empty_action_mask"
    POLICY_DRIFT = "policy_drift"
    ORDINAL_MISMATCH = "ordinal_mismatch"
    # update
    EPOCH_CONFLICT = "epoch_conflict"
    UNKNOWN_CHECKPOINT = "unknown_checkpoint"
    FOREIGN_CHECKPOINT = "foreign_checkpoint"
    CHECKPOINT_ORPHANED = "checkpoint_orphaned"
    NOT_COMMITTED = "not_committed"
    LEARNER_FENCED = "learner_fenced"
    UPDATE_ENDED = "update_ended"
    NOT_HOLDER = "not_holder"
    UNKNOWN_UPDATE = "unknown_update"
    UPDATE_STARTED = "update_started"
    OTHER_STARTED = "other_started"
    NOT_STARTED = "not_started"
    NOT_HELD = "not_held"
    NOT_ADMITTED = "not_admitted"
    UPDATE_IN_DOUBT = "update_in_doubt"
    UPDATE_FAILED = "update_failed"
    NO_LEASE = "no_lease"
    LEASE_RENEWED = "lease_renewed"
    LEASE_EXPIRED = "lease_expired"
    IN_DOUBT = "in_doubt"
    OPERATOR = "operator"
    HELD = "held"
    TRAINED = "trained"
    UNRESERVED = "unreserved"
    TRAINED_TWICE = "trained_twice"
    DROPPED = "dropped"
    RELEASED = "released"
    # artifact
    UNKNOWN_PARENT = "unknown_parent"
    UNKNOWN_ROLLBACK = "unknown_rollback"
    ARTIFACT_MISMATCH = "artifact_mismatch"
    ARTIFACT_NOT_COMMITTED = "artifact_not_committed"
    POLICY_ABANDONED = "policy_abandoned"
    POLICY_ORPHANED = "policy_orphaned"
    # distribution
    STALE_ACK = "stale_ack"
    MISSING_WORKER_ACK = "missing_worker_ack"
    WORKER_MISMATCH = "worker_mismatch"
    # activation
    UNKNOWN_VERSION = "unknown_version"
    WRONG_EXPECTED = "wrong_expected"
    NON_MONOTONIC_VERSION = "non_monotonic_version"
    POLICY_ACTIVE = "policy_active"
    UPDATE_NOT_COMMITTED = "update_not_committed"
    ACTIVATED = "activated"

    @property
    def stage(self) -> Stage:
        """The stage whose rule gives it."""
        return TABLE[self].stage

    @property
    def meaning(self) -> str:
        """What it says, in a sentence."""
        return TABLE[self].text


STAGES: dict[Stage, str] = {
    Stage.RECORD: "Any record: its form and place, and whether it was said before or waits for its turn.",
    Stage.RUN: "The run: its configuration, and whether it is open.",
    Stage.GENERATION: "A trajectory becomes known, or its attempt fails.",
    Stage.REWARD: "A reward arrives or cannot be had; what is filtered out or quarantined.",
    Stage.ADMISSION: "Whether an update may take a trajectory: reservation and drift.",
    Stage.UPDATE: "A learner and its updates: epochs, start, commit, abort, leases, checkpoints.",
    Stage.ARTIFACT: "New weights are prepared and written.",
    Stage.DISTRIBUTION: "Workers load weights and report what they serve.",
    Stage.ACTIVATION: "A policy becomes the active one.",
}
"""What happens at each stage."""

BY_STAGE: dict[Stage, dict[Reason, str]] = {
    Stage.RECORD: {
        Reason.OK: "The record did what it says.",
        Reason.UNDECODABLE: "The bytes are no record of the contract; position and digest are in dead-letters.",
        Reason.CONTRACT_VIOLATION: "A value that the contract refuses; detail names the field.",
        Reason.WRONG_PARTITION: "The record lies in another partition than its run's, or its key names another run.",
        Reason.DUPLICATE: "The same content was accepted before; the first answer stands.",
        Reason.CONFLICT: "Other content was accepted under the same natural key; the first one stands.",
        Reason.PENDING: "A fact that waits for what it is about.",
        Reason.PENDING_FULL: "max_pending facts wait already: the oldest reward gave way, or nothing could.",
        Reason.ILLEGAL_TRANSITION: "The lifecycle table does not list this event for the trajectory's state.",
    },
    Stage.RUN: {
        Reason.RUN_NOT_CONFIGURED: "No RunConfigured was accepted for this run yet.",
        Reason.RUN_CLOSED: "The run is over.",
        Reason.CONFIG_VERSION_NOT_RISING: "config_version must be above the one in force.",
        Reason.FOLD_VERSION_FALLS: "fold_version must not fall within a run.",
        Reason.PARTITION_COUNT_CHANGED: "partition_count is not that of the topic.",
        Reason.ENFORCEMENT_CHANGED: "enforcement never changes within a run.",
        Reason.INITIAL_POLICY_CHANGED: "The initial policy never changes within a run.",
    },
    Stage.GENERATION: {
        Reason.CONTRACT_HASH_MISMATCH: "contract_hash is not the hash of the contract's fields.",
        Reason.UNREGISTERED_CONTRACT: "The generation contract cited was never registered.",
        Reason.CONTRACT_NOT_PINNED: "The run pins generation contracts, and this is none of them.",
        Reason.DISPATCHED: "A generation has begun.",
        Reason.LATE_DISPATCH: "The generation that began is over already; nothing changes.",
        Reason.BEYOND_HORIZON: "A span's version lies below the floor: what was of it is forgotten.",
        Reason.BACKLOG_FULL: "max_live trajectories are live already.",
        Reason.GENERATED: "The trajectory is known now.",
        Reason.GENERATION_FAILED: "The attempt ended without a trajectory; its group no longer waits for it.",
    },
    Stage.REWARD: {
        Reason.REWARD_NOT_PINNED: "The run pins reward identities, and this is none of them.",
        Reason.REWARD_FAILED: "The reward could not be had; that is not a reward of 0.",
        Reason.REWARDED: "The trajectory has its reward now.",
        Reason.DISCARDED: "The trajectory is filtered out.",
        Reason.QUARANTINED: "The trajectory is quarantined: its policy was undone, or is known with another hash.",
    },
    Stage.ADMISSION: {
        Reason.MISSING_ROLLOUT: "No such trajectory.",
        Reason.IDEMPOTENT_RETRY: "This learner, epoch and update hold it already.",
        Reason.REVISION_CONFLICT: "The trajectory changed since the trainer saw it.",
        Reason.NOT_REWARDED: "The trajectory is not in state rewarded.",
        Reason.EVAL_ONLY: "Evaluation trajectories are never trained on.",
        Reason.UNKNOWN_POLICY: "A span's or the learner's policy is not prepared.",
        Reason.POLICY_NOT_ACTIVE: "A span's policy was never activated.",
        Reason.FUTURE_POLICY: "The trajectory's policy is ahead of the learner's.",
        Reason.STALE_POLICY: "The trajectory's policy is more than max_lag behind the learner's.",
        Reason.RESERVED: "Reserved for this update.",
        Reason.ALL_OR_NONE: "It would have passed, but mode all takes every item or none.",
        Reason.NOTHING_TAKEN: "No trajectory passed.",
        Reason.UPDATE_FULL: "The update would hold more than 8,192 rows or outgrow its record: take fewer, admit once.",
        Reason.NOT_RESERVED: "This update does not hold it.",
        Reason.EVIDENCE_MISMATCH: "Active tokens or evidence digest differ from those of Generated.",
        Reason.EMPTY_ACTION_MASK: "No position is active.",
        Reason.POLICY_DRIFT: "The mean |current - behavior| is above the limit.",
        Reason.ORDINAL_MISMATCH: "own_updates is more than the ledger knows of; detail names the ledger's number.",
    },
    Stage.UPDATE: {
        Reason.EPOCH_CONFLICT: "expected_epoch is not the learner's epoch; detail names the current one.",
        Reason.UNKNOWN_CHECKPOINT: "No such checkpoint was accepted.",
        Reason.FOREIGN_CHECKPOINT: "The checkpoint is another learner's.",
        Reason.CHECKPOINT_ORPHANED: "The checkpoint contains an update that was rolled back.",
        Reason.NOT_COMMITTED: "The checkpoint's last update does not stand committed by this learner.",
        Reason.LEARNER_FENCED: "A newer process holds the learner, or an operator fenced it: exit, export nothing.",
        Reason.UPDATE_ENDED: "The update has ended; detail says how. Its id never reopens.",
        Reason.NOT_HOLDER: "The update is unknown, or another learner or epoch holds it.",
        Reason.UNKNOWN_UPDATE: "No such update.",
        Reason.UPDATE_STARTED: "The update is started: nothing can be added to it.",
        Reason.OTHER_STARTED: "Another update of this learner is started; detail names it.",
        Reason.NOT_STARTED: "The update is not started.",
        Reason.NOT_HELD: "Steps and dropped together are not exactly what the update holds; detail names one.",
        Reason.NOT_ADMITTED: "A trained trajectory has no accepted Admit; detail names it.",
        Reason.UPDATE_IN_DOUBT: "The update is started: its rows may be in the weights, its learner must start anew.",
        Reason.UPDATE_FAILED: "The learner ended the update.",
        Reason.NO_LEASE: "The update's configuration has no leases.",
        Reason.LEASE_RENEWED: "The update was renewed after what the lease clerk saw.",
        Reason.LEASE_EXPIRED: "Nothing was heard of the update for longer than its lease: it is aborted.",
        Reason.IN_DOUBT: "Nothing was heard of an update for longer than its lease, and its rows may be in weights.",
        Reason.OPERATOR: "An operator ended the update.",
        Reason.HELD: "The update holds it.",
        Reason.TRAINED: "Trained on.",
        Reason.TRAINED_TWICE: "Another update trained on a row, without a reservation; detail names the row.",
        Reason.UNRESERVED: "The learner went on without the ledger's answer: what it trained on is taken as a fact.",
        Reason.DROPPED: "Held, but not trained on.",
        Reason.RELEASED: "Given back.",
    },
    Stage.ARTIFACT: {
        Reason.UNKNOWN_PARENT: "The parent policy is not prepared.",
        Reason.UNKNOWN_ROLLBACK: "The policy to roll back to is not prepared.",
        Reason.ARTIFACT_MISMATCH: "The version is known with another artifact hash.",
        Reason.ARTIFACT_NOT_COMMITTED: "The artifact is not written whole.",
        Reason.POLICY_ABANDONED: "The policy was abandoned.",
        Reason.POLICY_ORPHANED: "The policy contains an aborted or rolled-back update.",
    },
    Stage.DISTRIBUTION: {
        Reason.STALE_ACK: "A later report of this worker is known.",
        Reason.MISSING_WORKER_ACK: "A required worker has not reported.",
        Reason.WORKER_MISMATCH: "A required worker serves something else.",
    },
    Stage.ACTIVATION: {
        Reason.UNKNOWN_VERSION: "No such version with this artifact hash is prepared.",
        Reason.WRONG_EXPECTED: "Another policy is active than expected; detail names its version.",
        Reason.NON_MONOTONIC_VERSION: "The version is not above the active one.",
        Reason.POLICY_ACTIVE: "The active policy cannot be abandoned.",
        Reason.UPDATE_NOT_COMMITTED: "The policy contains an update that is not committed; detail names it.",
        Reason.ACTIVATED: "The policy is the active one now.",
    },
}
"""What each reason means, under its one stage; the reference page is generated from it."""

TABLE: dict[Reason, Meaning] = {
    reason: Meaning(stage, text) for stage, meanings in BY_STAGE.items() for reason, text in meanings.items()
}
"""The same by reason."""

MEANING: dict[Reason, str] = {reason: found.text for reason, found in TABLE.items()}
"""The meanings alone."""
