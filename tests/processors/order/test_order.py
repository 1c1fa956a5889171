"""No order between producers is assumed: a small history ends alike in every order of its records, but for the pairs of
one table."""

from collections.abc import Iterator

import pytest

from rollbook.processors.ledger.fold import HANDLERS
from rollbook.schemas.records.run import RunConfigured
from rollbook.tests.nightly import NIGHTLY, often
from rollbook.tests.processors.order.alphabet import ALPHABET, STARTS
from rollbook.tests.processors.order.explore import Explored, explore, explore_pairs
from rollbook.tests.processors.order.pairs import PAIRS, Pair, explaining
from rollbook.tests.processors.order.scenarios import FACTS, MIXED, Scenario
from rollbook.tests.processors.order.settled import Settled


@pytest.mark.parametrize("scenario", FACTS, ids=lambda scenario: scenario.name)
def test_facts_end_alike_in_every_order(scenario: Scenario) -> None:
    explored = explore(scenario.begun(), scenario.steps, scenario.then)
    assert [swap.shows for swap in explored.swaps()][:1] == []
    assert explored.distinct() == 1


def test_orders_end_differently_by_the_pairs_of_the_table_and_by_each_of_them_and_by_no_other() -> None:
    unexplained: list[str] = []
    shown: set[Pair] = set()
    for name, explored in every_order():
        for swap in explored.swaps():
            rows = explaining(swap.first, swap.second)
            if not rows:
                unexplained.append(f"{name}: {swap.first.name}, {swap.second.name}: {swap.shows}")
            elif len(rows) == 1:  # where several rows explain it, none of them is shown to be needed
                shown.update(rows)
        assert [waiting for end in set(explored.ends.values()) for waiting in waiting_in_vain(end)] == [], name
    assert unexplained[:3] == []
    assert not NIGHTLY or [str(pair) for pair in PAIRS if pair not in shown] == []


def every_order() -> Iterator[tuple[str, Explored]]:
    """Each history in every order, and any two records from each start; by day a share of them."""
    for scenario in often(MIXED[::3], MIXED):
        yield scenario.name, explore(scenario.begun(), scenario.steps, scenario.then)
    for start, begin in often(tuple(STARTS.items())[:1], tuple(STARTS.items())):
        yield start, explore_pairs(begin(), ALPHABET)


def waiting_in_vain(end: Settled) -> list[str]:
    """Facts that wait for a trajectory that has ended or come."""
    states = {thing: str(state) for thing, state in end if thing.startswith("trajectory ")}
    subjects = [thing.rpartition(" ")[2] for thing, _ in end if thing.startswith("Reward")]
    return [name for name in subjects if "('dispatched'" not in states.get(f"trajectory {name}", "('dispatched'")]


def test_the_table_has_each_pair_once() -> None:
    rows = [(pair.records, pair.through) for pair in PAIRS]
    assert len(set(rows)) == len(rows)


def test_every_record_type_is_sent_in_every_order_and_in_pairs() -> None:
    types = {RunConfigured.__name__, *(model.__name__ for model in HANDLERS)}
    assert {step.record for scenario in (*FACTS, *MIXED) for step in scenario.steps} == types
    assert {step.record for step in ALPHABET} == types
