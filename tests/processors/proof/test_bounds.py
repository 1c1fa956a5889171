"""Bounds at their last value and one beyond, and refusals of which only the order decides: each was a mutant that
survived."""

import pytest

from rollbook.processors.ledger import claim, fold, room
from rollbook.schemas.records.run import DriftGate, Enforcement
from rollbook.schemas.records.update import ClaimOrder
from rollbook.tests.processors.history import History, reasons, says
from rollbook.tests.processors.log import Log
from rollbook.tests.processors.proof.compare import ProvenLog

AFTER_THE_BODY = 66
"""The chain's bytes at the end of a decision."""


def proven() -> History:
    """A history that the naive model looks at."""
    return History(log=ProvenLog())


@pytest.mark.parametrize(("room", "kept"), [(0, 1), (-1, 0)])
def test_a_decision_of_the_most_bytes_keeps_its_lists(monkeypatch: pytest.MonkeyPatch, room: int, kept: int) -> None:
    def decided() -> Log:
        history = History().opened()
        history.ready("t0").learner()
        history.reserve("u0", "t0")
        return history.log

    body = len(decided().folded[-1].encoded) - AFTER_THE_BODY
    monkeypatch.setattr(fold, "MOST_DECISION_BYTES", body + room)
    assert len(decided().folded[-1].decision.items) == kept


def test_a_claim_that_has_its_groups_passes_over_no_more() -> None:
    history = proven().opened(max_lag=0)
    history.learner()
    history.ready("stale").advanced(1)
    history.ready("fresh", version=1)
    assert says(history.claim("u0", 1, order=ClaimOrder.FRESHEST)) == "accepted ok"
    assert history.last.detail == ""
    assert says(history.claim("u1", 1, order=ClaimOrder.FRESHEST)) == "rejected nothing_taken"
    assert history.last.detail == "1 groups passed over"


def test_a_claim_that_has_all_that_fits_passes_over_no_more(monkeypatch: pytest.MonkeyPatch) -> None:
    history = History().opened()
    history.learner()
    history.ready("t0", "t1")
    monkeypatch.setattr(claim, "MAX_ITEMS", 1)
    assert says(history.claim("u0", 2)) == "accepted ok"
    assert (len(history.last.items), history.last.detail) == (1, "")


@pytest.mark.parametrize(("most", "outgrown"), [(135, False), (134, True)])
def test_an_update_may_fill_its_room(monkeypatch: pytest.MonkeyPatch, most: int, outgrown: bool) -> None:
    history = History().opened()
    history.ready("t0").learner()
    history.reserve("u0", "t0")
    update = history.run.updates.get("u0")
    assert update is not None
    monkeypatch.setattr(room, "ROOM_BYTES", most)
    bare = update.model_copy(update={"held": (), "answers": ()})
    assert room.outgrows(bare, answered=("t",), held=("t",)) is outgrown, "held 5, its answers 65 each, in bytes"


def test_a_row_that_is_tainted_and_below_the_floor_is_given_back_to_quarantine() -> None:
    history = proven().opened(horizon=1, max_lag=1)
    history.learner()
    history.advanced(1)
    history.ready("t0", version=1)
    history.ready("untainted")
    history.reserve("u0", "t0", "untainted")
    history.advanced(2).advanced(3)
    history.abandoned(1)
    assert (history.run.head.floor, history.status("t0")) == (2, "reserved")
    history.abort("u0")
    assert (history.status("t0"), history.status("untainted")) == ("quarantined", "offline")


def test_a_worker_that_serves_a_prepared_version_with_other_weights_is_told_at_once() -> None:
    history = proven().opened(workers=("w",))
    history.prepared(1)
    assert says(history.ack("w", 1, "other-weights")) == "accepted artifact_mismatch"
    assert history.last.detail == "known as weights-1"
    assert says(history.ack("w", 1)) == "accepted ok"


def test_a_row_trained_on_before_it_is_known_takes_no_place_of_others_and_as_many_wait() -> None:
    history = proven().opened(enforcement=Enforcement.OBSERVE, gate=DriftGate.OFF, max_pending=1)
    history.learner()
    history.written(1)
    assert reasons(history.commit("u0", "t0")) == {"t0": "pending"}
    assert reasons(history.commit("u1", "t0", "t1")) == {"t0": "pending", "t1": "pending_full"}


def test_what_is_spoilt_is_refused_whatever_is_active() -> None:
    history = proven().opened()
    history.prepared(1)
    history.abandoned(1)
    assert (says(history.activate(1)), history.last.detail) == ("rejected policy_abandoned", "")


def test_what_is_held_below_the_floor_cannot_fail_any_more() -> None:
    history = proven().opened(horizon=1, max_lag=1)
    history.learner()
    history.ready("t0")
    history.reserve("u0", "t0")
    history.advanced(1).advanced(2)
    assert says(history.failed("t0")) == "rejected illegal_transition"
    assert says(history.failed("t1")) == "rejected beyond_horizon"
