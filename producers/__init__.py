"""Clients that publish the lifecycle: rollout worker, reward service, trainer, weight coordinator.

with Trainer(settings, run_id, "learner-0") as trainer:
    trainer.start()
    with trainer.update(rollout_id=0) as update:
        update.claim(policy, max_groups=8, wait_s=60)
        ...
"""

from rollbook.producers.clients.client import Options
from rollbook.producers.clients.coordinator import Coordinator
from rollbook.producers.clients.reward import Reward, RewardService
from rollbook.producers.clients.rollout import RolloutWorker
from rollbook.producers.clients.segments import SegmentArrays
from rollbook.producers.clients.trainer import OnUnavailable, Trainer
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
from rollbook.producers.identity import new_id, new_identity
from rollbook.producers.observing.facts import ObservedRow
from rollbook.producers.observing.observed import ObservedUpdate
from rollbook.producers.observing.trainer import ObservingTrainer
from rollbook.producers.reading.epochs import current_epoch
from rollbook.producers.reading.freshness import FreshnessReader
from rollbook.producers.reading.loading import LoadedSegment, LoadedTrajectory
from rollbook.producers.reading.payloads import read_payload
from rollbook.producers.redaction.policy import Redaction, Treatment
from rollbook.producers.sending.outbox import Counters
from rollbook.producers.updates.handle import UpdateHandle
from rollbook.producers.updates.phase import Phase
from rollbook.producers.updates.recording import RowArrays, StepArrays
from rollbook.producers.updates.update import Update

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
