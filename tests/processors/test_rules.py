"""The four public rules against their published contract: every published case is a line."""

import copy
import math
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from rollbook.processors import (
    activate_policy_version,
    assess_policy_compatibility,
    compare_and_reserve,
    transition_lifecycle,
)
from rollbook.processors.rules import ArtifactState, Pointer, RolloutRecord

NAN = math.nan
OLD = [-0.2, -0.2, -9.0]
NEAR = [-0.21, -0.19, 9.0]
FAR = [-0.8, -0.7, 9.0]
ACTIVE = [True, True, False]
NONE_ACTIVE = [False, False, False]


@pytest.mark.parametrize(
    ("state", "event", "after"),
    [
        ("generated", "reward_ready", "rewarded"),
        ("rewarded", "reserve", "reserved"),
        ("reserved", "commit", "consumed"),
        ("reserved", "abort", "rewarded"),
    ],
)
def test_published_transitions(state: str, event: str, after: str) -> None:
    assert transition_lifecycle(state, event) == after


@pytest.mark.parametrize(
    ("state", "event"),
    [("generated", "reserve"), ("rewarded", "commit"), ("consumed", "reserve"), ("nowhere", "commit"), ("none", "")],
)
def test_published_illegal_transitions(state: str, event: str) -> None:
    with pytest.raises(ValueError, match="illegal transition"):
        transition_lifecycle(state, event)


@pytest.mark.parametrize(
    ("current", "mask", "behavior", "learner", "accepted", "reason", "freshness", "ratio"),
    [
        (NEAR, ACTIVE, 3, 3, True, "ok", "fresh", 0.01),
        (NEAR, ACTIVE, 2, 3, True, "ok", "tolerated", 0.01),
        (NEAR, ACTIVE, 1, 3, False, "stale_policy", "stale", 0.01),
        (NEAR, ACTIVE, 4, 3, False, "future_policy", "future", 0.01),
        (FAR, ACTIVE, 3, 3, False, "policy_drift", "fresh", 0.55),
        (FAR, ACTIVE, 2, 3, False, "policy_drift", "tolerated", 0.55),
        (FAR, ACTIVE, 1, 3, False, "stale_policy", "stale", 0.55),
        (NEAR, NONE_ACTIVE, 3, 3, False, "empty_action_mask", None, None),
        (NEAR, NONE_ACTIVE, 1, 3, False, "empty_action_mask", None, None),
    ],
)
def test_published_assessments(
    current: list[float],
    mask: list[bool],
    behavior: int,
    learner: int,
    accepted: bool,
    reason: str,
    freshness: str | None,
    ratio: float | None,
) -> None:
    answer = assess_policy_compatibility(OLD, current, mask, behavior, learner, 1, 0.05)
    assert answer == {
        "accepted": accepted,
        "reason": reason,
        "freshness": freshness,
        "mean_abs_log_ratio": ratio if ratio is None else pytest.approx(ratio),
    }


@pytest.mark.parametrize(
    ("wrong", "problem"),
    [
        ({"old": [NAN, -0.2], "current": [-0.2, -0.2], "mask": [True, True]}, "position 0 is not finite"),
        ({"old": [-0.2], "current": [-math.inf], "mask": [True]}, "position 0 is not finite"),
        ({"old": [NAN], "current": [-0.2], "mask": [True], "behavior": 0, "learner": 9}, "not finite"),
        ({"behavior": -1}, "behavior_version"),
        ({"behavior": True}, "behavior_version"),
        ({"behavior": 3.0}, "behavior_version"),
        ({"learner": -1}, "current_version"),
        ({"learner": False}, "current_version"),
        ({"max_lag": -1}, "max_lag"),
        ({"limit": -0.1}, "max_mean_abs_log_ratio"),
        ({"limit": NAN}, "max_mean_abs_log_ratio"),
        ({"limit": math.inf}, "max_mean_abs_log_ratio"),
        ({"limit": True}, "max_mean_abs_log_ratio"),
        ({"limit": -math.inf}, "must be finite and not negative"),
        ({"limit": -0.1, "mask": NONE_ACTIVE}, "must not be negative"),
        ({"old": [-0.2, -0.2]}, "unequal lengths"),
        ({"current": [-0.2, -0.2]}, "unequal lengths"),
        ({"mask": [True, True]}, "unequal lengths"),
        ({"mask": [True, 1, False]}, "must be a bool"),
        ({"mask": [True, True, 0]}, "must be a bool"),
    ],
)
def test_assessment_refuses_bad_input(wrong: dict[str, Any], problem: str) -> None:
    call: dict[str, Any] = {
        "old": OLD,
        "current": NEAR,
        "mask": ACTIVE,
        "behavior": 3,
        "learner": 3,
        "max_lag": 1,
        "limit": 0.05,
    }
    with pytest.raises(ValueError, match=problem):
        assess_policy_compatibility(*(call | wrong).values())


