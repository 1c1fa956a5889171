"""What the naive model found in the fold, each as a few records."""

from rollbook.schemas.records.run import DriftGate, Enforcement, Unpinned
from rollbook.schemas.records.update import Checkpoint
from rollbook.tests.processors.history import History, reasons, says


def test_what_is_dispatched_by_an_undone_policy_arrives_in_quarantine() -> None:
    history = History().opened()
    history.prepared(1)
    history.abandoned(1)
    history.dispatched("t0", 1)
    assert (history.status("t0"), reasons(history.last)) == ("quarantined", {"t0": "quarantined"})


def test_a_reward_that_waits_for_a_dispatched_trajectory_shows_its_state() -> None:
    history = History().opened()
    history.dispatched("t0")
    history.rewarded("t0")
    assert (history.last.items[0].state_before, history.last.items[0].revision_after) == ("dispatched", 1)


def test_an_orphan_that_is_activated_all_the_same_is_marked() -> None:
    history = History().opened(enforcement=Enforcement.OBSERVE)
    history.learner()
    history.prepared(1, "u0")
    history.abort("u0")
    assert says(history.activate(1)) == "accepted policy_orphaned"
    assert history.run.head.active_orphaned


def test_an_ancestor_that_was_activated_against_the_rules_makes_its_heirs_no_better() -> None:
    history = History().opened(enforcement=Enforcement.OBSERVE)
    history.advanced(1, "u0").prepared(2)
    assert (says(history.activate(2)), history.last.violation) == ("accepted update_not_committed", True)


def test_an_observed_update_owns_only_what_it_trained_on_first() -> None:
    history = History().opened(enforcement=Enforcement.OBSERVE, gate=DriftGate.OFF)
    history.ready("t0").learner()
    history.trained("u0", "t0")
    history.saved("c0", "u0")
    history.commit("u1", "t0")
    assert (says(history.last), reasons(history.last)) == ("accepted not_holder", {"t0": "not_held"})
    history.learner(checkpoint=Checkpoint(id="c0", digest="digest of c0"))
    assert (history.update_status("u1"), history.status("t0")) == ("rolled_back", "consumed")


def test_an_observed_commit_of_anothers_update_is_undone_with_the_weights_that_have_it() -> None:
    history = History().opened(enforcement=Enforcement.OBSERVE, gate=DriftGate.OFF)
    history.ready("t0")
    history.learner("a")
    history.learner("b")
    history.reserve("u0", "t0", learner="a")
    history.commit("u0", "t0", learner="b")
    history.learner("a")
    assert history.update_status("u0") == "committed"
    history.learner("b")
    assert (history.update_status("u0"), history.status("t0")) == ("rolled_back", "rewarded")


def test_a_prepared_roll_back_does_not_raise_the_floor_above_the_active_policy() -> None:
    history = History().opened(horizon=1)
    history.advanced(1).advanced(2)
    history.prepared(5, parent=2, rollback_of=0)
    history.prepared(4, parent=2)
    history.activate(4)
    assert history.run.head.floor == 2
    assert says(history.generated("t0", 4)) == "accepted ok"
    history.activate(5)
    assert says(history.generated("t1", 5)) == "accepted ok"


def test_facts_older_than_the_floor_are_dropped_whatever_its_version() -> None:
    history = History().opened(horizon=1, max_lag=0)
    history.rewarded("t0")
    history.prepared(10, parent=0)
    history.activate(10)
    history.prepared(20, parent=10)
    history.activate(20)
    history.prepared(30, parent=20)
    history.activate(30)
    assert history.run.head.floor == 20
    assert len(history.run.pending) == 0


def test_what_is_rolled_back_below_the_floor_goes_offline() -> None:
    history = History().opened(horizon=1, gate=DriftGate.OFF, unpinned=Unpinned.REFUSE)
    history.ready("t0").learner()
    history.reserve("u0", "t0")
    history.started("u0")
    history.advanced(1).advanced(2)
    history.commit("u0", "t0")
    assert (history.run.head.floor, history.status("t0")) == (1, "consumed")
    history.learner()
    assert history.status("t0") == "offline"


def test_an_id_that_is_used_again_after_it_was_forgotten_is_not_rolled_back_with_its_first_life() -> None:
    history = History().opened(horizon=1, max_lag=0, gate=DriftGate.OFF)
    history.ready("t0").learner()
    history.trained("u0", "t0")
    for version in (1, 2, 3):
        history.advanced(version)
    assert history.status("t0") == "none"
    history.generated("t0", 3)
    assert says(history.learner()) == "accepted ok"
    assert (history.update_status("u0"), history.status("t0")) == ("rolled_back", "generated")
