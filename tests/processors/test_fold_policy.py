"""Weights from their preparation to their activation, and the facts that come before it."""

from collections.abc import Callable

import pytest

from rollbook.processors.rules import ArtifactState, Pointer, activate_policy_version
from rollbook.schemas.records.ledger import PolicyState
from rollbook.schemas.records.policy import AckFailure
from rollbook.tests.processors.history import History, says
from rollbook.tests.processors.parts import policy


def opened(*workers: str) -> History:
    """A run whose learner has committed u0 and u1."""
    history = History().opened(workers=workers, max_lag=9)
    history.learner()
    history.ready("t0", "t1", "t2")
    history.trained("u0", "t0").trained("u1", "t1")
    return history


def state(history: History, version: int) -> PolicyState:
    found = history.run.policies.get(version)
    assert found is not None
    return found


def numbers(history: History, version: int) -> tuple[int, int]:
    """Depth and ordinal."""
    return state(history, version).depth, state(history, version).ordinal


# --- preparation


def test_the_initial_policy_is_active_with_depth_and_ordinal_zero() -> None:
    history = opened()
    assert numbers(history, 0) == (0, 0)
    assert history.run.head.active == policy(0)
    assert says(history.prepared(0, parent=1)) == "rejected conflict"


def test_depth_counts_exports_and_ordinal_updates() -> None:
    history = opened()
    history.prepared(1, "u0")
    history.prepared(2)
    history.prepared(5, "u1", parent=2)
    history.prepared(6, "u0", "u1", parent=0)
    assert [numbers(history, version) for version in (1, 2, 5, 6)] == [(1, 1), (2, 1), (3, 2), (1, 2)]


def test_a_rollback_has_the_numbers_and_the_updates_of_what_it_restores() -> None:
    history = opened()
    history.prepared(1, "u0")
    history.prepared(2, "u1")
    history.prepared(3, parent=2, rollback_of=1)
    history.prepared(4, "u1")
    assert [numbers(history, version) for version in (3, 4)] == [(1, 1), (2, 2)]
    history.abort("u9")
    assert not state(history, 3).orphaned
    history.learner()
    assert all(state(history, version).orphaned for version in (1, 2, 3, 4))


def test_a_rollback_is_not_tainted_by_the_parent_it_leaves() -> None:
    history = opened()
    history.abort("u5")
    history.prepared(1, "u5")
    history.prepared(2, parent=1, rollback_of=0)
    assert (state(history, 1).orphaned, state(history, 2).orphaned) == (True, False)
    assert says(history.activate(2)) == "accepted activated"


@pytest.mark.parametrize(
    ("prepare", "answer", "detail"),
    [
        (lambda h: h.prepared(1, "u0"), "duplicate duplicate", ""),
        (lambda h: h.prepared(1, "u1"), "rejected conflict", ""),
        (lambda h: h.prepared(1, "u0", artifact_hash="other"), "rejected conflict", ""),
        (lambda h: h.prepared(1, "u0", committed=False), "rejected conflict", ""),
        (lambda h: h.prepared(3), "rejected unknown_parent", "version 2"),
        (lambda h: h.prepared(3, parent=7), "rejected unknown_parent", "version 7"),
        (lambda h: h.prepared(3, parent=1, rollback_of=2), "rejected unknown_rollback", "version 2"),
        (lambda h: h.prepared(2, "u0"), "rejected conflict", "update u0 is contained in its parent already"),
        (lambda h: h.prepared(2, "never heard of"), "accepted ok", ""),
    ],
)
def test_preparing(prepare: Callable[[History], object], answer: str, detail: str) -> None:
    history = opened()
    history.prepared(1, "u0")
    prepare(history)
    assert (says(history.last), history.last.detail) == (answer, detail)


def test_a_version_known_by_another_hash_quarantines_its_trajectories() -> None:
    history = opened()
    history.generated("early", policy(1, "other"))
    history.ready("right", version=1)
    decision = history.prepared(1)
    assert [(change.predicate, change.first_ids) for change in decision.mass_changes] == [
        ("trajectories quarantined with a tainted policy", ("early",))
    ]
    assert (history.status("early"), history.status("right")) == ("quarantined", "rewarded")


def test_trajectories_of_a_policy_prepared_after_its_undoing_are_quarantined() -> None:
    history = opened()
    history.ready("t9", version=1)
    history.abort("u5")
    history.prepared(1, "u5")
    assert history.status("t9") == "quarantined"


