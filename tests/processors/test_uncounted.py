"""Figures of a run that a package had in between which does not count them: they begin anew behind the gap, and what
was counted before is not told as if it were all. Nothing that is decided depends on it."""

from collections.abc import Callable

import pytest

from rollbook.processors.freshness import snapshot
from rollbook.processors.ledger.figures import SINCE, THROUGH, is_figure
from rollbook.processors.ledger.rebuild import Rebuild
from rollbook.replay.audit.ledger import rows_of
from rollbook.tests.processors.history import History
from rollbook.tests.processors.log import refold
from rollbook.tests.processors.uncounting import uncounting

Act = Callable[[History], object]


def an_update(name: str) -> Act:
    def act(history: History) -> None:
        history.ready(f"of {name}")
        history.trained(name, f"of {name}")

    return act


def something(history: History) -> None:
    """A record of which there is nothing to count."""
    history.ready("something")


@pytest.fixture
def history() -> History:
    """A run with an update whose row was counted twice, at the gate and at its Commit."""
    begun = History().opened()
    begun.learner()
    an_update("u0")(begun)
    return begun


def handed_over(history: History) -> None:
    """Another host restores what the last one wrote."""
    rebuild = Rebuild(history.log.partition, history.log.topic_partitions)
    for key, value in rows_of(history.log.ledger):
        rebuild.take(key, value)
    history.log.ledger = rebuild.ledger()


def counted(history: History) -> tuple[int, int, int]:
    """The first decision that is counted, rows that were admitted, and rows that were consumed."""
    found = snapshot(history.run)
    admitted = sum(one.admitted for one in found.drift)
    return found.figures_since, admitted, sum(one.count for one in found.consumed_by_lag)


def test_one_host_after_another_goes_on_counting(history: History) -> None:
    since, *rows = counted(history)
    assert rows == [1, 1]
    handed_over(history)
    an_update("u1")(history)
    handed_over(history)
    assert counted(history) == (since, 2, 2)


@pytest.mark.parametrize("between", [an_update("u1"), something], ids=["counted", "nothing to count"])
@pytest.mark.parametrize("first", [an_update("u2"), something], ids=["counted", "nothing to count"])
def test_behind_decisions_that_went_by_uncounted_they_begin_anew(history: History, between: Act, first: Act) -> None:
    """Also where there was nothing to count: who does not count does not know."""
    handed_over(history)
    with uncounting():
        between(history)
    handed_over(history)
    gap = history.run.head.sequence
    first(history)
    an_update("u3")(history)
    since, *rows = counted(history)
    assert since > gap
    assert rows == ([2, 2] if first is not something else [1, 1])
    assert history.run.tallies.get(THROUGH).count == history.run.head.sequence  # type: ignore[union-attr]


def test_with_the_first_decision_behind_the_gap_the_old_figures_are_gone(history: History) -> None:
    with uncounting():
        an_update("u1")(history)
    assert counted(history)[0] > 0, "nobody has looked yet"
    history.dispatched("something")
    assert counted(history) == (0, 0, 0)
    assert not [one.name for one in history.run.tallies.values() if is_figure(one.name)]


def test_figures_that_do_not_say_how_far_they_go_begin_anew(history: History) -> None:
    history.run.tallies.drop(THROUGH)
    an_update("u1")(history)
    assert counted(history)[1:] == (1, 1)


def test_a_run_without_figures_has_no_row_that_says_how_far_they_go() -> None:
    history = History().opened()
    history.learner()
    history.ready("t0")
    assert not [one.name for one in history.run.tallies.values() if is_figure(one.name)]
    history.trained("u0", "t0")
    assert {SINCE, THROUGH} <= {one.name for one in history.run.tallies.values()}


def test_what_is_decided_does_not_depend_on_who_counts(history: History) -> None:
    with uncounting():
        an_update("u1")(history)
    an_update("u2")(history)
    assert refold(history.log) == history.log.decisions
