"""The dashboard's fold: its figures are the ledger's, its windows those of a recount, each record counts once."""

from collections import Counter

from hypothesis import given
from hypothesis import strategies as st

from rollbook.processors.dashboard.answers import Count, Size, Step
from rollbook.processors.dashboard.fold.view import View
from rollbook.processors.dashboard.fold.windows import KEPT, LENGTH_MS, Windows
from rollbook.processors.freshness import snapshot
from rollbook.processors.metric import MOST_RUNS
from rollbook.schemas.codec import encode
from rollbook.schemas.records.decision import FreshnessSnapshot
from rollbook.tests.processors.dashboard.stored import BEGAN_MS, Message, decisions, viewed
from rollbook.tests.processors.history import History
from rollbook.tests.processors.log import Log
from rollbook.tests.processors.proof import walks
from rollbook.tests.processors.test_properties import quick


def walked(walk: list[bytes]) -> Log:
    log = Log()
    walks.run(log, walk)
    return log


@quick
@given(st.integers(0, 2**32).map(walks.deep), st.integers(1, 40))
def test_totals_are_the_ledgers_own_figures(walk: list[bytes], batch: int) -> None:
    log = walked(walk)
    messages, view = decisions(log), View()
    for at in range(0, len(messages), batch):
        view.take_decisions(messages[max(0, at - 7) : at + batch])  # some of them again
    for line in view.runs().runs:
        run = log.ledger.run(line.run_id)
        if not run.head.config_version or run.head.closed:
            continue
        now = view.now(line.run_id)
        assert now is not None
        totals, figures = now.totals, snapshot(run)
        assert totals.decisions == run.head.sequence
        assert {(one.record_type, one.reason): one.count for one in totals.refusals} == {
            (one.record_type, one.reason): one.count for one in figures.refusals
        }
        assert [(one.up_to, one.admitted, one.refused) for one in totals.drift] == [
            (one.up_to, one.admitted, one.refused) for one in figures.drift
        ]
        assert {one.at: one.count for one in totals.consumed_by_lag} == {
            one.lag: one.count for one in figures.consumed_by_lag
        }
        failures = Counter(told(totals.failures))
        failures["reward"] += spoilt(log, "RewardFailed")
        assert failures == Counter(failures_of(figures))
        happened, stages = Counter({one.name: one.count for one in figures.happened}), Counter(told(totals.stages))
        stages["rewarded"] += spoilt(log, "RewardReady")
        for stage, event in STAGES.items():
            hidden = stage in ("reserved", "consumed") and gives_back(log)
            assert stages[stage] == happened[event] or (hidden and stages[stage] < happened[event])


STAGES = {
    "dispatched": "dispatched",
    "generated": "generated",
    "rewarded": "reward_ready",
    "reserved": "reserve",
    "consumed": "commit",
    "discarded": "discard",
}


def told(counts: tuple[Count, ...]) -> dict[str, int]:
    return {one.name: one.count for one in counts}


def failures_of(figures: FreshnessSnapshot) -> dict[str, int]:
    events = {"generation_failed": "generation", "reward_failed": "reward"}
    return {events[one.name]: one.count for one in figures.happened if one.name in events}


def gives_back(log: Log) -> bool:
    """Whether rows were given back by the many, which decisions do not name: another update may have consumed them."""
    changes = (change for folded in log.folded for change in folded.decision.mass_changes)
    return any(change.predicate in ("trajectories released", "trajectories rolled back") for change in changes)


def spoilt(log: Log, record_type: str) -> int:
    """Facts that came before their rows, which were quarantined as they came: the decision tells the end alone."""
    decided = (folded.decision for folded in log.folded if folded.decision.record_type == "Generated")
    return sum(
        fact.record_type == record_type
        for was in decided
        if any(one.reason == "quarantined" for one in was.items)
        for fact in was.released
    )


def test_a_window_holds_what_fell_into_it_and_windows_together_are_all() -> None:
    history = trained_run()
    messages = decisions(history.log, apart_ms=700)
    view = viewed(messages)
    for size, length in ((Size.SECOND, 1_000), (Size.TEN_SECONDS, 10_000), (Size.MINUTE, 60_000)):
        series = view.series("r", size, None)
        assert series is not None
        wanted = Counter(one.time_ms - one.time_ms % length for one in messages)
        assert {one.start_ms: one.decisions for one in series.windows} == wanted
        consumed = Counter[int]()
        for window in series.windows:
            consumed.update({one.at: one.count for one in window.consumed_by_lag})
        assert consumed == {0: 2, 1: 1}


