"""A run that is counted by hand, and what may be asked of the report."""

import json
from pathlib import Path

import pytest

from rollbook.infra.command import run as rollbook
from rollbook.replay.audit.audit import stretch_of
from rollbook.replay.histories import open_history
from rollbook.replay.history.export import export
from rollbook.replay.history.ranges import OffsetRange
from rollbook.replay.survivorship.fates import Fate, Part
from rollbook.replay.survivorship.result import SurvivorshipReport, distance_of, edges_of, mean, rewards_of
from rollbook.replay.survivorship.survey import survey
from rollbook.schemas.errors import BadInput
from rollbook.schemas.records.common import PolicyRef
from rollbook.schemas.records.rollout import Purpose
from rollbook.tests.processors import parts
from rollbook.tests.processors.history import History, Log
from rollbook.tests.replay.memory_log import MemoryLog
from rollbook.tests.replay.story import DECISIONS, LIFECYCLE, SETTINGS, Story


def logged(log: Log) -> MemoryLog:
    """A told run as a log with its decisions."""
    found = MemoryLog()
    for record, decided in zip(log.records, log.folded, strict=True):
        found.append(LIFECYCLE, 0, record.key or b"", record.value or b"")
        found.append(DECISIONS, 0, decided.decision.run_id.encode(), decided.encoded)
    return found


def report_of(history: History) -> SurvivorshipReport:
    log = logged(history.log)
    return survey(log, stretch_of(log, SETTINGS, OffsetRange(LIFECYCLE, 0), history.run_id))


def fates(report: SurvivorshipReport) -> dict[str, int]:
    return {fate.value: count for fate, count in report.total.fates}


def task_of(report: SurvivorshipReport, name: str) -> dict[str, int]:
    found = next(one for one in report.tasks if one.task_id == parts.task(name).task_id)
    return {fate.value: count for fate, count in found.became.fates}


def trained(history: History, update_id: str, *names: str, drifted: str = "") -> None:
    """An update by name."""
    history.reserve(update_id, *names)
    history.admit(update_id, {name: 5.0 if name == drifted else 0.0 for name in names})
    history.started(update_id)
    history.commit(update_id, *(name for name in names if name != drifted))


@pytest.fixture
def history() -> History:
    made = History().opened(max_lag=0)
    made.learner()
    return made


def test_refused_for_drift_and_as_stale_and_too_old_by_now(history: History) -> None:
    history.ready("consumed", "drifted", "asked", "unasked")
    trained(history, "u0", "consumed", "drifted", drifted="drifted")
    history.advanced(1, "u0")
    history.reserve("u1", "asked", by=PolicyRef(version=1, artifact_hash=parts.policy(1).artifact_hash))
    report = report_of(history)
    assert fates(report) == {"consumed": 1, "refused_stale": 1, "refused_drift": 1, "waiting_stale": 1}
    assert [(one.fate, one.why) for one in report.causes] == [
        (Fate.REFUSED_STALE, "stale_policy"),
        (Fate.REFUSED_DRIFT, "policy_drift"),
    ]
    assert report.of(Part.REFUSED).count == 2
    assert report.of(Part.NEVER_TRAINED).count == 3
    assert {one.task_id for one in report.starved} == {parts.task(name).task_id for name in ("asked", "drifted")}


def test_what_waits_is_not_starved_until_it_has_come_to_its_end(history: History) -> None:
    history.ready("waits")
    assert report_of(history).starved == ()
    history.discarded("waits")
    assert [one.task_id for one in report_of(history).starved] == [parts.task("waits").task_id]


def test_what_is_for_evaluation_starves_nobody(history: History) -> None:
    history.ready("held-out", purpose=Purpose.EVAL)
    report = report_of(history)
    assert fates(report) == {"evaluation": 1}
    assert report.total.share_consumed is None
    assert report.starved == ()
    assert report.total.mean_reward is None
    assert report.of(Part.EVALUATION).count == 1


def test_a_failure_counts_with_the_task_of_its_group_also_where_it_comes_first(history: History) -> None:
    history.failed("t0", group="g", sample=0, of=3)
    history.generated("t1", group="g", sample=1, of=3)
    history.failed("t2", group="g", sample=2, of=3)
    history.failed("alone")
    report = report_of(history)
    assert task_of(report, "g") == {"generation_failed": 2, "unrewarded": 1}
    assert [one.became.trajectories for one in report.tasks if one.task_id is None] == [1]
    assert report.reached.generated == 1
    assert report.lengths[0].last is None


def test_why_a_reward_could_not_be_had_is_known_also_where_the_failure_came_first(history: History) -> None:
    history.reward_failed("t0")
    history.generated("t0")
    history.generated("t1")
    history.reward_failed("t1")
    report = report_of(history)
    assert fates(report) == {"reward_failed": 2}
    assert [(one.why, one.count) for one in report.causes] == [("timeout", 2)]


def test_what_is_refused_at_entry_counts_once_and_with_the_reward_that_waits_for_it(history: History) -> None:
    unknown = parts.contract_named("another")
    for _ in range(2):
        history.generated("t0", contract=unknown)
    history.generated("t1", contract=unknown)
    history.rewarded("t0", reward=0.25)
    history.generated("t1")
    report = report_of(history)
    assert fates(report) == {"refused_at_entry": 1, "unrewarded": 1}
    assert [(one.why, one.count) for one in report.causes] == [("unregistered_contract", 1)]
    assert report.of(Part.REFUSED).mean == 0.25
    history.generated("t0")
    taken_in = report_of(history)
    assert fates(taken_in) == {"waiting": 1, "unrewarded": 1}
    assert taken_in.of(Part.ALL).mean == 0.25


