"""Corners of the rules that random runs seldom reach: each was a mutant that survived."""

import pytest

from rollbook.processors.ledger import ending, fold, room
from rollbook.schemas.records.run import DriftGate, Enforcement
from rollbook.schemas.records.update import Checkpoint, Disposition, ReserveMode
from rollbook.tests.processors.history import History, reasons, says
from rollbook.tests.processors.parts import policy
from rollbook.tests.processors.proof.compare import ProvenLog


def proven() -> History:
    """A history that the naive model looks at."""
    return History(log=ProvenLog())


def test_an_observed_row_of_an_unprepared_policy_cannot_be_admitted_after_its_evidence_and_mask_are_judged() -> None:
    history = proven().opened(enforcement=Enforcement.OBSERVE)
    history.generated("t0", 5)
    history.generated("empty", 5, active_tokens=0)
    history.rewarded("t0", "empty")
    history.learner()
    assert reasons(history.reserve("u0", "t0", "empty")) == {"t0": "unknown_policy", "empty": "unknown_policy"}
    assert reasons(history.admit("u0", {"t0": 0.0, "empty": 0.0})) == {
        "t0": "unknown_policy",
        "empty": "empty_action_mask",
    }


def test_an_observed_reserve_takes_what_it_names_in_either_mode() -> None:
    history = proven().opened(enforcement=Enforcement.OBSERVE, gate=DriftGate.OFF)
    history.ready("t0").learner()
    assert says(history.reserve("u0", "t0", "unknown", mode=ReserveMode.ALL)) == "accepted missing_rollout"
    assert history.status("t0") == "reserved"


def test_anothers_orphaned_checkpoint_is_anothers_first() -> None:
    history = proven().opened()
    history.ready("t0")
    history.learner("a")
    history.trained("u0", "t0", learner="a")
    history.saved("c0", "u0", learner="a")
    history.learner("a")
    wanted = Checkpoint(id="c0", digest="digest of c0")
    assert says(history.learner("b", checkpoint=wanted)) == "rejected foreign_checkpoint"
    assert says(history.learner("a", checkpoint=wanted)) == "rejected checkpoint_orphaned"


def test_of_an_unknown_parent_and_an_unknown_policy_to_restore_the_parent_is_named() -> None:
    history = proven().opened()
    assert says(history.prepared(3, parent=1, rollback_of=2)) == "rejected unknown_parent"
    history.prepared(1)
    assert says(history.prepared(3, parent=1, rollback_of=2)) == "rejected unknown_rollback"


def test_an_observed_reserve_that_breaks_nothing_says_so() -> None:
    history = proven().opened(enforcement=Enforcement.OBSERVE)
    history.ready("t0").learner()
    assert says(history.reserve("u0", "t0")) == "accepted ok"
    assert not history.last.violation


def test_a_policy_that_is_active_against_the_rules_counts_as_active_first() -> None:
    history = proven().opened(enforcement=Enforcement.OBSERVE)
    history.prepared(1)
    history.abandoned(1)
    assert says(history.activate(1)) == "accepted policy_abandoned"
    assert says(history.abandoned(1)) == "rejected policy_active"


def test_where_no_more_facts_may_wait_one_that_waits_already_is_known() -> None:
    history = proven().opened(max_pending=1)
    assert says(history.written(1)) == "pending pending"
    assert says(history.again()) == "duplicate duplicate"
    assert says(history.written(2)) == "rejected pending_full"


def test_an_admit_by_an_unknown_policy_is_refused_for_that_even_where_the_update_has_no_room(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    history = History().opened()
    history.ready("t0").learner()
    history.reserve("u0", "t0")
    monkeypatch.setattr(room, "ROOM_BYTES", 1)
    assert says(history.admit("u0", {"t0": 0.0}, by=policy(7))) == "rejected unknown_policy"
    assert says(history.admit("u0", {"t0": 0.0})) == "rejected update_full"


def test_an_observed_reserve_keeps_to_the_room_of_its_update(monkeypatch: pytest.MonkeyPatch) -> None:
    history = History().opened(enforcement=Enforcement.OBSERVE)
    history.ready("t0").learner()
    monkeypatch.setattr(room, "ROOM_BYTES", 1)
    assert says(history.reserve("u0", "t0")) == "rejected update_full"
    assert history.status("t0") == "rewarded"


def test_an_update_keeps_the_recordings_of_so_many_ranks(monkeypatch: pytest.MonkeyPatch) -> None:
    history = History().opened()
    history.ready("t0").learner()
    history.reserve("u0", "t0")
    history.started("u0")
    monkeypatch.setattr(ending, "MAX_ITEMS", 1)
    assert says(history.sealed("u0", 0)) == "accepted ok"
    assert says(history.sealed("u0", 1)) == "rejected update_full"
    assert says(history.sealed("u0", 0)) == "duplicate duplicate"


def test_what_ends_elsewhere_in_the_groups_than_it_began_is_a_conflict() -> None:
    history = proven().opened()
    history.dispatched("t0", group="g", sample=0, of=2)
    for group, sample, of in (("other", 0, 2), ("g", 1, 2), ("g", 0, 3)):
        assert says(history.generated("t0", group=group, sample=sample, of=of)) == "rejected conflict"
        assert says(history.failed("t0", group=group, sample=sample, of=of)) == "rejected conflict"
    history.generated("t0", group="g", sample=0, of=2)
    assert says(history.dispatched("t0", group="other", sample=0, of=2)) == "rejected conflict"


def test_of_several_things_that_never_change_the_first_in_order_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(fold, "FOLD_VERSION", 2)
    history = proven()
    history.configured(5, fold_version=2)
    for version, rules, enforcement, reason in (
        (4, 1, Enforcement.OBSERVE, "config_version_not_rising"),
        (6, 1, Enforcement.OBSERVE, "fold_version_falls"),
        (6, 2, Enforcement.OBSERVE, "enforcement_changed"),
        (6, 2, Enforcement.GATE, "initial_policy_changed"),
    ):
        decision = history.configured(version, fold_version=rules, enforcement=enforcement, initial=policy(9))
        assert says(decision) == f"rejected {reason}"
    assert says(history.configured(6, fold_version=2)) == "accepted ok"


def test_a_commit_that_names_one_row_too_many_and_another_twice_names_the_odd_one() -> None:
    history = proven().opened(gate=DriftGate.OFF)
    history.ready("t0", "t1").learner()
    history.reserve("u0", "t0")
    history.started("u0")
    twice = [("t0", Disposition.RELEASE)]
    assert (says(history.commit("u0", "t0", "t1", dropped=twice)), history.last.detail) == ("rejected not_held", "t1")
    assert (says(history.commit("u0", "t0", dropped=twice)), history.last.detail) == ("rejected not_held", "t0")


def test_an_observed_commit_releases_what_it_holds_and_does_not_name() -> None:
    history = proven().opened(enforcement=Enforcement.OBSERVE, gate=DriftGate.OFF)
    history.ready("t0", "t1").learner()
    history.reserve("u0", "t0", "t1")
    history.started("u0")
    assert reasons(history.commit("u0", "t0")) == {"t0": "trained", "t1": "released"}
    assert (history.last.reason, history.status("t1")) == ("not_held", "rewarded")
