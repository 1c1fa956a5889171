"""Replay of all that a run committed, straight from the log: what a folder of its bundles says, update by update."""

import json
from pathlib import Path

import pytest

from rollbook.infra.command import run as rollbook
from rollbook.replay.bundle.model import StageId
from rollbook.replay.engine.chain import replay_chain
from rollbook.replay.engine.result import Verdict
from rollbook.replay.engine.selection import Selection
from rollbook.replay.history.export import export
from rollbook.replay.history.ranges import OffsetRange
from rollbook.replay.materialize.report import NotWritten
from rollbook.replay.materialize.walk import Wanted
from rollbook.replay.report.as_json import link_fields
from rollbook.replay.updates.replayed import ReplayedUpdate, Total, UpdateOutcome, replay_history
from rollbook.schemas.digests import float32_bytes, floats_of
from rollbook.schemas.records.payload import ArrayName, StepRecording
from rollbook.tests.producers.trl.recorded import Story as Recorded
from rollbook.tests.producers.trl.recorded import read_log, settings_of
from rollbook.tests.replay.materialized import write
from rollbook.tests.replay.story import DECISIONS, LIFECYCLE, PAYLOADS, SETTINGS, Plant, Story

BY = 0.5


def off(name: ArrayName, token: int, step: int = 0) -> Plant:
    """What a trainer records that went wrong at one token of an array, in one step."""

    def plant(recording: StepRecording) -> StepRecording:
        if recording.step_id != step:
            return recording
        arrays = []
        for one in recording.arrays:
            values = floats_of(one.data).copy()
            values[token] += BY if one.name is name else 0
            arrays.append(one.model_copy(update={"data": float32_bytes(values)}))
        return recording.model_copy(update={"arrays": tuple(arrays)})

    return plant


def three_updates(plant: Plant = lambda recording: recording) -> Story:
    """The second update has two steps, and is planted with an error."""
    story = Story().opened()
    first, second, third, fourth = (story.group(name) for name in "abcd")
    story.update("u0", [first])
    story.update("u1", [second, third], plant=plant)
    story.update("u2", [fourth])
    return story


def replayed(story: Story, selection: Selection | None = None) -> list[ReplayedUpdate]:
    return list(replay_history(story.log, Wanted.of_run(story.run_id, story.log, SETTINGS), selection).updates)


def verdict(updates: list[ReplayedUpdate]) -> Verdict:
    total = Total()
    total.outcomes.update(one.outcome for one in updates)
    return total.verdict


def in_file(story: Story, path: Path) -> str:
    ranges = [OffsetRange(topic, 0) for topic in (LIFECYCLE, DECISIONS)]
    return str(export(story.log, SETTINGS, ranges, path, payloads=True).path)


def test_a_run_passes_update_by_update_in_the_order_of_the_commits() -> None:
    found = replayed(three_updates())
    assert [(one.update_id, one.outcome, len(one.links)) for one in found] == [
        ("u0", UpdateOutcome.PASSED, 2),
        ("u1", UpdateOutcome.PASSED, 3),
        ("u2", UpdateOutcome.PASSED, 2),
    ]
    assert [one.commit for one in found] == sorted((one.commit for one in found), key=lambda at: int(at.split("@")[1]))
    assert all(one.verified_values > 50 for one in found)
    assert all(link.handovers for one in found for link in one.links[1:])
    assert verdict(found) is Verdict.PASSED


@pytest.mark.parametrize("name", [ArrayName.KL, ArrayName.ADVANTAGES, ArrayName.LOG_PROBS])
def test_it_says_what_bundles_on_disk_say(tmp_path: Path, name: ArrayName) -> None:
    story = three_updates(off(name, 5, step=1))
    write(story, tmp_path)
    for update in replayed(story):
        bundle_id = update.links[0].report.bundle_id
        chain = replay_chain(tmp_path / bundle_id)
        ours, theirs = ([link_fields(link) for link in links] for links in (update.links, chain.links))
        for one in (*ours, *theirs):
            one["bundle"] = ""
        assert ours == theirs
        assert update.first_divergence == chain.first_divergence


