"""The table of record types: which records each topic carries."""

from rollbook.schemas.records import decision, ledger, payload, policy, reward, rollout, run, update
from rollbook.schemas.records.common import Lifecycle
from rollbook.schemas.types import Part

LIFECYCLE: tuple[type[Lifecycle], ...] = (
    run.RunConfigured,
    run.RunClosed,
    run.GenerationContract,
    rollout.Dispatched,
    rollout.Generated,
    rollout.GenerationFailed,
    reward.RewardReady,
    reward.RewardFailed,
    reward.Discarded,
    reward.Quarantine,
    update.LearnerStarted,
    update.Reserve,
    update.Admit,
    update.UpdateStarted,
    update.Commit,
    update.RecordingSealed,
    update.Abort,
    update.Renew,
    update.LeaseExpired,
    update.CheckpointSaved,
    policy.PolicyPrepared,
    policy.PolicyCommitted,
    policy.PolicyAbandoned,
    policy.ActivationAck,
    policy.Activate,
)
PAYLOADS: tuple[type[Part], ...] = (payload.SegmentPayload, payload.CurrentLogProbs, payload.StepRecording)
LEDGER: tuple[type[Part], ...] = (
    ledger.RunHead,
    ledger.RunConfig,
    ledger.ContractState,
    ledger.TrajectoryState,
    ledger.PendingFact,
    ledger.UpdateState,
    ledger.LearnerState,
    ledger.CheckpointState,
    ledger.PolicyState,
    ledger.WorkerState,
    decision.Tally,
    ledger.Position,
)
OTHERS: tuple[type[Part], ...] = (decision.Decision, decision.FreshnessSnapshot, decision.DeadLetter)

RECORDS: tuple[type[Part], ...] = (*LIFECYCLE, *PAYLOADS, *LEDGER, *OTHERS)
