"""What a client's user does about each reason of a refusal: ONE table."""

from rollbook.processors.reasons import Reason

RELOAD = (
    "the weights in this process are not the learner's any more: export nothing and exit; the process that takes over "
    "reloads the weights of the learner's last checkpoint"
)
_FIRST_STANDS = "leave it: the first one stands; new content needs a new trajectory, update part or version"
_TAKE_OTHERS = "leave the row to another update and claim what is free"

REMEDY: dict[Reason, str] = {
    # record
    Reason.CONTRACT_VIOLATION: "correct the field that the detail names, and use clients of the run's rollbook version",
    Reason.WRONG_PARTITION: "publish through rollbook's clients, and never change the partitions of lifecycle",
    Reason.CONFLICT: _FIRST_STANDS,
    Reason.PENDING_FULL: "publish what the waiting facts are about, or raise max_pending with a new RunConfigured",
    Reason.ILLEGAL_TRANSITION: "see what became of it with `rollbook explain`, and leave it as it is",
    # run
    Reason.RUN_NOT_CONFIGURED: "have the coordinator configure the run first (Coordinator.configure), or correct the "
    "run id and topic prefix",
    Reason.RUN_CLOSED: "use a run of another id",
    Reason.CONFIG_VERSION_NOT_RISING: "configure with a version above the one in force (`decision.config_version`)",
    Reason.FOLD_VERSION_FALLS: "configure with the fold_version in force (`decision.fold_version`) or a higher one",
    Reason.PARTITION_COUNT_CHANGED: "configure with the partition count of the lifecycle topic, which never changes",
    Reason.ENFORCEMENT_CHANGED: "keep the run's enforcement, or use a run of another id",
    Reason.INITIAL_POLICY_CHANGED: "keep the run's initial policy, or use a run of another id",
    # generation
    Reason.CONTRACT_HASH_MISMATCH: "register with RolloutWorker.register_contract, which computes the hash",
    Reason.UNREGISTERED_CONTRACT: "call RolloutWorker.register_contract first, and cite the hash that it returns",
    Reason.CONTRACT_NOT_PINNED: "generate under a pinned contract, or pin this one with a new RunConfigured",
    Reason.BEYOND_HORIZON: "drop the trajectory, and generate with a newer policy",
    Reason.BACKLOG_FULL: "train on or discard what waits, slow generation down, or raise max_live",
    # reward
    Reason.REWARD_NOT_PINNED: "reward by a pinned rule, or pin this one with a new RunConfigured",
    # admission
    Reason.MISSING_ROLLOUT: "see that its Generated was published in this run and accepted (`rollbook explain`)",
    Reason.REVISION_CONFLICT: "reserve it at the revision that the decision's item names (revision_after), or claim",
    Reason.NOT_REWARDED: "wait for its reward if it is generated; otherwise " + _TAKE_OTHERS,
    Reason.EVAL_ONLY: "train on trajectories of purpose train only",
    Reason.UNKNOWN_POLICY: "prepare the policy first (Coordinator.prepare), and name it by version and artifact hash",
    Reason.POLICY_NOT_ACTIVE: "activate the policy that wrote it first (Coordinator.activate), or discard the row",
    Reason.FUTURE_POLICY: "reserve it with the learner's newest policy, once that has caught up",
    Reason.STALE_POLICY: "discard it, or raise max_lag with a new RunConfigured",
    Reason.ALL_OR_NONE: "leave the refused rows out, or reserve with mode available",
    Reason.NOTHING_TAKEN: "claim again when more is rewarded, or claim(..., wait_s=...) to wait for it",
    Reason.UPDATE_FULL: "train on what is held, and take the rest in the next update",
    Reason.NOT_RESERVED: "admit only what update.held lists",
    Reason.EVIDENCE_MISMATCH: "compute the figures on the masks and log-probs that update.load() returns",
    Reason.EMPTY_ACTION_MASK: "discard the row: it has nothing to train on",
    Reason.POLICY_DRIFT: "train on the other rows: generate with a newer policy, or see why the engines differ",
    Reason.ORDINAL_MISMATCH: "admit with the own_updates that the ledger knows; with more, start the learner anew",
    # update
    Reason.EPOCH_CONFLICT: "exit; whoever takes over expects the current epoch (current_epoch)",
    Reason.UNKNOWN_CHECKPOINT: "start from a checkpoint whose CheckpointSaved was accepted, by its id and digest",
    Reason.FOREIGN_CHECKPOINT: "start from a checkpoint of this learner",
    Reason.CHECKPOINT_ORPHANED: "start from an earlier checkpoint, or from none",
    Reason.NOT_COMMITTED: "save only what the ledger knows as committed; otherwise start the learner anew",
    Reason.LEARNER_FENCED: RELOAD,
    Reason.UPDATE_ENDED: "train on nothing of it, and make a new update",
    Reason.NOT_HOLDER: "reserve with this update first, from the process that holds it",
    Reason.UNKNOWN_UPDATE: "correct the update id (`rollbook ledger` lists those that are open)",
    Reason.UPDATE_STARTED: "take further rows in the next update",
    Reason.OTHER_STARTED: "commit the update that is started first: a learner trains on one at a time",
    Reason.NOT_STARTED: "call update.start() and read its decision first",
    Reason.NOT_HELD: "name exactly what the update holds, as update.step and update.drop do",
    Reason.NOT_ADMITTED: "train only on rows whose Admit was ok, or configure the run with drift_gate off",
    Reason.UPDATE_IN_DOUBT: "export nothing, exit, and start the learner anew, which ends the update",
    Reason.NO_LEASE: "renew nothing, or configure the run with lease_ms",
    Reason.LEASE_RENEWED: "nothing is to be done: the update lives",
    # artifact
    Reason.UNKNOWN_PARENT: "prepare the parent policy first, or name the version of one that is prepared",
    Reason.UNKNOWN_ROLLBACK: "roll back to a version that is prepared",
    Reason.ARTIFACT_MISMATCH: "use a new version for new weights: the first artifact hash of a version stands",
    Reason.ARTIFACT_NOT_COMMITTED: "write the artifact whole and say so (Coordinator.committed) first",
    Reason.POLICY_ABANDONED: "prepare a new version",
    Reason.POLICY_ORPHANED: "prepare a new version from weights that contain standing updates only",
    # distribution
    Reason.STALE_ACK: "nothing is to be done; start a worker anew with a higher incarnation",
    Reason.MISSING_WORKER_ACK: "have `decision.missing_workers` report what they serve, or wait_for_acks_s",
    Reason.WORKER_MISMATCH: "have `decision.mismatched_workers` load the policy and report it, or wait_for_acks_s",
    # activation
    Reason.UNKNOWN_VERSION: "prepare the version with this artifact hash first (Coordinator.prepare)",
    Reason.WRONG_EXPECTED: "look at the active policy (`decision.active_policy`), and decide again from there",
    Reason.NON_MONOTONIC_VERSION: "prepare a version above the active one; a roll-back is a new version (rollback_of)",
    Reason.POLICY_ACTIVE: "activate another policy first",
    Reason.UPDATE_NOT_COMMITTED: "commit the update first; if it ended otherwise, prepare a version without it",
}
"""What to do, for every reason that a record or one of its items can be refused for."""


def remedy_of(reason: str) -> str:
    """What to do about it; for a reason of newer rules than ours, where to look."""
    known = reason in Reason.__members__.values()
    return REMEDY.get(Reason(reason), "") if known else "see the reference of reasons of the processor's version"
