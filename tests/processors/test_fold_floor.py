"""The floor: what it forgets, what it must not, and what memory is left of it."""

import pytest

from rollbook.schemas.records.run import DriftGate, Enforcement, Unpinned
from rollbook.tests.processors.history import History, says
from rollbook.tests.processors.parts import sha


def opened(horizon: int, **settings: object) -> History:
    history = History().opened(horizon=horizon, max_lag=horizon, gate=DriftGate.OFF, **settings)  # type: ignore[arg-type]
    history.learner()
    return history


@pytest.mark.parametrize("end", ["abandoned", "only prepared"])
def test_what_was_never_active_moves_no_floor(end: str) -> None:
    history = opened(2)
    for version in range(1, 6):
        history.advanced(version)
    history.prepared(6, parent=5, rollback_of=1)
    if end == "abandoned":
        history.abandoned(6)
    history.ready("t0", version=5)
    history.prepared(7, parent=5)
    history.activate(7, expected=5)
    assert (history.run.head.floor, history.status("t0")) == (4, "rewarded")


def test_a_roll_back_that_was_active_hides_nothing_fresh() -> None:
    history = opened(2)
    for version in range(1, 6):
        history.advanced(version)
    history.ready("t0", version=5)
    history.prepared(6, parent=5, rollback_of=1)
    history.activate(6)
    history.prepared(7, parent=5)
    history.activate(7)
    assert history.status("t0") == "rewarded"


def test_a_group_that_lives_on_stays_whole() -> None:
    history = opened(1)
    history.failed("t0", 0, group="g", sample=0, of=2)
    history.advanced(1)
    history.generated("t1", 1, group="g", sample=1, of=2)
    history.rewarded("t1")
    history.advanced(2)
    assert (history.run.head.floor, history.status("t0")) == (1, "generation_failed")
    assert history.run.trajectories.claimable_groups() == ["g"]
    history.discarded("t1")
    history.advanced(3)
    history.advanced(4)
    assert len(history.run.trajectories) == 0, "nobody of it lives"


def test_a_failure_below_the_floor_is_told_to_a_group_that_waits_for_it_and_to_nobody_twice() -> None:
    history = opened(1)
    history.failed("t9", 0)
    history.advanced(1)
    history.generated("t1", 1, group="g", sample=1, of=2)
    history.rewarded("t1")
    history.advanced(2)
    assert says(history.failed("t9", 0)) == "rejected beyond_horizon", "it was forgotten, and is no other failure now"
    assert says(history.failed("t0", 0, group="g", sample=0, of=2)) == "accepted ok"
    assert history.run.trajectories.claimable_groups() == ["g"]


def test_what_an_update_gives_back_below_the_floor_goes_offline() -> None:
    history = opened(1).ready("t0", "t1")
    history.reserve("u0", "t0", "t1")
    history.advanced(1).advanced(2)
    history.abort("u0")
    assert [history.status(name) for name in ("t0", "t1")] == ["offline", "offline"]


def test_an_early_reward_of_a_version_above_the_floor_is_kept() -> None:
    history = opened(1)
    history.prepared(1)
    history.rewarded("t0")
    history.activate(1)
    history.advanced(2)
    history.generated("t0", 1)
    assert (history.run.head.floor, history.status("t0")) == (1, "rewarded")


def test_names_of_what_is_forgotten_are_counted_and_not_kept() -> None:
    history = opened(1).ready("t0", "t1")
    history.trained("u0", "t0", "t1")
    history.advanced(1).advanced(2)
    update = history.run.updates.get("u0")
    assert update is not None
    assert (update.trained, update.forgotten) == ((), 2)
    decision = history.learner()
    (change,) = [one for one in decision.mass_changes if "forgotten" in one.predicate]
    assert (change.predicate, change.count) == ("trajectories rolled back, but forgotten", 2)


def test_a_group_kept_apart_is_whole_with_the_failures_of_the_group() -> None:
    history = History()
    history.configured(unpinned=Unpinned.APART)
    history.contract()
    history.learner()
    history.generated("t0", group="g", sample=0, of=3, contract=sha("unregistered"))
    history.failed("t1", group="g", sample=1, of=3)
    history.rewarded("t0")
    assert history.run.trajectories.claimable_groups() == []
    history.generated("t2", group="g", sample=2, of=3)
    history.discarded("t2")
    assert len(history.run.trajectories.claimable_groups()) == 1
    history.generated("t3", group="g", sample=1, of=3, contract=sha("unregistered"))
    assert history.run.trajectories.claimable_groups() == [], "a second attempt is awaited"


def test_after_a_roll_back_the_floor_rises_on() -> None:
    history = opened(1)
    for version in range(1, 11):
        history.advanced(version)
    history.prepared(11, parent=10, rollback_of=0)
    history.activate(11)
    for version in range(12, 16):
        history.ready(f"t{version}", version=version - 1)
        history.advanced(version)
    assert history.run.head.floor == 14
    assert len(history.run.trajectories) <= 3


def test_a_whole_run_in_one_group_is_forgotten_too() -> None:
    history = opened(1)
    for version in range(1, 20):
        history.failed(f"t{version}", version - 1, group="all", sample=version, of=1000)
        history.ready(f"r{version}", version=version - 1)
        history.advanced(version)
    assert len(history.run.trajectories) < 10


def test_an_observed_run_may_go_back_below_its_floor() -> None:
    history = opened(1, enforcement=Enforcement.OBSERVE)
    for version in range(1, 5):
        history.advanced(version)
    history.activate(2)
    assert (history.run.head.floor, says(history.generated("t0", 2))) == (3, "accepted ok")
    assert says(history.generated("t1", 1)) == "rejected beyond_horizon"