def test_a_divergence_in_the_second_update_is_named_with_step_stage_and_sample(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    story = three_updates(off(ArrayName.LOG_PROBS, 5, step=1))
    file = in_file(story, tmp_path / "run.avro")
    assert rollbook(["replay", file]) == 1
    told = capsys.readouterr().out.splitlines()
    assert [line.split()[0] for line in told if not line.startswith(" ")] == ["PASS", "DIVERGES", "PASS", "diverges:"]
    assert told[2] == "  in bundle run-a-uu1-r3-s1 (step 3:1)"
    assert told[3].startswith("    first divergence: loss.policy, sample_")
    assert told[4].startswith("      sample c.1, token 1: ")
    assert told[-1] == "diverges: 3 committed updates: 2 pass, 1 diverges"
    (found,) = (one for one in replayed(story) if one.first_divergence)
    assert found.first_divergence is not None
    divergence = found.first_divergence.divergence
    assert (found.update_id, divergence.stage, divergence.point.sample_id) == ("u1", StageId.LOSS_POLICY, "c.1")


def test_a_step_that_took_over_something_else_is_named_before_it_is_replayed(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    story = Story().opened()
    group = story.group("a")
    story.update("u0", [group, group], plant=off(ArrayName.ADVANTAGES, 1, step=1))
    (found,) = replayed(story)
    first = found.first_divergence
    assert first is not None
    assert (first.bundle_id, first.in_handover, first.divergence.point.sample_id) == ("run-a-uu0-r3-s1", True, "a.0")
    assert rollbook(["replay", in_file(story, tmp_path / "run.avro")]) == 1
    assert capsys.readouterr().out.splitlines()[1] == "  on the way to bundle run-a-uu0-r3-s1 (step 3:1)"


def test_it_stops_at_the_first_on_request_and_prints_a_line_each(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    file = in_file(three_updates(off(ArrayName.ADVANTAGES, 2, step=1)), tmp_path / "run.avro")
    assert rollbook(["replay", file, "--first", "--json"]) == 1
    *updates, last = map(json.loads, capsys.readouterr().out.splitlines())
    assert [(one["update_id"], one["outcome"]) for one in updates] == [("u0", "pass"), ("u1", "diverges")]
    first = updates[1]["first_divergence"]
    assert (first["bundle_id"], first["in_handover"]) == ("run-a-uu1-r3", False)
    assert (first["stage"], first["sample_id"], first["token_offset"]) == ("advantage.estimate", "c.0", 2)
    assert [one["step_id"] for one in updates[1]["bundles"]] == [None, 0, 1]
    assert (last["kind"], last["verdict"], last["committed"]) == ("summary", "diverges", 3)
    assert rollbook(["replay", "lifecycle:0:0-4", file]) == 4
    assert "unverified: 0 committed updates" in capsys.readouterr().out


def test_what_cannot_be_replayed_is_told_with_its_reason_and_is_no_pass() -> None:
    story = Story().opened()
    groups = [story.group(name) for name in "abc"]
    story.update("u0", [groups[0]])
    story.reserve("u1", groups[1])
    story.start("u1")
    story.commit("u1", [groups[1]])
    before = story.log.bounds(PAYLOADS, 0).end
    story.update("u2", [groups[2]])
    story.log.remove(PAYLOADS, 0, before)
    found = replayed(story)
    reasons = [[problem.reason for problem in one.problems] for one in found]
    assert reasons == [[], [NotWritten.RANK_NOT_SEALED], [NotWritten.PAYLOAD_GONE]]
    assert verdict(found) is Verdict.UNVERIFIED
    assert verdict(found[:1]) is Verdict.PASSED
    assert verdict(found[1:]) is Verdict.UNVERIFIED


def test_nothing_verified_exits_4(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    story = Story().opened()
    group = story.group("a")
    story.reserve("u0", group)
    story.start("u0")
    story.commit("u0", [group])
    assert rollbook(["replay", in_file(story, tmp_path / "run.avro")]) == 4
    told = capsys.readouterr().out
    assert "NOT REPLAYED  update u0 of run run-a at t.lifecycle:0@" in told
    assert "rank_not_sealed: An expected rank's RecordingSealed was not accepted (yet)." in told


def test_without_payloads_in_the_file_nothing_is_verified(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    story = three_updates()
    ranges = [OffsetRange(topic, 0) for topic in (LIFECYCLE, DECISIONS)]
    file = str(export(story.log, SETTINGS, ranges, tmp_path / "run.avro").path)
    assert rollbook(["replay", file]) == 4
    told = capsys.readouterr()
    assert told.out.count("payload_gone: A payload is not retained any more. payload topic t.payloads is not in") == 3
    assert told.out.splitlines()[-1] == "unverified: 3 committed updates: 3 not replayed"
    assert told.err == (
        "nothing differs, but not all could be verified, which is no pass: 3 updates payload_gone (A payload is not "
        "retained any more)\n"
    )


def test_what_is_only_recorded_is_no_pass_and_says_why(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    story = Story(remote_rewards=True).opened()
    story.update("u0", [story.group("a")])
    file = in_file(story, tmp_path / "run.avro")
    assert rollbook(["replay", file]) == 0
    capsys.readouterr()
    assert rollbook(["replay", file, "--stage", "reward.raw"]) == 4
    told = capsys.readouterr().out.splitlines()
    assert told[0].startswith("UNVERIFIED    update u0 of run run-a")
    assert "in bundle run-a-uu0-r3 (rollout 3), rank 0: reward.raw: its contract says recorded-only" in told[1]


def test_what_a_later_start_undid_is_told_and_does_not_count() -> None:
    story = Story().opened()
    first, second, third = (story.group(name) for name in "abc")
    story.update("u0", [first])
    story.save("c0", "u0")
    story.update("u1", [second])
    story.start_learner("c0")
    story.update("u2", [third])
    found = replayed(story)
    assert [one.outcome for one in found] == [UpdateOutcome.PASSED, UpdateOutcome.ROLLED_BACK, UpdateOutcome.PASSED]
    assert verdict(found) is Verdict.PASSED
    assert verdict(found[1:2]) is Verdict.UNVERIFIED


def test_a_stage_by_itself_is_replayed_and_no_other() -> None:
    story = three_updates(off(ArrayName.LOG_PROBS, 5))
    assert verdict(replayed(story)) is Verdict.DIVERGES
    assert verdict(replayed(story, Selection(stages=(StageId.REWARD_POST_PROCESS,)))) is Verdict.PASSED


def test_one_update_is_read_at_a_time() -> None:
    story = three_updates()
    updates = replay_history(story.log, Wanted.of_run("run-a", story.log, SETTINGS)).updates
    assert next(updates).outcome is UpdateOutcome.PASSED
    story.log.lose(PAYLOADS, 0, story.log.bounds(PAYLOADS, 0).end)
    assert [one.problems[0].reason for one in updates] == [NotWritten.PAYLOAD_GONE] * 2


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ([], "say what to replay"),
        (["one", "two"], "one bundle at a time, not 2"),
        (["{bundle}", "--run", "run-a"], "is a folder: give bundles alone"),
        (["{bundle}", "--first"], "--first is of a history"),
        (["{file}", "--chain"], "of a history only"),
        (["{file}", "--sample", "a.0"], "of a history only"),
        (["nothing.avro"], "does not exist"),
        (["lifecycle:0:0-5", "--run", "run-a", "{file}"], "say which updates"),
        (["nothing"], "no bundle at nothing"),
    ],
)
def test_bad_use_is_one_line_with_a_remedy(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], arguments: list[str], message: str
) -> None:
    story = three_updates()
    names = {"bundle": tmp_path / "run-a-uu0-r3", "file": in_file(story, tmp_path / "run.avro")}
    write(story, tmp_path)
    assert rollbook(["replay", *(one.format(**names) for one in arguments)]) == 2
    told = capsys.readouterr()
    assert message in told.err
    assert len(told.err.splitlines()) == 1


@pytest.mark.parametrize("recorded", [Recorded.GATE, Recorded.OBSERVE, Recorded.ASYNCHRONOUS])
def test_recorded_trainings_with_trl_pass(recorded: Recorded) -> None:
    log, settings = read_log(recorded), settings_of(recorded)
    found = list(replay_history(log, Wanted.of_run(recorded.value, log, settings)).updates)
    assert len(found) == (4 if recorded is Recorded.ASYNCHRONOUS else 2)
    assert verdict(found) is Verdict.PASSED


def test_one_that_was_resumed_passes_with_the_update_that_the_resume_told_again() -> None:
    log, settings = read_log(Recorded.RESUMED), settings_of(Recorded.RESUMED)
    found = list(replay_history(log, Wanted.of_run(Recorded.RESUMED.value, log, settings)).updates)
    assert [one.outcome.value for one in found] == ["pass", "rolled back", "pass", "pass"]
    assert verdict(found) is Verdict.PASSED
