"""What the model of the protocol found with one rule switched off at a time: each of its short ways to a row trained
twice, to lost rows or to a success of the dead, walked with all rules on."""

from rollbook.schemas.records.update import AbortDisposition
from rollbook.tests.processors.history import LEARNER, History, reasons, says


def opened() -> History:
    history = History().opened()
    history.ready("t0", "t1", "t2")
    return history


def test_a_clone_cannot_inherit_its_originals_epoch() -> None:
    history = opened()
    history.learner(incarnation="original", expected=0)
    assert says(history.learner(incarnation="clone", expected=0)) == "rejected epoch_conflict"


def test_a_zombies_reserve_that_comes_late_is_no_success() -> None:
    history = opened()
    history.learner()
    history.reserve("u0", "t0")
    history.learner()
    assert says(history.again(2)) == "rejected learner_fenced"


def test_a_zombies_abort_does_not_end_its_successors_update() -> None:
    history = opened()
    history.learner()
    zombie = history.epoch()
    history.learner()
    history.reserve("u0", "t0")
    assert says(history.abort("u0", epoch=zombie)) == "rejected learner_fenced"
    assert history.update_status("u0") == "open"


def test_a_learner_that_failed_inside_a_step_cannot_give_its_rows_back() -> None:
    history = opened()
    history.learner()
    history.reserve("u0", "t0")
    history.started("u0")
    assert says(history.abort("u0")) == "rejected update_in_doubt"
    assert history.status("t0") == "reserved"
    assert says(history.learner()) == "accepted ok"
    assert history.status("t0") == "rewarded"


def test_an_operators_abort_leaves_no_live_learner_with_the_rows_in_its_weights() -> None:
    history = opened()
    history.learner()
    history.reserve("u0", "t0")
    history.started("u0")
    history.abort("u0", operator=True, disposition=AbortDisposition.RELEASE)
    assert history.status("t0") == "rewarded"
    assert says(history.commit("u0", "t0")) == "rejected learner_fenced"


def test_a_policy_made_from_an_undone_one_is_never_activated() -> None:
    history = opened()
    history.learner()
    history.trained("u0", "t0")
    history.learner()
    history.prepared(1, "u0")
    history.prepared(2)
    assert says(history.activate(2)) == "rejected policy_orphaned"


def test_a_policy_of_rolled_back_weights_is_not_saved_by_a_new_update_of_the_same_name() -> None:
    history = opened()
    history.learner()
    history.trained("u0", "t0")
    history.learner()
    assert says(history.reserve("u0", "t0")) == "rejected update_ended"
    history.prepared(1, "u0")
    assert says(history.started("u0")) == "rejected update_ended"
    assert says(history.activate(1)) == "rejected policy_orphaned"


def test_an_admitted_row_stays_admitted_whatever_a_second_epoch_shows() -> None:
    history = opened()
    history.learner()
    history.reserve("u0", "t0")
    history.admit("u0", {"t0": 0.0})
    history.started("u0")
    assert reasons(history.admit("u0", {"t0": 9.0}, part=1)) == {"t0": "ok"}
    assert history.status("t0") == "reserved"
    assert says(history.commit("u0", "t0")) == "accepted ok"


def test_an_unfinished_updates_weights_cannot_become_active() -> None:
    history = opened()
    history.learner()
    history.reserve("u0", "t0")
    history.started("u0")
    history.prepared(1, "u0")
    assert (says(history.activate(1)), history.last.detail) == ("rejected update_not_committed", "u0")


def test_a_learner_works_on_one_started_update_at_a_time() -> None:
    history = opened()
    history.learner()
    history.reserve("u0", "t0")
    history.reserve("u1", "t1")
    history.started("u0")
    assert (says(history.started("u1")), history.last.detail) == ("rejected other_started", "u0")
    history.admit("u0", {"t0": 0.0})
    history.commit("u0", "t0")
    assert says(history.started("u1")) == "accepted ok"


def test_an_abort_that_overtakes_its_reserve_ends_the_id() -> None:
    history = opened()
    history.learner()
    assert says(history.abort("u0")) == "accepted update_failed"
    assert says(history.reserve("u0", "t0")) == "rejected update_ended"
    assert history.status("t0") == "rewarded"
    assert history.run.learners.get(LEARNER) is not None