def test_masked_positions_may_hold_anything() -> None:
    assert assess_policy_compatibility([NAN, -1.0], [math.inf, -1.0], [False, True], 0, 0, 0, 0.0)["accepted"]


@pytest.mark.parametrize(("limit", "reason"), [(0.5, "ok"), (0.49, "policy_drift")])
def test_the_limit_itself_is_admitted(limit: float, reason: str) -> None:
    assert assess_policy_compatibility([-1.0], [-0.5], [True], 0, 0, 0, limit)["reason"] == reason


def test_a_distance_beyond_float64_is_drift() -> None:
    far = assess_policy_compatibility([-1.7e308] * 3, [1.7e308] * 3, [True] * 3, 0, 0, 0, 1.0)
    assert (far["reason"], far["mean_abs_log_ratio"]) == ("policy_drift", math.inf)
    summed = assess_policy_compatibility([-1.7e308] * 3, [0.0] * 3, [True] * 3, 0, 0, 0, 1.0)
    assert summed["reason"] == "policy_drift"


@given(st.lists(st.floats(-1e6, 0.0), min_size=2, max_size=30), st.randoms(use_true_random=False))
def test_drift_does_not_depend_on_the_order_of_tokens(old: list[float], shuffle: Any) -> None:
    pairs = [(before, before / 3) for before in old]
    shuffled = pairs[:]
    shuffle.shuffle(shuffled)
    first, second = (
        assess_policy_compatibility([b for b, _ in order], [c for _, c in order], [True] * len(order), 0, 0, 0, 1.0)
        for order in (pairs, shuffled)
    )
    assert first == second


def test_seven_of_eight_equally_old_trajectories_pass_the_drift_gate() -> None:
    drifts = [0.01, 0.02, 0.05, 0.08, 0.1, 0.15, 0.199, 3.60039]
    answers = [assess_policy_compatibility([-4.0], [drift - 4.0], [True], 2, 3, 1, 0.2) for drift in drifts]
    assert [answer["accepted"] for answer in answers] == [True] * 7 + [False]
    assert answers[-1]["reason"] == "policy_drift"


def _ledger(state: str = "rewarded", revision: int = 7, holder: str | None = None) -> dict[str, RolloutRecord]:
    return {"r-1": RolloutRecord(lifecycle_state=state, revision=revision, reserved_by=holder)}


@pytest.mark.parametrize(
    ("ledger", "asked", "expected", "update", "reserved", "reason", "revision"),
    [
        (_ledger(), "r-1", 7, "update-a", True, "reserved", 8),
        (_ledger("reserved", 8, "update-a"), "r-1", 7, "update-b", False, "revision_conflict", 8),
        (_ledger("reserved", 8, "update-a"), "r-1", 8, "update-b", False, "not_rewarded", 8),
        (_ledger("reserved", 8, "update-a"), "r-1", 7, "update-a", True, "idempotent_retry", 8),
        (_ledger("reserved", 8, "update-a"), "r-1", 99, "update-a", True, "idempotent_retry", 8),
        (_ledger("consumed", 9, "update-a"), "r-1", 9, "update-a", False, "not_rewarded", 9),
        (_ledger("consumed", 9, "update-a"), "r-1", 8, "update-a", False, "revision_conflict", 9),
        (_ledger("generated", 1), "r-1", 1, "update-a", False, "not_rewarded", 1),
        (_ledger(), "r-2", 7, "update-a", False, "missing_rollout", None),
    ],
)
def test_published_reservations(
    ledger: dict[str, RolloutRecord],
    asked: str,
    expected: int,
    update: str,
    reserved: bool,
    reason: str,
    revision: int | None,
) -> None:
    before = copy.deepcopy(ledger)
    answer = compare_and_reserve(ledger, asked, expected, update)
    assert (answer["reserved"], answer["reason"]) == (reserved, reason)
    assert (answer["record"] and answer["record"]["revision"]) == revision
    if reason == "reserved":
        assert ledger["r-1"] == RolloutRecord(lifecycle_state="reserved", revision=8, reserved_by="update-a")
    else:
        assert ledger == before


