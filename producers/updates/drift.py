"""The figures of an `Admit`: how far the learner's policy is from the one that acted. Pure."""

from collections.abc import Mapping
from typing import Protocol

import numpy.typing as npt

from rollbook.processors.gates import abs_log_ratio
from rollbook.producers.arrays import Field, log_probs, reals
from rollbook.producers.errors import OutOfOrder
from rollbook.producers.sending.outbox import PayloadBytes
from rollbook.schemas.codec import encode
from rollbook.schemas.digests import FloatArray, Mask, float32_bytes, log_probs_digest
from rollbook.schemas.records.payload import CurrentLogProbs
from rollbook.schemas.records.update import AdmitItem


class Evidence(Protocol):
    """What was recorded of a trajectory when it acted; arrays [T] over its segments' response tokens in order."""

    @property
    def trajectory_id(self) -> str: ...

    @property
    def evidence_digest(self) -> str: ...

    @property
    def action_mask(self) -> Mask: ...

    @property
    def log_probs(self) -> FloatArray: ...


def admit_items(loaded: Mapping[str, Evidence], current_log_probs: Mapping[str, npt.ArrayLike]) -> list[AdmitItem]:
    """Figures of loaded trajectories. Raises OutOfOrder for one that is not loaded, ContractViolation."""
    items: list[AdmitItem] = []
    for index, (trajectory_id, current) in enumerate(current_log_probs.items()):
        if trajectory_id not in loaded:
            raise OutOfOrder(f"trajectory {trajectory_id} is not loaded: call update.load() before update.admit()")
        items.append(admit_item(Field("Admit", f"items.{index}"), loaded[trajectory_id], current))
    return items


def admit_item(place: Field, trajectory: Evidence, current_log_probs: npt.ArrayLike) -> AdmitItem:
    """Figures of one trajectory from `current_log_probs` [T], its segments' response tokens joined in order.

    Both sides are float32 and compared in float64 (`abs_log_ratio`). Raises ContractViolation for another length, or
    a value at an active position that is no log-prob.
    """
    mask = trajectory.action_mask
    current = log_probs(place / "current_log_probs", current_log_probs, mask)
    active, total, largest = abs_log_ratio(trajectory.log_probs.tolist(), current.tolist(), mask.tolist())
    with place.built_here():
        return AdmitItem(
            trajectory_id=trajectory.trajectory_id,
            active_tokens=active,
            sum_abs_log_ratio=total,
            max_abs_log_ratio=largest,
            evidence_digest=trajectory.evidence_digest,
            current_digest=log_probs_digest(mask, current),
        )


def current_payloads(run_id: str, update_id: str, current_log_probs: Mapping[str, npt.ArrayLike]) -> list[PayloadBytes]:
    """The current log-probs of trajectories as the `payloads` topic carries them, for the audit."""
    place = Field("CurrentLogProbs", "log_probs")
    return [
        PayloadBytes(
            trajectory_id,
            encode(
                CurrentLogProbs(
                    run_id=run_id,
                    update_id=update_id,
                    trajectory_id=trajectory_id,
                    log_probs=float32_bytes(reals(place, current)),
                )
            ),
        )
        for trajectory_id, current in current_log_probs.items()
    ]
