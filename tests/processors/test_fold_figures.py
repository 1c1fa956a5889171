"""The freshness snapshot: equal to a recount at every prefix, and what its figures say of small histories."""

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from rollbook.processors.freshness import snapshot
from rollbook.processors.ledger import figures
from rollbook.schemas.codec import decode, encode
from rollbook.schemas.records.decision import FreshnessSnapshot
from rollbook.schemas.records.policy import AckFailure
from rollbook.schemas.records.run import DriftGate, Enforcement, LagUnit
from rollbook.schemas.records.update import Disposition
from rollbook.tests.processors.counted import CountedLog
from rollbook.tests.processors.history import History
from rollbook.tests.processors.parts import policy
from rollbook.tests.processors.proof import walks
from rollbook.tests.processors.test_properties import quick

TWO = ("t0", "t1")


def seen(history: History) -> FreshnessSnapshot:
    """The snapshot as a reader has it."""
    found = snapshot(history.run)
    assert decode(encode(found)) == found
    return found


def training(**limits: Any) -> History:
    """A run with a learner."""
    history = History(log=CountedLog()).opened(**limits)
    history.learner()
    return history


def trained(history: History, update_id: str, *names: str) -> History:
    """Rows that an update has generated, rewarded and trained on."""
    history.ready(*names)
    return history.trained(update_id, *names)


@quick
@given(st.integers(0, 2**32).map(walks.deep))
def test_each_snapshot_equals_a_recount_at_every_prefix(walk: list[bytes]) -> None:
    log = CountedLog()
    walks.run(log, walk)
    assert log.compared > 5  # of 2,400 such runs the shortest compared 13


def test_rows_are_counted_by_the_lag_that_they_were_consumed_at() -> None:
    history = training(max_lag=2)
    history.ready("t0", "t1", "t2")
    history.trained("u0", "t0").advanced(1, "u0").trained("u1", "t1").advanced(2, "u1").trained("u2", "t2")
    found = seen(history)
    assert [(one.lag, one.count) for one in found.consumed_by_lag] == [(0, 1), (1, 1), (2, 1)]
    assert found.consumed_lag_unknown == 0


def test_what_is_found_to_be_trained_on_only_later_has_no_known_lag() -> None:
    history = training(enforcement=Enforcement.OBSERVE)
    history.generated("t0")
    history.commit("u0", "t0")
    history.rewarded("t0")
    assert history.status("t0") == "consumed"
    found = seen(history)
    assert (found.consumed_by_lag, found.consumed_lag_unknown) == ((), 1)


@pytest.mark.parametrize(("lag", "said"), [(1_000, 1_000), (1_001, 1_000), (-1, -1), (-2, -1), (0, 0)])
def test_lags_that_only_an_observed_run_can_have_share_a_figure(lag: int, said: int) -> None:
    history = training()
    history.run.tally("commit", 2)
    figures.count_consumed(history.run, [lag, None])
    found = snapshot(history.run)
    assert [(one.lag, one.count) for one in found.consumed_by_lag] == [(said, 1)]
    assert found.consumed_lag_unknown == 1


def test_drift_is_told_apart_by_the_gate_and_binned_by_fixed_bounds() -> None:
    history = training(drift=0.2)
    history.ready("t0", "t1", "t2", "t3", "t4")
    history.reserve("u0", "t0", "t1", "t2", "t3", "t4")
    history.admit("u0", {"t0": 0.0, "t1": 0.0625, "t2": 0.125, "t3": 3.5, "t4": 11.0})
    found = seen(history)
    assert (found.drift_gate, found.max_mean_abs_log_ratio) == ("required", 0.2)
    assert [(one.up_to, one.admitted, one.refused) for one in found.drift] == [
        (0.0001, 1, 0),
        (0.1, 1, 0),
        (0.2, 1, 0),
        (5.0, 0, 1),
        (None, 0, 1),
    ]
    assert [(one.record_type, one.reason, one.count) for one in found.refusals] == [("Admit", "policy_drift", 2)]


