"""Updates, policies and trajectories as the dashboard keeps them: what was done to them by many, and by none of their
own records."""

from collections.abc import Iterator
from itertools import count, islice
from typing import Any

from rollbook.processors.dashboard.answers import Now, PolicyLine, Size, Step
from rollbook.processors.dashboard.fold.places import APART_MS
from rollbook.processors.dashboard.fold.view import View
from rollbook.processors.freshness import snapshot
from rollbook.processors.metric import MOST_RUNS
from rollbook.schemas.codec import encode
from rollbook.schemas.partition import partition_of
from rollbook.tests.processors.dashboard.stored import BEGAN_MS, Message, decisions
from rollbook.tests.processors.history import History
from rollbook.tests.processors.log import Log

WORKERS = ("w0", "w1")


def shown(history: History, apart_ms: int = 1_000) -> Now:
    """What the dashboard tells of a run, with its newest snapshot."""
    view = View()
    view.take_decisions(decisions(history.log, apart_ms))
    view.take_snapshots([Message(0, BEGAN_MS, history.run_id, encode(snapshot(history.run)), history.log.partition)])
    now = view.now(history.run_id)
    assert now is not None
    return now


def policies(history: History) -> dict[int, PolicyLine]:
    return {one.version: one for one in shown(history).activation.policies}


def begun(**limits: Any) -> History:
    history = History().opened(workers=WORKERS, max_lag=2, lease_ms=60_000, **limits)
    history.learner()
    return history


def test_acks_are_of_those_who_serve_it_now() -> None:
    history = begun()
    history.ready("t0")
    history.trained("u0", "t0")
    history.prepared(1, "u0")
    for worker in WORKERS:
        history.ack(worker, 1)
    assert policies(history)[1].acks == WORKERS
    history.ack("w1", 0)
    found = policies(history)
    assert (found[0].acks, found[1].acks) == (("w1",), ("w0",))
    history.activate(1)
    found = policies(history)
    assert (found[1].state, found[1].refused, found[1].mismatched_workers) == ("prepared", "worker_mismatch", ("w1",))
    history.ack("w1", 1)
    history.activate(1)
    found = policies(history)
    assert (found[0].state, found[1].state, found[1].refused, found[1].acks) == ("retired", "active", "", WORKERS)


def test_a_policy_of_what_was_undone_is_orphaned_also_where_it_is_active() -> None:
    history = begun()
    history.ready("t0", "t1")
    history.trained("u0", "t0")
    history.prepared(1, "u0")
    for worker in WORKERS:
        history.ack(worker, 1)
    history.activate(1)
    history.reserve("u1", "t1")
    history.prepared(2, "u1")
    history.expired("u1")
    found = policies(history)
    assert (found[2].orphaned, found[1].orphaned) == (True, False)
    assert {one.update_id: one.step for one in shown(history).updates}["u1"] is Step.EXPIRED
    history.learner()  # of no checkpoint: all of its updates are undone
    found = policies(history)
    assert (found[1].state, found[1].orphaned) == ("active", True)
    assert {one.update_id: one.step for one in shown(history).updates}["u0"] is Step.ROLLED_BACK


def test_of_very_many_updates_that_end_at_once_none_stays_open() -> None:
    history = begun()
    for at in range(130):
        history.ready(f"t{at}")
        history.reserve(f"u{at}", f"t{at}")
    assert sum(one.step is Step.RESERVED for one in shown(history).updates) == 100
    history.learner()
    assert {one.step for one in shown(history).updates} == {Step.ABORTED}
    history.closed()
    assert {one.step for one in shown(history).updates} == {Step.ABORTED}


def test_what_a_lease_gives_back_and_another_has_trained_on_is_consumed() -> None:
    history = begun()
    history.ready("t0")
    history.reserve("u0", "t0")
    history.commit("u1", "t0", unreserved=True)
    history.expired("u0")
    assert history.status("t0") == "consumed"
    assert {one.name: one.count for one in shown(history).totals.stages}["consumed"] == 1


def test_a_history_names_what_was_refused_and_what_many_did() -> None:
    history = begun(max_live=2)
    history.ready("t0", "t1")
    history.generated("t2")  # the backlog is full
    history.trained("u0", "t0")
    history.learner()
    view = View()
    view.take_decisions(decisions(history.log))
    for name, told in {
        "t0": ["Generated", "RewardReady", "Reserve", "Admit", "UpdateStarted", "Commit", "LearnerStarted"],
        "t2": ["Generated"],
    }.items():
        found = view.remembered("r", name)
        assert found is not None
        assert found.complete
        said = {at * 2: folded.decision.record_type for at, folded in enumerate(history.log.folded)}
        assert [said[offset] for offset in found.offsets] == told


