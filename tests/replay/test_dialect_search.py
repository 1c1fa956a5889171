"""The search names the framework whose numbers were recorded: first, or beside others whose numbers are the same."""

import numpy as np
import pytest

from rollbook.replay.dialects.estimate import Rewarded
from rollbook.replay.dialects.table import ADVANTAGES, LOSSES
from rollbook.replay.recognition.search import Match, rank_advantages, rank_losses, rounding_of
from rollbook.tests.replay.goldens.evidence import estimated, lost

FRAMEWORKS = ["verl", "trl", "slime", "areal", "skyrl", "openrlhf"]

ONE_OF_FOUR = [
    # framework, name, advantage of the reward 1 among [1, 0, 0, 0]
    ("verl", "grpo", 1.499997),
    ("trl", "scale_rewards group", 1.499700),
    ("areal", "group mean, group std", 1.499970),
    ("trl", "async", 1.732051),
    ("verl", "rloo", 1.0),
    ("verl", "grpo without std", 0.75),
]


def firsts(found: tuple[Match, ...]) -> list[Match]:
    return [match for match in found if match.rank == 1]


@pytest.mark.parametrize("framework", FRAMEWORKS)
def test_the_framework_of_recorded_advantages_ranks_first(framework: str) -> None:
    cases = list(estimated(framework))
    for case in cases:
        best = firsts(rank_advantages(case.given, case.recorded))
        own = [match.values for match in best if match.framework == framework and match.values is not None]
        assert own, (case.id, best[:3])
        assert all(match.matches for match in best), case.id
        apart = 2 * rounding_of(case.given, own[0]).indistinct(best[0].error)
        assert all(match.values == pytest.approx(own[0], abs=apart, nan_ok=True) for match in best), case.id
    assert len(cases) > 20


@pytest.mark.parametrize("framework", FRAMEWORKS)
def test_the_framework_of_a_recorded_loss_ranks_first(framework: str) -> None:
    cases = list(lost(framework))
    for case in cases:
        best = firsts(rank_losses(case.given, case.recorded))
        own = [match.values for match in best if match.framework == framework and match.values is not None]
        assert own, (case.id, case.recorded, best[:3])
        assert all(match.matches for match in best), case.id
        apart = 4 * max(best[0].error, 2.0**-22 * max(abs(case.recorded), 0.1))
        assert all(match.values == pytest.approx(own[0], abs=apart, nan_ok=True) for match in best), case.id
    assert len(cases) > 30


@pytest.mark.parametrize(("framework", "name", "advantage"), ONE_OF_FOUR)
def test_frameworks_of_one_name_are_told_apart(framework: str, name: str, advantage: float) -> None:
    others = {1.0: -1 / 3, 0.75: -0.25}.get(advantage, -advantage / 3)
    recorded = np.array([[advantage], [others], [others], [others]])
    rewards = np.array([[1.0], [0.0], [0.0], [0.0]])
    given = Rewarded(rewards, np.ones((4, 1), dtype=np.bool_), np.zeros(4, dtype=np.int64))
    best = firsts(rank_advantages(given, recorded))
    assert (framework, name) in {(match.framework, match.name) for match in best}
    assert len(best) < len(ADVANTAGES) / 2


def test_every_convention_has_a_name_of_its_own() -> None:
    for table in (ADVANTAGES, LOSSES):
        assert len({(one.framework, one.version, one.name) for one in table}) == len(table)


def test_what_no_convention_gives_matches_none() -> None:
    given = Rewarded(np.array([[1.0], [0.0]]), np.ones((2, 1), dtype=np.bool_), np.zeros(2, dtype=np.int64))
    found = rank_advantages(given, np.array([[0.3], [0.2]]))
    assert not any(match.matches for match in found)
    assert [match.error for match in found] == sorted(match.error for match in found)