def test_a_reservation_replaces_the_entry_and_returns_a_copy() -> None:
    ledger = _ledger()
    old = ledger["r-1"]
    answer = compare_and_reserve(ledger, "r-1", 7, "update-a")
    assert old == {"lifecycle_state": "rewarded", "revision": 7, "reserved_by": None}
    for _ in range(2):  # the answer of the reservation, then that of its retry
        assert answer["record"] is not None
        answer["record"]["revision"] = 99
        assert ledger["r-1"]["revision"] == 8
        answer = compare_and_reserve(ledger, "r-1", 7, "update-a")


def test_a_reservation_without_an_update_is_a_mistake_of_the_caller() -> None:
    with pytest.raises(ValueError, match="update_id is empty"):
        compare_and_reserve({}, "r-1", 7, "")


V1 = Pointer(version=1, artifact_hash="h1")
V2 = Pointer(version=2, artifact_hash="h2")


def _artifact(version: int = 2, artifact_hash: str = "h2", committed: Any = True) -> ArtifactState:
    return ArtifactState(version=version, artifact_hash=artifact_hash, committed=committed)


@pytest.mark.parametrize(
    ("active", "artifact", "workers", "required", "reason", "missing", "mismatched"),
    [
        (V1, _artifact(), {"a": V2, "b": V2}, ["b", "a"], "activated", [], []),
        (V1, _artifact(), {}, [], "activated", [], []),
        (None, _artifact(), {"a": V2}, ["a"], "activated", [], []),
        (V1, _artifact(committed=False), {}, ["a"], "artifact_not_committed", [], []),
        (V1, _artifact(committed=1), {}, [], "artifact_not_committed", [], []),
        (V2, _artifact(1, "h1", committed=False), {}, [], "artifact_not_committed", [], []),
        (V2, _artifact(), {}, ["a"], "non_monotonic_version", [], []),
        (V2, _artifact(1, "h1"), {"a": V1}, ["a"], "non_monotonic_version", [], []),
        (V1, _artifact(), {"b": V1}, ["c", "a"], "missing_worker_ack", ["a", "c"], []),
        (V1, _artifact(), {"c": V1, "b": V1, "a": V2}, ["c", "b", "a"], "worker_mismatch", [], ["b", "c"]),
        (V1, _artifact(), {"a": Pointer(version=2, artifact_hash="h?")}, ["a"], "worker_mismatch", [], ["a"]),
        (V1, _artifact(), {"a": V2, "stranger": V1}, ["a"], "activated", [], []),
    ],
)
def test_published_activations(
    active: Pointer | None,
    artifact: ArtifactState,
    workers: dict[str, Pointer],
    required: list[str],
    reason: str,
    missing: list[str],
    mismatched: list[str],
) -> None:
    before = copy.deepcopy((active, artifact, workers, required))
    answer = activate_policy_version(active, artifact, workers, required)
    assert (answer["reason"], answer["missing_workers"], answer["mismatched_workers"]) == (reason, missing, mismatched)
    assert answer["activated"] is (reason == "activated")
    assert answer["active_pointer"] == (V2 if answer["activated"] else active)
    assert answer["active_pointer"] is not active or active is None
    assert (active, artifact, workers, required) == before


def test_missing_reports_come_before_wrong_ones() -> None:
    assert activate_policy_version(V1, _artifact(), {"b": V1}, ["a", "b"])["reason"] == "missing_worker_ack"


@pytest.mark.parametrize(
    ("active", "artifact", "workers", "required", "problem"),
    [
        (V1, _artifact(-1), {}, [], "non-negative int"),
        (V1, _artifact(True), {}, [], "non-negative int"),
        (Pointer(version=-1, artifact_hash="h"), _artifact(), {}, [], "non-negative int"),
        (V1, _artifact(), {"a": Pointer(version=-1, artifact_hash="h")}, [], "non-negative int"),
        (V1, _artifact(2, ""), {}, [], "artifact_hash is empty"),
        (Pointer(version=1, artifact_hash=""), _artifact(), {}, [], "artifact_hash is empty"),
        (V1, _artifact(), {"a": Pointer(version=2, artifact_hash="")}, ["a"], "artifact_hash is empty"),
        (V1, _artifact(), {}, ["a", "b", "a"], "twice"),
        (V2, _artifact(1, "h1", committed=False), {}, ["a", "a"], "twice"),
        (V1, _artifact(2, ""), {}, ["a", "a"], "artifact_hash is empty"),
    ],
)
def test_activation_refuses_bad_input(
    active: Pointer | None, artifact: ArtifactState, workers: dict[str, Pointer], required: list[str], problem: str
) -> None:
    with pytest.raises(ValueError, match=problem):
        activate_policy_version(active, artifact, workers, required)
