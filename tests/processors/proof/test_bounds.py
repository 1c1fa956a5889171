"""Bounds at their last value and one beyond, and refusals of which only the order decides: each was a mutant that
survived."""

import pytest

from rollbook.processors.ledger import fold
from rollbook.schemas.records.update import ClaimOrder
from rollbook.tests.processors.history import History, says
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