def test_a_bound_belongs_to_the_bin_below_it() -> None:
    history = training(drift=1.0)
    history.ready("t0", "t1")
    history.reserve("u0", "t0", "t1")
    history.admit("u0", {"t0": 0.5, "t1": 0.5000001})
    assert [(one.up_to, one.admitted) for one in seen(history).drift] == [(0.5, 1), (1.0, 1)]


def test_a_row_that_is_admitted_again_is_counted_once() -> None:
    history = training()
    history.ready("t0")
    history.reserve("u0", "t0")
    history.admit("u0", {"t0": 0.125})
    history.admit("u0", {"t0": 0.125}, part=1)
    history.again()
    assert [(one.admitted, one.refused) for one in seen(history).drift] == [(1, 0)]


def test_rows_that_were_refused_for_something_else_are_no_drift() -> None:
    history = training(max_lag=0)
    history.ready("t0", "t1")
    history.reserve("u0", "t0", "t1")
    history.prepared(1)
    history.admit("u0", {"t0": 0.0}, by=policy(1))
    history.admit("u0", {"t1": 0.0}, part=1, active_tokens=7)
    found = seen(history)
    assert (found.drift, found.drift_floor) == ((), ())
    assert {one.reason for one in found.refusals} == {"stale_policy", "evidence_mismatch"}


def test_the_drift_floor_is_of_lag_0_and_holds_the_refused_too() -> None:
    history = training(drift=0.2)
    history.ready("t0", "t1", "t2").advanced(1).ready("t3", version=1)
    history.reserve("u0", "t0", "t1", "t2", "t3")
    history.admit("u0", {"t0": 0.125, "t1": 0.375}, by=policy(0))
    history.admit("u0", {"t2": 0.125, "t3": 0.0625}, part=1)
    floor = [(one.version, one.rows, one.mean_abs_log_ratio) for one in seen(history).drift_floor]
    assert floor == [(0, 2, 0.25), (1, 1, 0.0625)]


def test_a_row_counts_for_at_most_a_thousand_nats() -> None:
    history = History().opened(drift=1e9)
    history.learner()
    history.ready("t0")
    history.reserve("u0", "t0")
    history.admit("u0", {"t0": 1e8})
    assert [one.mean_abs_log_ratio for one in snapshot(history.run).drift_floor] == [1_000.0]