# --- written


def test_an_artifact_is_written_once() -> None:
    history = opened()
    history.prepared(1, committed=False)
    assert says(history.activate(1)) == "rejected artifact_not_committed"
    assert (says(history.written(1, "other")), history.last.detail) == (
        "rejected artifact_mismatch",
        "known as weights-1",
    )
    assert says(history.written(1)) == "accepted ok"
    assert says(history.written(1)) == "duplicate duplicate"
    assert says(history.activate(1)) == "accepted activated"
    assert says(history.written(0)) == "duplicate duplicate"


def test_an_early_written_waits_for_its_policy() -> None:
    history = opened()
    assert says(history.written(1)) == "pending pending"
    early = history.last.source.offset
    assert says(history.written(1)) == "duplicate duplicate"
    assert says(history.written(1, "other")) == "pending pending", "which is right only PolicyPrepared can say"
    decision = history.prepared(1, committed=False)
    assert sorted((done.offset, done.record_type, done.subject_id, done.reason) for done in decision.released) == [
        (early, "PolicyCommitted", "1", "ok"),
        (history.last.source.offset - 1, "PolicyCommitted", "1", "artifact_mismatch"),
    ]
    assert len(history.run.pending) == 0
    assert says(history.activate(1)) == "accepted activated"


def test_an_early_written_of_another_hash_is_released_without_effect() -> None:
    history = opened()
    history.written(1, "other")
    decision = history.prepared(1, committed=False)
    assert [done.reason for done in decision.released] == ["artifact_mismatch"]
    assert says(history.activate(1)) == "rejected artifact_not_committed"
    assert says(history.written(1)) == "accepted ok"


# --- acks


def test_the_highest_report_counts_whatever_the_order() -> None:
    history = opened("w")
    history.prepared(1)
    assert says(history.ack("w", 1, incarnation=1, seq=5)) == "accepted ok"
    assert (says(history.ack("w", 0, incarnation=1, seq=4)), history.last.detail) == (
        "rejected stale_ack",
        "later report 1.5",
    )
    assert says(history.ack("w", 0, incarnation=0, seq=9)) == "rejected stale_ack"
    assert says(history.ack("w", 1, incarnation=1, seq=5)) == "duplicate duplicate"
    assert says(history.ack("w", 0, incarnation=1, seq=5)) == "rejected conflict"
    assert says(history.activate(1)) == "accepted activated"
    assert says(history.ack("w", 0, incarnation=2, seq=0)) == "accepted ok", "a new start counts above all before"


def test_a_failure_is_a_report_too() -> None:
    history = opened("w")
    history.prepared(1)
    assert (says(history.ack("w", 1, failure=AckFailure.LOAD_FAILED)), history.last.detail) == (
        "accepted ok",
        "load_failed",
    )
    assert (says(history.activate(1)), history.last.mismatched_workers) == ("rejected worker_mismatch", ("w",))


def test_early_acks_are_listed_when_their_policy_is_prepared() -> None:
    history = opened("a", "b")
    assert (says(history.ack("b", 1)), history.last.detail) == ("pending pending", "version 1 is not prepared")
    at_b = history.last.source.offset
    history.ack("a", 1, "other")
    at_a = history.last.source.offset
    decision = history.prepared(1)
    assert [(done.offset, done.record_type, done.subject_id, done.reason) for done in decision.released] == [
        (at_a, "ActivationAck", "a", "artifact_mismatch"),
        (at_b, "ActivationAck", "b", "ok"),
    ]
    assert (says(history.activate(1)), history.last.mismatched_workers) == ("rejected worker_mismatch", ("a",))
    history.ack("a", 1)
    assert says(history.activate(1)) == "accepted activated"


# --- activation


