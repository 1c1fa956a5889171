"""The four rules as public pure functions, composed of the gates that the fold calls."""

import math
from collections.abc import Mapping, MutableMapping, Sequence
from typing import TypedDict

from rollbook.processors.gates import (
    Held,
    abs_log_ratio,
    ack_gate,
    artifact_gate,
    drift_gate,
    freshness_of,
    lag_gate,
    reserve_gate,
)
from rollbook.processors.lifecycle import next_state
from rollbook.processors.reasons import Reason


class Assessment(TypedDict):
    """Answer of `assess_policy_compatibility`."""

    accepted: bool
    reason: str
    freshness: str | None
    mean_abs_log_ratio: float | None


class RolloutRecord(TypedDict):
    """A ledger entry as `compare_and_reserve` knows it."""

    lifecycle_state: str
    revision: int
    reserved_by: str | None


class Reservation(TypedDict):
    """Answer of `compare_and_reserve`."""

    reserved: bool
    reason: str
    record: RolloutRecord | None


class Pointer(TypedDict):
    """A policy by version and hash."""

    version: int
    artifact_hash: str


class ArtifactState(Pointer):
    """A policy and whether it is written whole."""

    committed: bool


class Activation(TypedDict):
    """Answer of `activate_policy_version`."""

    activated: bool
    reason: str
    active_pointer: Pointer | None
    missing_workers: list[str]
    mismatched_workers: list[str]


def transition_lifecycle(state: str, event: str) -> str:
    """The state after the event. ValueError for a pair that the table does not list."""
    return next_state(state, event).value


def assess_policy_compatibility(
    old_log_probs: Sequence[float],
    current_log_probs: Sequence[float],
    action_mask: Sequence[bool],
    behavior_version: int,
    current_version: int,
    max_lag: int,
    max_mean_abs_log_ratio: float,
) -> Assessment:
    """Judge one trajectory by version lag, then by drift.

    `old_log_probs`, `current_log_probs`: nats, length T. `action_mask`: T bools; only active positions are looked at.
    Drift = mean over active positions of |current - old| in float64 by exactly rounded summation; it is reported for
    refused trajectories too. ValueError: a version that is not a non-negative int, a negative max_lag, a threshold that
    is negative or not finite, unequal lengths, a mask element that is not a bool, a non-finite active log-prob.
    """
    _version("behavior_version", behavior_version)
    _version("current_version", current_version)
    _version("max_lag", max_lag)
    if isinstance(max_mean_abs_log_ratio, bool) or not math.isfinite(max_mean_abs_log_ratio):
        raise ValueError(f"max_mean_abs_log_ratio is {max_mean_abs_log_ratio}: it must be finite and not negative")
    if max_mean_abs_log_ratio < 0:
        raise ValueError(f"max_mean_abs_log_ratio is {max_mean_abs_log_ratio}: it must not be negative")
    active, total, _ = abs_log_ratio(old_log_probs, current_log_probs, action_mask)
    if not active:
        return Assessment(
            accepted=False, reason=Reason.EMPTY_ACTION_MASK.value, freshness=None, mean_abs_log_ratio=None
        )
    ratio = total / active
    freshness = freshness_of(current_version - behavior_version, max_lag)
    refusal = lag_gate(freshness) or drift_gate(ratio, max_mean_abs_log_ratio)
    return Assessment(
        accepted=refusal is None,
        reason=(refusal or Reason.OK).value,
        freshness=freshness.value,
        mean_abs_log_ratio=ratio,
    )


def compare_and_reserve(
    ledger: MutableMapping[str, RolloutRecord], rollout_id: str, expected_revision: int, update_id: str
) -> Reservation:
    """Reserve one trajectory for an update by compare-and-set on its revision; `rollout_id` is the trajectory here.

    The entry is replaced as a whole on success and untouched otherwise; the record returned is a copy. ValueError: an
    empty update_id.
    """
    if not update_id:
        raise ValueError("update_id is empty: name the update that reserves")
    entry = ledger.get(rollout_id)
    if entry is None:
        return Reservation(reserved=False, reason=Reason.MISSING_ROLLOUT.value, record=None)
    held = Held(entry["lifecycle_state"], entry["revision"], entry["reserved_by"])
    refusal = reserve_gate(held, expected_revision, update_id)
    if refusal is not None:
        retried = refusal is Reason.IDEMPOTENT_RETRY
        return Reservation(reserved=retried, reason=refusal.value, record=RolloutRecord(**entry))
    reserved = RolloutRecord(**entry)
    reserved["lifecycle_state"] = transition_lifecycle(entry["lifecycle_state"], "reserve")
    reserved["revision"] = entry["revision"] + 1
    reserved["reserved_by"] = update_id
    ledger[rollout_id] = reserved
    return Reservation(reserved=True, reason=Reason.RESERVED.value, record=RolloutRecord(**reserved))


def activate_policy_version(
    active_pointer: Pointer | None,
    artifact: ArtifactState,
    worker_states: Mapping[str, Pointer],
    required_workers: Sequence[str],
) -> Activation:
    """Move the active pointer to an artifact that is whole, newer, and served by every required worker.

    First refusal wins: artifact_not_committed, non_monotonic_version, missing_worker_ack, worker_mismatch; the pointer
    is then an unchanged copy. ValueError: versions that are not non-negative ints, an empty hash, a worker twice.
    """
    pointers = [artifact, *worker_states.values(), *([active_pointer] if active_pointer is not None else [])]
    for pointer in pointers:
        _version("version", pointer["version"])
        if not isinstance(pointer["artifact_hash"], str) or not pointer["artifact_hash"]:
            raise ValueError("artifact_hash is empty: name the weights by their hash")
    if len(set(required_workers)) != len(required_workers):
        raise ValueError("required_workers names a worker twice")
    unchanged = None if active_pointer is None else _pointer(active_pointer)
    active_version = None if active_pointer is None else active_pointer["version"]
    serves = {worker: (state["version"], state["artifact_hash"]) for worker, state in worker_states.items()}
    refusal = artifact_gate(artifact["committed"] is True, artifact["version"], active_version)
    missing: tuple[str, ...] = ()
    mismatched: tuple[str, ...] = ()
    if refusal is None:
        wanted = (artifact["version"], artifact["artifact_hash"])
        refusal, missing, mismatched = ack_gate(wanted, serves, required_workers)
    return Activation(
        activated=refusal is None,
        reason=(refusal or Reason.ACTIVATED).value,
        active_pointer=_pointer(artifact) if refusal is None else unchanged,
        missing_workers=list(missing),
        mismatched_workers=list(mismatched),
    )


def _pointer(of: Pointer) -> Pointer:
    return Pointer(version=of["version"], artifact_hash=of["artifact_hash"])


def _version(name: str, value: object) -> None:
    if isinstance(value, bool) or not isinstance(value, int) or value < 0:
        raise ValueError(f"{name} is {value!r}: it must be a non-negative int")
