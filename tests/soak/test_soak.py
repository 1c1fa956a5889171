"""A short soak with the tests: some kills and a zombie, on a broker of its own; `make soak` is the long one."""

import pytest

from rollbook.tests.soak.plan import KILL_POINTS, STOP_POINTS, Kind, Rates, plan
from rollbook.tests.soak.run import Soak, soak


def test_a_plan_follows_from_its_seed_and_passes_every_point() -> None:
    rates = Rates(kills=10, zombies=3, brokers=2, storms=1)
    faults = plan(7, 2, rates, 3, 3.0)
    assert faults == plan(7, 2, rates, 3, 3.0) != plan(8, 2, rates, 3, 3.0)
    assert {fault.point for fault in faults if fault.kind is Kind.KILL} == set(KILL_POINTS)
    assert {fault.point for fault in faults if fault.kind is Kind.ZOMBIE} == set(STOP_POINTS)
    assert [fault.kind for fault in faults].count(Kind.TWO_BROKERS) == 1
    assert all(0 <= fault.at_s <= 120 for fault in faults)


@pytest.mark.timeout(400)
def test_kills_and_a_zombie_violate_nothing() -> None:
    rates = Rates(kills=14, zombies=2.4, brokers=0, storms=0)
    asked = Soak(
        0.4, seed=5, instances=2, partitions=4, rate=200, backlog=500, session_ms=2_000, rates=rates, quiet=True
    )
    summary = soak(asked)
    assert summary.passed, summary.as_table()
    assert summary.events > 1_000