def test_at_the_end_of_a_run_everything_is_what_it_was(history: History) -> None:
    """What an update held is given back, and the ledger forgets it all."""
    history.ready("held", "waits", "trained")
    history.generated("unscored")
    history.dispatched("begun")
    trained(history, "u0", "trained")
    history.reserve("u1", "held")
    assert fates(report_of(history))["reserved"] == 1
    history.closed()
    history.generated("late")
    report = report_of(history)
    assert report.closed
    assert fates(report) == {"consumed": 1, "waiting": 2, "unrewarded": 1, "in_flight": 1, "refused_at_entry": 1}
    assert report.of(Part.NEVER_TRAINED).count == 2
    assert not history.run.trajectories.values()


def test_at_the_end_of_a_run_what_is_too_old_by_then_is_told(history: History) -> None:
    history.ready("trained", "old")
    trained(history, "u0", "trained")
    history.advanced(1, "u0")
    history.closed()
    assert fates(report_of(history)) == {"consumed": 1, "waiting_stale": 1}


def test_what_was_trained_on_and_undone_is_no_more_consumed_until_it_is_taken_again(history: History) -> None:
    history.ready("t0", "t1")
    trained(history, "u0", "t0", "t1")
    history.learner(incarnation="second")
    undone = report_of(history)
    assert fates(undone) == {"rolled_back": 2}
    assert (undone.of(Part.ROLLED_BACK).count, undone.of(Part.NEVER_TRAINED).count) == (2, 0)
    trained(history, "u1", "t0")
    assert fates(report_of(history)) == {"consumed": 1, "rolled_back": 1}


def test_a_run_in_which_nothing_happened_has_no_figures(history: History) -> None:
    report = report_of(history)
    assert report.total.trajectories == 0
    assert report.edges == ()
    assert report.distance is None
    assert all(one.mean is None and one.bins == () for one in report.rewards)


def test_figures_beyond_a_float_are_left_out_and_break_nothing() -> None:
    values = [-1.7e308, 1.7e308, 1.7e308]
    edges = edges_of(values)
    found = rewards_of(Part.ALL, values, edges)
    assert found.deviation is None
    assert (found.minimum, found.maximum, sum(found.bins)) == (-1.7e308, 1.7e308, 3)
    assert mean([1.7e308, 1.7e308]) is None
    assert json.loads(json.dumps([*edges, *found.quartiles], allow_nan=False)) == [*edges, *found.quartiles]


def test_the_distance_of_two_distributions() -> None:
    assert distance_of([0.0, 1.0], [0.0, 1.0, 0.0, 1.0]) == 0.0
    assert distance_of([0.0, 0.0], [1.0]) == 1.0
    assert distance_of([0.0, 1.0], [1.0, 1.0]) == 0.5
    assert distance_of([], [1.0]) is None


# --- the command


@pytest.fixture
def file(tmp_path: Path) -> str:
    made = Story().opened()
    made.update("u0", [made.group("a")])
    made.group("b", (0.5, None))
    ranges = [OffsetRange(LIFECYCLE, 0), OffsetRange(DECISIONS, 0)]
    return str(export(made.log, SETTINGS, ranges, tmp_path / "run.avro").path)


def test_the_command_says_what_the_method_answers(file: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert rollbook(["report", file, "--run", "run-a", "--json"]) == 0
    told = json.loads(capsys.readouterr().out)
    with open_history(file, run="run-a") as history:
        report = history.report()
    assert told["total"]["fates"]["consumed"] == report.total.count(Fate.CONSUMED) == 2
    assert told["total"]["fates"]["reward_failed"] == 1
    assert told["rewards"]["never_trained"]["mean"] == 0.5
    assert rollbook(["report", file, "--run", "run-a"]) == 0
    lines = capsys.readouterr().out
    assert lines.startswith("run run-a: 4 trajectories in t.lifecycle:0:0-")
    assert "  reward_failed              1  invalid_output 1\n" in lines
    assert "  starved: 0 of 1 task\n" in lines


def test_a_history_that_does_not_fit_is_refused(capsys: pytest.CaptureFixture[str]) -> None:
    made = Story().opened()
    made.update("u0", [made.group("a")])
    stored = list(made.log.read(LIFECYCLE, 0, 0, made.end))[3]
    made.log.remove(LIFECYCLE, 0, stored.offset)
    with pytest.raises(BadInput, match=r"is not there.*rollbook audit"):
        survey(made.log, stretch_of(made.log, SETTINGS, None, made.run_id))


def test_a_run_that_does_not_begin_here_and_no_run_are_refused(file: str) -> None:
    with (
        pytest.raises(BadInput, match="begin with the run's first record"),
        open_history(file, "lifecycle:0:2-", run="run-a") as later,
    ):
        later.report()
    with pytest.raises(BadInput, match="a report is of one run"), open_history(file) as whole:
        whole.report()
    assert rollbook(["report", file, "--run", "nobody"]) == 2


@pytest.mark.parametrize("name", ["report.txt", "nowhere/report.html", "folder.html", "notes.html"])
def test_a_place_where_no_page_can_be_is_refused_before_the_report(
    file: str, tmp_path: Path, name: str, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "folder.html").mkdir()
    (tmp_path / "notes.html").write_text("<p>My notes</p>")
    assert rollbook(["report", file, "--run", "run-a", "--out", str(tmp_path / name)]) == 2
    assert capsys.readouterr().out == ""
    assert (tmp_path / "notes.html").read_text() == "<p>My notes</p>"


def test_a_page_replaces_an_older_one(file: str, tmp_path: Path) -> None:
    page = tmp_path / "report.html"
    for _ in range(2):
        assert rollbook(["report", file, "--run", "run-a", "--out", str(page)]) == 0
        page.write_text(page.read_text() + "older")
    assert page.read_text().count("older") == 1