def test_the_drift_floor_is_kept_for_the_newest_versions(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(figures, "MOST_VERSIONS", 3)
    history = History().opened()
    history.learner()
    for version in range(5):
        if version:
            history.advanced(version)
        history.ready(f"t{version}", version=version)
        history.reserve(f"u{version}", f"t{version}")
        history.admit(f"u{version}", {f"t{version}": 0.0})
    assert [one.version for one in seen(history).drift_floor] == [2, 3, 4]
    assert figures.versions(history.run) == {2, 3, 4}
    history.ready("old", version=1)
    history.reserve("u9", "old", by=policy(1))
    history.admit("u9", {"old": 0.0}, by=policy(1))
    assert figures.versions(history.run) == {2, 3, 4}, "one that is older than those kept stays out"


def test_what_lies_below_the_floor_leaves_the_drift_floor() -> None:
    history = training(max_lag=1, horizon=1)
    for version in range(4):
        if version:
            history.advanced(version)
        history.ready(f"t{version}", version=version)
        history.reserve(f"u{version}", f"t{version}")
        history.admit(f"u{version}", {f"t{version}": 0.0})
    assert [one.version for one in seen(history).drift_floor] == [2, 3]
    assert figures.versions(history.run) == {2, 3}


def test_figures_begin_with_the_first_decision_that_they_count() -> None:
    history = training()
    assert seen(history).figures_since == 0
    history.ready("t0")
    history.reserve("u0", "t0")
    decision = history.admit("u0", {"t0": 0.0})
    history.started("u0")
    history.commit("u0", "t0")
    assert seen(history).figures_since == decision.sequence


def test_what_happened_is_told_without_figures() -> None:
    history = trained(training(), "u0", *TWO)
    assert not [one.name for one in seen(history).happened if figures.is_figure(one.name)]
    assert {one.name: one.count for one in seen(history).happened}["commit"] == 2


def test_failures_are_told_by_stage() -> None:
    history = training()
    history.failed("t0")
    history.generated("t1")
    history.reward_failed("t1")
    found = [(one.stage, one.cause, one.count) for one in seen(history).failures]
    assert found == [("generation", "timeout", 1), ("reward", "timeout", 1)]


def test_the_learners_version_stands_beside_the_active_one() -> None:
    history = training(max_lag=1)
    history.ready("t0").advanced(1)
    history.prepared(2, committed=False)
    found = seen(history)
    assert (found.active_policy, found.learner_policy) == (policy(1), policy(2))
    assert ([(one.lag, one.count) for one in found.ready_by_lag], found.ready_expiring) == ([(1, 1)], 1)
    assert (found.ready_stale, found.ready_stale_for_learner) == (0, 1)
    history.abandoned(2)
    assert seen(history).learner_policy == policy(1)


def test_ready_rows_of_an_unprepared_policy_have_no_lag_yet() -> None:
    history = training()
    history.ready("t0", version=7)
    found = seen(history)
    assert (found.ready_unknown, found.ready_by_lag, found.mean_lag) == (1, (), None)


def test_updates_are_told_with_their_leases_and_doubts() -> None:
    history = training(lease_ms=60_000)
    history.ready(*TWO)
    history.reserve("u0", "t0")
    history.reserve("u1", "t1")
    history.started("u0")
    history.expired("u0")
    found = seen(history)
    assert [(one.update_id, one.status, one.held, one.in_doubt, one.lease_ms) for one in found.updates] == [
        ("u0", "started", 1, True, 60_000),
        ("u1", "open", 1, False, 60_000),
    ]
    assert found.in_doubt_count == 1
    update = history.run.updates.get("u1")
    assert update is not None
    assert found.updates[1].last_activity_offset == update.last_activity_offset


def test_workers_are_told_with_what_they_serve_and_those_that_said_nothing() -> None:
    history = training(workers=("w0", "w1", "w2"))
    history.ack("w0", 0)
    offset = history.last.source.offset
    history.ack("w1", 0, failure=AckFailure.LOAD_FAILED)
    history.ack("a spare one", 0)
    found = seen(history)
    assert [(one.worker_id, one.required, one.serves_active) for one in found.workers] == [
        ("w0", True, True),
        ("w1", True, False),
        ("w2", True, False),
        ("a spare one", False, True),
    ]
    assert (found.workers[0].serves, found.workers[0].offset) == (policy(0), offset)
    assert (found.workers[1].serves, found.workers[1].failure) == (None, "load_failed")
    assert (found.workers[2].incarnation, found.workers[2].offset) == (None, None)
    assert (found.worker_count, found.workers_behind) == (4, 2)


class TestCapacity:
    """`capacity`: from the limits, what is there, and how many rows an update takes."""

    def test_nobody_knows_it_before_the_first_update_has_started(self) -> None:
        history = training()
        history.ready(*TWO)
        history.reserve("u0", *TWO)
        assert (seen(history).rows_per_update, seen(history).capacity) == (None, None)
        history.started("u0")
        assert seen(history).rows_per_update == 2

    @pytest.mark.parametrize(("max_lag", "left"), [(0, 0), (1, 1), (3, 3)])
    def test_while_an_update_is_in_the_making_one_version_of_the_limit_is_used_up(
        self, max_lag: int, left: int
    ) -> None:
        history = training(max_lag=max_lag)
        history.ready(*TWO)
        history.reserve("u0", *TWO)
        history.started("u0")
        found = seen(history)
        assert (found.updates_left, found.capacity) == (left, 2 * left)
        history.admit("u0", dict.fromkeys(TWO, 0.0))
        history.commit("u0", *TWO)
        assert seen(history).updates_left == left, "committed, but in no policy yet"
        history.prepared(1, "u0")
        assert seen(history).updates_left == left, "prepared, but the workers serve the old one"
        history.activate(1)
        assert (seen(history).updates_left, seen(history).capacity) == (max_lag + 1, 2 * (max_lag + 1))

    def test_what_is_ready_or_under_way_takes_its_place(self) -> None:
        history = trained(training(max_lag=1), "u0", *TWO).advanced(1, "u0")
        assert seen(history).capacity == 4
        history.dispatched("a")
        assert seen(history).capacity == 3
        history.generated("a")
        assert seen(history).capacity == 3
        history.rewarded("a")
        assert seen(history).capacity == 3
        history.reserve("u1", "a")
        assert seen(history).capacity == 3, "held by an update that still gathers"
        history.ready("b", "c", "d", "e")
        assert seen(history).capacity == 0

    def test_what_has_ended_or_will_be_stale_takes_none(self) -> None:
        history = trained(training(max_lag=1), "u0", *TWO).advanced(1, "u0")
        history.failed("a", 1)
        history.ready("b")
        history.discarded("b")
        assert seen(history).capacity == 4
        history.ready("c").dispatched("d", 1)
        history.advanced(2).advanced(3)
        assert (seen(history).ready_stale, seen(history).capacity) == (1, 4)

    def test_ordinals_count_each_update_and_no_policy(self) -> None:
        history = trained(training(max_lag=1, lag_unit=LagUnit.ORDINAL), "u0", *TWO)
        assert (seen(history).updates_left, seen(history).capacity) == (1, 2)
        history.advanced(1, "u0")
        assert (seen(history).updates_left, seen(history).capacity) == (2, 4)
        history.ready("a", "b")
        history.reserve("u1", "a", "b", by=policy(1))
        history.started("u1")
        assert (seen(history).updates_left, seen(history).capacity) == (1, 2)

    def test_commits_of_a_trainer_that_names_none_in_its_policies_do_not_wait(self) -> None:
        history = trained(training(max_lag=0), "u0", *TWO)
        assert seen(history).updates_left == 0
        history.advanced(1)
        trained(history, "u1", "t2")
        history.advanced(2)
        assert seen(history).updates_left == 1

    def test_the_largest_of_the_last_eight_commits_says_how_large_an_update_is(self) -> None:
        history = training(gate=DriftGate.OFF)
        for at in range(9):
            names = TWO if at == 0 else (f"a{at}",)
            trained(history, f"u{at}", *names)
            assert seen(history).rows_per_update == (2 if at < 8 else 1)

    def test_dropped_rows_are_none_of_an_update(self) -> None:
        history = training()
        history.ready(*TWO)
        history.reserve("u0", *TWO)
        history.admit("u0", dict.fromkeys(TWO, 0.0))
        history.started("u0")
        history.commit("u0", "t0", dropped={"t1": Disposition.DISCARD})
        assert seen(history).rows_per_update == 1

    def test_it_keeps_to_max_live(self) -> None:
        history = trained(training(max_lag=1, max_live=3), "u0", *TWO).advanced(1, "u0")
        assert seen(history).capacity == 3
        history.ready("a", "b")
        assert seen(history).capacity == 1
        history.ready("c")
        assert seen(history).capacity == 0

    def test_there_is_none_where_the_active_policy_was_undone_or_the_run_is_over(self) -> None:
        history = trained(training(), "u0", *TWO).advanced(1, "u0")
        assert seen(history).capacity
        history.learner()
        found = seen(history)
        assert history.run.head.active_orphaned
        assert (found.updates_left, found.capacity) == (0, 0)
        history.closed("done")
        assert (seen(history).updates_left, seen(history).capacity) == (0, 0)
