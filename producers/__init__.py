"""Clients that publish the lifecycle: rollout worker, reward service, trainer, weight coordinator.

with Trainer(settings, run_id, "learner-0") as trainer:
    trainer.start()
    with trainer.update(rollout_id=0) as update:
        update.claim(policy, max_groups=8, wait_s=60)
        ...
"""

from rollbook.producers.client import Options
from rollbook.producers.coordinator import Coordinator
from rollbook.producers.epochs import current_epoch
from rollbook.producers.errors import (
    ClientBroken,
    ClientClosed,
    DecisionTimeout,
    DeliveryFailed,
    EpochConflict,
    ForkedClient,
    LearnerFenced,
    NothingTaken,
    NotTrainable,
    OutOfOrder,
    PayloadLost,
    QueueFull,
    Refused,
    StartAnew,
    UpdateEnded,
    UpdateInDoubt,
    WrongEnforcement,
)
from rollbook.producers.facts import ObservedRow
from rollbook.producers.freshness import FreshnessReader
from rollbook.producers.handle import UpdateHandle
from rollbook.producers.identity import new_id, new_identity
from rollbook.producers.loading import LoadedSegment, LoadedTrajectory
from rollbook.producers.observed import ObservedUpdate
from rollbook.producers.observing import ObservingTrainer
from rollbook.producers.outbox import Counters
from rollbook.producers.payloads import read_payload
from rollbook.producers.phase import Phase
from rollbook.producers.recording import RowArrays, StepArrays
from rollbook.producers.redaction import Redaction, Treatment
from rollbook.producers.reward import Reward, RewardService
from rollbook.producers.rollout import RolloutWorker
from rollbook.producers.segments import SegmentArrays
from rollbook.producers.trainer import OnUnavailable, Trainer
from rollbook.producers.update import Update

__all__ = [
    "ClientBroken",
    "ClientClosed",
    "Coordinator",
    "Counters",
    "DecisionTimeout",
    "DeliveryFailed",
    "EpochConflict",
    "ForkedClient",
    "FreshnessReader",
    "LearnerFenced",
    "LoadedSegment",
    "LoadedTrajectory",
    "NotTrainable",
    "NothingTaken",
    "ObservedRow",
    "ObservedUpdate",
    "ObservingTrainer",
    "OnUnavailable",
    "Options",
    "OutOfOrder",
    "PayloadLost",
    "Phase",
    "QueueFull",
    "Redaction",
    "Refused",
    "Reward",
    "RewardService",
    "RolloutWorker",
    "RowArrays",
    "SegmentArrays",
    "StartAnew",
    "StepArrays",
    "Trainer",
    "Treatment",
    "Update",
    "UpdateEnded",
    "UpdateHandle",
    "UpdateInDoubt",
    "WrongEnforcement",
    "current_epoch",
    "new_id",
    "new_identity",
    "read_payload",
]