def test_the_refusals_of_an_activation_in_their_order() -> None:
    """Each step mends what the one before complained of; all that follows is still wrong."""
    history = opened("a", "b")
    history.learner("other")
    history.abort("u3", learner="other")
    history.prepared(1)
    history.ack("a", 1)
    history.ack("b", 1)
    history.activate(1)
    history.prepared(2, "u3", "u2", parent=0, committed=False)
    history.prepared(4, "u2", "u1", parent=1)
    history.prepared(5, "u0", parent=1)

    def answer(version: int, artifact_hash: str | None = None, expected: int | None = None) -> str:
        return says(history.activate(version, artifact_hash, expected=expected))

    assert answer(9, expected=7) == "rejected unknown_version"
    assert answer(2, "other", expected=7) == "rejected unknown_version"
    assert answer(2, expected=7) == "rejected wrong_expected"
    assert history.last.detail == "active version 1"
    assert answer(2) == "rejected artifact_not_committed"
    history.written(2)
    history.prepared(6, parent=5)
    history.ack("a", 6)
    history.ack("b", 6)
    assert answer(6) == "accepted activated"
    assert answer(2) == "rejected non_monotonic_version"
    history.prepared(7, parent=2)
    assert answer(7) == "rejected policy_orphaned"
    history.prepared(8, parent=4)
    assert answer(8) == "rejected update_not_committed"
    assert history.last.detail == "u2"
    history.trained("u2", "t2")
    history.configured(2, workers=("c", "b"))
    assert answer(8) == "rejected missing_worker_ack"
    assert (history.last.missing_workers, history.last.mismatched_workers) == (("c",), ("b",))
    history.ack("c", 8)
    assert answer(8) == "rejected worker_mismatch"
    assert (history.last.missing_workers, history.last.mismatched_workers) == ((), ("b",))
    assert history.run.head.active == policy(6)
    history.ack("b", 8)
    assert answer(8) == "accepted activated"
    assert history.last.active_policy == policy(8)


def test_an_activation_again_is_a_duplicate_and_moves_nothing() -> None:
    history = opened()
    history.prepared(1)
    history.activate(1, expected=0)
    assert says(history.again()) == "duplicate duplicate"
    history.advanced(2)
    assert says(history.activate(1, expected=0)) == "duplicate duplicate"
    assert says(history.activate(1, expected=2)) == "rejected non_monotonic_version"
    assert history.run.head.active == policy(2)


def test_versions_may_be_passed_over_and_their_updates_are_judged() -> None:
    history = opened()
    history.reserve("u2", "t2")
    history.prepared(1, "u2")
    history.prepared(2, "u0")
    assert (says(history.activate(2)), history.last.detail) == ("rejected update_not_committed", "u2")
    history.admit("u2", {"t2": 0.0}, own_updates=2)
    history.started("u2")
    history.commit("u2", "t2")
    assert says(history.activate(2)) == "accepted activated"
    assert not state(history, 1).activated


def test_the_active_pointer_stays_on_an_orphan_until_another_activates() -> None:
    history = opened()
    history.advanced(1, "u0")
    history.learner()
    assert history.run.head.active_orphaned
    assert history.last.active_policy == policy(1)
    history.prepared(2, parent=1, rollback_of=0)
    assert says(history.activate(2)) == "accepted activated"
    assert not history.run.head.active_orphaned


def test_required_workers_are_those_of_the_configuration_in_force() -> None:
    history = opened("a")
    history.prepared(1)
    assert says(history.activate(1)) == "rejected missing_worker_ack"
    history.configured(2)
    assert says(history.activate(1)) == "accepted activated"


def test_the_decision_names_a_policy_by_version_and_hash() -> None:
    history = opened()
    subject = history.prepared(1).subject
    assert subject is not None
    assert (subject.kind, subject.id, subject.artifact_hash) == ("policy", "1", "weights-1")


@pytest.mark.parametrize("committed", [True, False])
@pytest.mark.parametrize("version", [1, 2])
@pytest.mark.parametrize("serving", [{}, {"a": 1}, {"a": 1, "b": 1}, {"a": 2, "b": 2}, {"b": 2}, {"a": 2, "b": 1}])
@pytest.mark.parametrize("required", [(), ("a",), ("b", "a")])
def test_the_fold_and_the_public_rule_give_the_same_answer(
    committed: bool, version: int, serving: dict[str, int], required: tuple[str, ...]
) -> None:
    history = opened()
    history.advanced(1)
    history.configured(2, workers=required)
    history.prepared(2, committed=committed)
    for worker, served in serving.items():
        history.ack(worker, served)
    decision = history.activate(version)
    rule = activate_policy_version(
        Pointer(version=1, artifact_hash="weights-1"),
        ArtifactState(version=version, artifact_hash=f"weights-{version}", committed=committed or version == 1),
        {name: Pointer(version=served, artifact_hash=f"weights-{served}") for name, served in serving.items()},
        required,
    )
    assert (decision.reason, decision.missing_workers, decision.mismatched_workers) == (
        rule["reason"],
        tuple(rule["missing_workers"]),
        tuple(rule["mismatched_workers"]),
    )
