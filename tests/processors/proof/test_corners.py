"""Corners of the rules that random runs seldom reach: each was a mutant that survived."""

from rollbook.schemas.records.run import DriftGate, Enforcement
from rollbook.schemas.records.update import Checkpoint, ReserveMode
from rollbook.tests.processors.history import History, reasons, says
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
