"""What a long run keeps does not grow with its length."""

from itertools import pairwise

import pytest

from rollbook.tests.benchmarks.fold import bare, measure, quickest_of, report, total
from rollbook.tests.benchmarks.long_run import GROUP_SIZE, LongRun
from rollbook.tests.benchmarks.memory import remembered, row_counts
from rollbook.tests.processors.log import Log

HORIZON = 2


@pytest.fixture(scope="module")
def counts() -> list[dict[str, int]]:
    """Rows of each table after each of 16 versions, and the names that updates remember."""
    long_run = LongRun(groups=4, horizon=HORIZON)
    run = long_run.history.run
    return [row_counts(run) | {"name": remembered(run)} for _ in long_run.versions(16)]


@pytest.mark.parametrize(
    "kind", ["trajectory", "pending", "worker", "learner", "config", "contract", "run", "tally", "name"]
)
def test_rows_reach_a_level_and_stay_there(kind: str, counts: list[dict[str, int]]) -> None:
    assert len({count[kind] for count in counts[HORIZON + 2 :]}) == 1


def test_trajectories_are_those_of_the_horizon_and_the_version_in_the_making(counts: list[dict[str, int]]) -> None:
    a_version = 4 * GROUP_SIZE + 1  # and one that never came back
    assert counts[-1]["trajectory"] <= (HORIZON + 2) * a_version


@pytest.mark.parametrize("kind", ["update", "policy", "checkpoint"])
def test_what_is_kept_for_ever_is_one_row_a_version(kind: str, counts: list[dict[str, int]]) -> None:
    assert {after[kind] - before[kind] for before, after in pairwise(counts)} == {1}


def test_the_costs_of_a_fold_are_told_for_every_record() -> None:
    log = Log()
    for _ in LongRun(log, groups=4, horizon=HORIZON).versions(2):
        pass
    costs = measure(log.records)
    assert total(costs).records == len(log.records)
    assert costs["Generated"].records == 2 * (4 * GROUP_SIZE - 1)
    assert report(quickest_of([costs, costs]), bare(log.records))[-2].startswith("all")