def trained_run() -> History:
    history = History().opened(max_lag=2)
    history.learner()
    history.ready("t0", "t1", "t2")
    return history.trained("u0", "t0", "t1").advanced(1, "u0").trained("u1", "t2").advanced(2, "u1")


def test_only_windows_that_changed_are_told_again() -> None:
    messages = decisions(trained_run().log, apart_ms=1_000)
    view = viewed(messages[:-3])
    before = view.series("r", Size.SECOND, None)
    assert before is not None
    view.take_decisions(messages[-3:])
    after = view.series("r", Size.SECOND, before.revision)
    assert after is not None
    assert [one.start_ms for one in after.windows] == [one.time_ms for one in messages[-3:]]
    nothing = view.series("r", Size.SECOND, after.revision)
    assert nothing is not None
    assert nothing.windows == ()


def test_windows_are_let_go_by_the_time_of_the_run() -> None:
    windows = Windows()
    for at in range(20_000):
        windows.add(BEGAN_MS + at * 1_000, {("decisions",): 1}, at)
    for size in Size:
        kept = list(windows.changed(size, None))
        assert len(kept) == min(KEPT[size], 20_000 * 1_000 // LENGTH_MS[size] + 1)


def test_a_clock_that_was_ahead_for_a_while_hides_nothing_of_what_follows() -> None:
    windows = Windows()
    for at in range(100):
        windows.add(BEGAN_MS + at * 1_000, {("decisions",): 1}, at)
    windows.add(BEGAN_MS * 2, {("decisions",): 1}, 100)
    assert [start for start, _ in windows.changed(Size.SECOND, None)] == [BEGAN_MS * 2]
    for at in range(100, 200):
        windows.add(BEGAN_MS + at * 1_000, {("decisions",): 1}, at + 1)
    assert [start for start, _ in windows.changed(Size.SECOND, None)] == [BEGAN_MS + at * 1_000 for at in range(200)]


def test_a_late_record_goes_to_the_window_of_its_time() -> None:
    windows = Windows()
    for at in (0, 1, 2, 3, 1):
        windows.add(BEGAN_MS + at * 1_000, {("decisions",): 1}, at)
    found = [(start - BEGAN_MS, window.counts["decisions",]) for start, window in windows.changed(Size.SECOND, None)]
    assert found == [(0, 1), (1_000, 2), (2_000, 1), (3_000, 1)]


def test_snapshots_stand_at_the_time_of_their_decision_whatever_comes_first() -> None:
    history = trained_run()
    messages = decisions(history.log, apart_ms=1_000)
    found = snapshot(history.run)
    kept = Message(5, BEGAN_MS + 10**9, "r", encode(found))
    for ahead in (True, False):
        view = View()
        if not ahead:
            view.take_decisions(messages)
        view.take_snapshots([kept])
        now = view.now("r")
        assert now is not None
        assert (now.snapshot, now.snapshot_ms) == (found, None if ahead else messages[-1].time_ms)
        view.take_decisions(messages)
        series = view.series("r", Size.SECOND, None)
        assert series is not None
        assert [one.start_ms for one in series.windows if one.ready_by_lag is not None] == [messages[-1].time_ms]


def test_the_time_from_generation_to_consumption() -> None:
    history = trained_run()
    now = viewed(decisions(history.log, apart_ms=1_000)).now("r")
    assert now is not None
    placed = {
        one.decision.items[0].trajectory_id: at
        for at, one in enumerate(history.log.folded)
        if one.decision.record_type == "Generated"
    }
    wanted = [
        at - placed[item.trajectory_id]
        for at, one in enumerate(history.log.folded)
        if one.decision.record_type == "Commit"
        for item in one.decision.items
    ]
    assert (now.totals.took_count, now.totals.took_sum_s) == (len(wanted), sum(wanted))
    assert sum(one.count for one in now.totals.took) == len(wanted)


def test_updates_on_the_time_line() -> None:
    history = trained_run()
    history.ready("t3", "t4")
    history.reserve("u2", "t3")
    history.reserve("u3", "t4")
    history.abort("u3")
    messages = decisions(history.log, apart_ms=1_000)
    now = viewed(messages).now("r")
    assert now is not None
    lines = {one.update_id: one for one in now.updates}
    assert {name: line.step for name, line in lines.items()} == {
        "u0": Step.COMMITTED,
        "u1": Step.COMMITTED,
        "u2": Step.RESERVED,
        "u3": Step.ABORTED,
    }
    assert now.updates[0].update_id == "u2", "the open ones come first"
    first = lines["u0"]
    assert (first.reserved, first.consumed, first.refused, first.learner_id) == (2, 2, 0, "trainer")
    assert first.reserved_ms is not None
    assert first.started_ms is not None
    assert first.ended_ms is not None
    assert first.reserved_ms < first.started_ms < first.ended_ms
    history.learner()
    again = viewed(decisions(history.log, apart_ms=1_000)).now("r")
    assert again is not None
    assert {one.update_id: one.step for one in again.updates}["u2"] is Step.ABORTED


def test_runs_that_are_too_many_give_their_place_to_newer_ones() -> None:
    log = Log()
    for at in range(MOST_RUNS + 3):
        History(f"r{at}", log=log).opened()
    view = viewed(decisions(log))
    runs = view.runs()
    assert [one.run_id for one in runs.runs][:2] == [f"r{MOST_RUNS + 2}", f"r{MOST_RUNS + 1}"]
    assert (len(runs.runs), runs.left_out) == (MOST_RUNS, 3)


def test_a_run_that_comes_back_begins_anew_and_says_so() -> None:
    log, runs = Log(), [f"r{at:03}" for at in range(MOST_RUNS + 1)]
    for run in runs:
        History(run, log=log).opened()
    first = History(runs[0], log=log)
    view = viewed(decisions(log))
    before = len(log.folded)
    first.generated("t0")
    view.take_decisions(decisions(log, begin=before))
    now = view.now(runs[0])
    assert now is not None
    assert now.run.since == now.run.decisions > 1
    assert now.totals.decisions == 1
    assert (view.now(runs[1]), view.left_out) == (None, 1)


def test_closed_runs_give_their_place_first() -> None:
    log = Log()
    for at in range(MOST_RUNS):
        History(f"r{at:03}", log=log).opened()
    History(f"r{MOST_RUNS - 1:03}", log=log).closed()
    History("another", log=log).opened()
    view = viewed(decisions(log))
    assert view.now(f"r{MOST_RUNS - 1:03}") is None
    assert (view.now("r000") is not None, view.left_out) == (True, 0)


@quick
@given(st.integers(0, 49), st.data())
def test_whatever_lies_there_the_fold_goes_on(seed: int, data: st.DataObject) -> None:
    messages = decisions(walked(walks.deep(seed)))
    view = View()
    for one in data.draw(st.lists(st.sampled_from(messages), max_size=20)):
        value = bytearray(one.bytes_)
        for _ in range(data.draw(st.integers(1, 4))):
            value[data.draw(st.integers(0, len(value) - 1))] = data.draw(st.integers(0, 255))
        spoilt = Message(view.records * 2, data.draw(st.integers(-1, 2**53)), one.run, bytes(value))
        view.take_decisions([spoilt])
        view.take_snapshots([spoilt])
    for line in view.runs().runs:
        now, series = view.now(line.run_id), view.series(line.run_id, Size.SECOND, None)
        assert now is not None
        assert series is not None
        assert now.model_dump_json()
        assert series.model_dump_json()


def test_what_is_no_decision_is_skipped_and_counted() -> None:
    messages = decisions(trained_run().log)
    spoilt = [Message(one.at + 1, one.time_ms, "r", one.bytes_[:40]) for one in messages]
    view = View()
    for good, bad in zip(messages, spoilt, strict=True):
        view.take_decisions([good, bad])
        view.take_snapshots([bad])
    now = view.now("r")
    assert now is not None
    assert now.totals.decisions == len(messages)
    assert view.unreadable == 2 * len(messages)