def test_a_history_that_many_changed_without_naming_each_is_not_complete() -> None:
    history = begun()
    for at in range(120):
        history.ready(f"t{at}")
    history.reserve("u0", *(f"t{at}" for at in range(120)))
    history.learner()
    view = View()
    view.take_decisions(decisions(history.log))
    found = view.remembered("r", "t119")
    assert found is not None
    assert not found.complete


def test_which_runs_are_kept_does_not_depend_on_which_partition_is_read_first() -> None:
    ended, name = Log(partition=0, topic_partitions=2), next(of_partition(1))
    for run in islice(of_partition(0), MOST_RUNS + 30):
        History(run, log=ended).opened()
    going = History(name, log=Log(partition=1, topic_partitions=2)).opened()
    for at in range(20):
        going.ready(f"t{at}")
    batches = [decisions(ended, apart_ms=60_000), decisions(going.log, apart_ms=50)]
    for order in (batches, batches[::-1]):
        view = View()
        for batch in order:
            for at in range(0, len(batch), 7):
                view.take_decisions(batch[at : at + 7])
        now = view.now(name)
        assert now is not None
        assert now.totals.decisions == len(going.log.folded)


def of_partition(partition: int) -> Iterator[str]:
    return (name for name in (f"run-{at}" for at in count()) if partition_of(name, 2) == partition)


def test_the_past_of_the_ready_queue_is_there_whichever_topic_is_read_first() -> None:
    history, snapshots = begun(), []
    for at in range(300):
        history.ready(f"t{at}")
        found = encode(snapshot(history.run))
        snapshots.append(Message(at, BEGAN_MS, "r", found))
    view = View()
    view.take_snapshots(snapshots)
    view.take_decisions(decisions(history.log, apart_ms=APART_MS))
    series = view.series("r", Size.SECOND, None)
    assert series is not None
    without = [one.start_ms for one in series.windows[1:] if one.ready_by_lag is None]
    assert without == []


def test_leases_are_told_by_the_times_of_the_log_and_not_before_they_are_known() -> None:
    history = begun()
    history.ready("t0")
    history.reserve("u0", "t0")
    found = Message(0, BEGAN_MS, "r", encode(snapshot(history.run)))
    view = View()
    messages = decisions(history.log, apart_ms=1_000)
    view.take_decisions(messages[:-1])
    view.take_snapshots([found])
    now = view.now("r")
    assert now is not None
    assert [one.lease_until_ms for one in now.updates] == []
    view.take_decisions(messages)
    now = view.now("r")
    assert now is not None
    assert [one.lease_until_ms for one in now.updates] == [messages[-1].time_ms + 60_000]


def test_a_run_of_which_only_a_snapshot_is_left_comes_last_and_has_no_metrics() -> None:
    gone, there = begun(), History("there").opened()
    gone.closed()
    view = View()
    view.take_snapshots([Message(0, BEGAN_MS, gone.run_id, encode(snapshot(gone.run)))])
    view.take_decisions(decisions(there.log))
    first, last = view.runs().runs
    assert (first.run_id, last.run_id) == ("there", gone.run_id)
    assert (last.since, last.first_ms, last.last_ms) == (0, BEGAN_MS, BEGAN_MS)
    assert [run.run_id for run, _ in view.figures()] == ["there"]


def test_a_snapshot_under_the_key_of_another_run_is_none() -> None:
    history, view = begun(), View()
    view.take_snapshots([Message(0, BEGAN_MS, "ghost", encode(snapshot(history.run)))])
    assert (view.runs().runs, view.unreadable) == ((), 1)


def test_a_decision_of_very_many_rows_is_shown_without_making_it() -> None:
    history = begun(max_live=10_000)
    names = [f"{at:08}" for at in range(5_000)]
    history.ready(*names)
    history.reserve("u0", *names)
    view = View()
    view.take_decisions(decisions(history.log))
    found = view.decisions("r", 1)
    assert found is not None
    (line,) = found.decisions
    decision = history.log.folded[-1].decision
    assert [(one.name, one.count) for one in line.items] == [("reserved", 5_000)]
    assert line.trajectory_ids == tuple(names[:8])
    assert (line.sequence, line.source_offset, line.update_id) == (decision.sequence, decision.source.offset, "u0")


def test_what_is_admitted_again_counts_once_also_where_reading_begins_in_mid_update() -> None:
    history = begun()
    history.ready("t0", "t1")
    history.reserve("u0", "t0", "t1")
    begin = len(history.log.folded)
    for part in range(2):
        history.admit("u0", {"t0": 0.01, "t1": 0.01}, part=part)
    view = View()
    view.take_decisions(decisions(history.log, begin=begin))
    now = view.now("r")
    assert now is not None
    assert {one.name: one.count for one in now.totals.stages} == {"admitted": 2}
