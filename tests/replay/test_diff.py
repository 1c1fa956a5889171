"""Two runs of the same tasks: the first reward, cohort, advantage or loss that differs is named on both sides."""

import json
from collections.abc import Sequence
from pathlib import Path

import pytest

from rollbook.infra.command import run as rollbook
from rollbook.replay.diff.diff import RunIn, diff_runs
from rollbook.replay.diff.result import DiffReport, DiffVerdict, NotCompared, What
from rollbook.replay.history.export import export
from rollbook.replay.history.ranges import OffsetRange
from rollbook.schemas.codec import decode
from rollbook.schemas.digests import int32_bytes, tokens_digest
from rollbook.schemas.records.common import PayloadRef, PolicyRef
from rollbook.schemas.records.payload import ArrayName, SegmentPayload, StepRecording, World
from rollbook.schemas.records.reward import RewardReady
from rollbook.schemas.records.rollout import Segment
from rollbook.tests.producers.trl.recorded import Story as Recorded
from rollbook.tests.producers.trl.recorded import read_log, settings_of
from rollbook.tests.replay import story as story_module
from rollbook.tests.replay.numbers import TrainedRow
from rollbook.tests.replay.story import DECISIONS, LIFECYCLE, SETTINGS, TASK, Plant, Story
from rollbook.tests.replay.story_parts import PROMPT, segment_of
from rollbook.tests.replay.test_materialize_ranks import of_ranks, part
from rollbook.tests.replay.test_materialize_ranks import update as of_two_ranks
from rollbook.tests.replay.test_replay_history import off

AS_IT_WAS = ((1.0, 0.0), (0.25, 0.75), (0.5, 0.0), (1.0, 0.5))

OTHER_IDS = (0, 1, 2, 77, 4)


def told(
    story: Story, rewards: Sequence[Sequence[float]] = AS_IT_WAS, plant: Plant = lambda recording: recording
) -> Story:
    """Two updates of two tasks each, whose groups have names of their own in each run; the second is planted."""
    story.opened()
    groups = []
    for row, of_group in enumerate(rewards):
        story.task = TASK.model_copy(update={"row": row, "prompt_hash": f"{row}" * 64})
        groups.append(story.group(f"{story.run_id}-{row}", of_group))
    story.update("u0", groups[:2])
    story.update("u1", groups[2:], plant=plant)
    return story


def beside(story: Story) -> Story:
    """A second run in the same log."""
    return Story("run-b", story.log, story.ledger)


def diffed(a: Story, b: Story) -> DiffReport:
    return diff_runs(RunIn(a.run_id, a.log, SETTINGS), RunIn(b.run_id, b.log, SETTINGS))


def differing(report: DiffReport) -> dict[What, int]:
    return {what: tally.differing for what, tally in report.tallies.items() if tally.differing}


def in_file(story: Story, path: Path, run_id: str | None = None) -> str:
    ranges = [OffsetRange(topic, 0) for topic in (LIFECYCLE, DECISIONS)]
    return str(export(story.log, SETTINGS, ranges, path, run_id=run_id, payloads=True).path)


def test_runs_that_did_the_same_are_the_same() -> None:
    a = told(Story())
    report = diffed(a, told(beside(a)))
    assert (report.verdict, report.updates, report.rows) == (DiffVerdict.SAME, 2, 8)
    assert report.left == ()
    counted = {what for what, tally in report.tallies.items() if tally.values}
    assert counted == set(What) - {What.LOSS_VALUE}


def test_a_reward_that_differs_in_the_second_update_is_named_on_both_sides() -> None:
    a = told(Story())
    b = told(beside(a), (*AS_IT_WAS[:3], (1.0, 0.75)))
    report = diffed(a, b)
    assert report.verdict is DiffVerdict.DIFFERENT
    first = report.first
    assert first is not None
    assert (first.what, first.field, first.number) == (What.REWARD_RAW, "raw_rewards", 2)
    assert first.row is not None
    assert (first.row.row, first.row.sample_index) == (3, 1)
    assert [(one.run_id, one.update_id, one.sample_id, one.value) for one in (first.a, first.b)] == [
        ("run-a", "u1", "run-a-3.1", 0.5),
        ("run-b", "u1", "run-b-3.1", 0.75),
    ]
    for one in (first.a, first.b):
        topic, _, offset = one.place.partition(":0@")
        (stored,) = a.log.read_at(topic, 0, [int(offset)])
        assert isinstance(decode(stored.value or b""), RewardReady)
    assert differing(report).keys() == {What.REWARD_RAW}


def test_with_rewards_that_are_not_normalised_to_the_same_all_that_follows_differs() -> None:
    a = told(Story())
    b = told(beside(a), (*AS_IT_WAS[:3], (0.5, 0.5)))
    report = diffed(a, b)
    assert report.first is not None
    assert report.first.what is What.REWARD_RAW
    assert differing(report).keys() == {
        What.REWARD_RAW,
        What.REWARD_POST_PROCESS,
        What.ADVANTAGE_ESTIMATE,
        What.LOSS_POLICY,
    }
    advantage = report.tallies[What.ADVANTAGE_ESTIMATE].first
    assert advantage is not None
    assert (advantage.number, advantage.a.sample_id, advantage.token_offset) == (2, "run-a-3.0", 0)


@pytest.mark.parametrize(
    ("name", "what"), [(ArrayName.KL, What.ADVANTAGE_KL), (ArrayName.ADVANTAGES, What.ADVANTAGE_ESTIMATE)]
)
def test_a_token_of_an_array_is_named_with_its_step(name: ArrayName, what: What) -> None:
    a = told(Story())
    report = diffed(a, told(beside(a), plant=off(name, 5, step=1)))
    first = report.first
    assert first is not None
    assert (first.what, first.number, first.a.sample_id, first.token_offset) == (what, 2, "run-a-3.1", 1)
    assert isinstance(first.a.value, float)
    assert isinstance(first.b.value, float)
    assert first.b.value - first.a.value == pytest.approx(0.5)


def test_a_loss_is_named_with_its_step_and_its_recordings() -> None:
    def plant(recording: StepRecording) -> StepRecording:
        return of_results(recording, loss=0.25) if recording.step_id == 1 else recording

    a = told(Story())
    first = diffed(a, told(beside(a), plant=plant)).first
    assert first is not None
    assert (first.what, first.field, first.number, first.row) == (What.LOSS_POLICY, "loss", 2, None)
    assert (first.a.step, first.b.step, first.a.rank) == ("3:1", "3:1", 0)
    assert first.a.place.startswith("t.payloads:0@")
    assert first.a.place != first.b.place


@pytest.mark.parametrize("kept", [True, False])
def test_tokens_are_compared_bit_by_bit(monkeypatch: pytest.MonkeyPatch, kept: bool) -> None:
    a = told(Story())
    b = beside(a)

    def other_token(row: TrainedRow, ref: PayloadRef | None, *served: PolicyRef) -> Segment:
        segment = segment_of(row, ref if kept else None, *served)
        if row.trajectory_id != "run-b-2.1":
            return segment
        digest = tokens_digest(PROMPT, OTHER_IDS)
        return segment.model_copy(update={"tokens_digest": digest})

    def arrays(one: SegmentPayload) -> SegmentPayload:
        ids = int32_bytes(OTHER_IDS)
        return one.model_copy(update={"response_ids": ids}) if one.trajectory_id == "run-b-2.1" else one

    monkeypatch.setattr(story_module, "segment_of", other_token)
    b.plant_arrays = arrays
    report = diffed(a, told(b))
    first = report.first
    assert first is not None, report.left
    assert (first.what, first.number, first.a.sample_id) == (What.TOKENS, 2, "run-a-2.1")
    assert differing(report) == {What.TOKENS: 1}
    assert first.a.place.startswith("t.lifecycle:0@")
    if kept:
        assert (first.field, first.token_offset, first.a.value, first.b.value) == ("response token", 3, 3, 77)
    else:
        assert (first.field, first.token_offset) == ("tokens_digest", None)


def normalised_with(story: Story, reward: float) -> Story:
    """A third update, of one row that was normalised with a member that it did not take."""
    group = story.group(f"{story.run_id}-9", (1.0, reward))
    story.reserve("u2", group[:1])
    story.start("u2")
    story.commit("u2", [group[:1]])
    story.seal("u2", [part(story.recording("u2", 0, group), 0)])
    return story


def test_a_member_of_a_cohort_that_was_not_taken() -> None:
    a = normalised_with(told(Story()), 0.0)
    b = normalised_with(told(beside(a)), 0.0)
    assert diffed(a, b).verdict is DiffVerdict.SAME
    a = normalised_with(told(Story()), 0.0)
    report = diffed(a, normalised_with(told(beside(a)), 0.25))
    first = report.first
    assert first is not None, report.left
    assert (first.what, first.a.value, first.b.value) == (What.COHORT, 0.0, 0.25)
    assert first.field == "raw reward of a member without a row"
    assert (first.number, first.a.sample_id) == (3, "run-a-9.0")
    assert differing(report).keys() == {What.COHORT}


def test_what_could_not_be_matched_is_said_and_nothing_is_the_same_by_that() -> None:
    a = told(Story())
    a.task = TASK.model_copy(update={"row": 9})
    a.update("u2", [a.group("more")])
    b = told(beside(a))
    report = diffed(a, b)
    assert report.verdict is DiffVerdict.NOT_COMPARABLE
    assert [(one.reason, one.number, one.update_id) for one in report.left] == [(NotCompared.NO_SUCH_UPDATE, 3, "u2")]
    b.task = TASK.model_copy(update={"row": 8})
    b.update("u2", [b.group("others")])
    report = diffed(a, b)
    assert report.left_counts == {NotCompared.NO_SUCH_ROW: 4}
    assert (report.updates, report.rows) == (3, 8)


def test_an_update_that_cannot_be_read_and_one_that_was_undone() -> None:
    a = told(Story())
    a.save("c0", "u1")
    a.update("undone", [a.group("x")])
    a.start_learner("c0")
    b = told(beside(a))
    assert (diffed(a, b).verdict, diffed(a, b).undone) == (DiffVerdict.SAME, 1)
    group = b.group("y")
    b.reserve("u2", group)
    b.start("u2")
    b.commit("u2", [group])
    a.update("u2", [a.group("z")])
    report = diffed(a, b)
    assert report.verdict is DiffVerdict.NOT_COMPARABLE
    assert [(one.reason, one.run_id) for one in report.left] == [(NotCompared.CANNOT_BE_READ, "run-b")]
    assert report.left[0].text.startswith("rank_not_sealed: ")


def on_two_ranks(story: Story, losses: Sequence[float] = (0.0, 0.0)) -> Story:
    """One step of two tasks, a rank each; `losses`: how far that of each rank is off."""
    groups = []
    for row in range(2):
        story.task = TASK.model_copy(update={"row": row})
        groups.append(story.group(f"{story.run_id}-{row}", AS_IT_WAS[row]))
    recordings = [
        of_results(story.recording("u0", 0, group), loss=off_by) for group, off_by in zip(groups, losses, strict=True)
    ]
    of_two_ranks(story, [*groups[0], *groups[1]], [of_ranks(recordings, World(dp=2))])
    return story


def of_results(recording: StepRecording, **off_by: float) -> StepRecording:
    """The recording with scalars that are off."""
    results = tuple(
        one.model_copy(update={"value": one.value + off_by.get(one.name, 0.0)}) for one in recording.results
    )
    return recording.model_copy(update={"results": results})


def test_ranks_are_held_against_each_other_and_rows_wherever_they_are() -> None:
    a = on_two_ranks(Story().opened())
    assert diffed(a, on_two_ranks(beside(a).opened())).verdict is DiffVerdict.SAME
    a = on_two_ranks(Story().opened())
    first = diffed(a, on_two_ranks(beside(a).opened(), (0.0, 0.25))).first
    assert first is not None
    assert (first.field, first.a.rank, first.b.rank, first.a.step) == ("loss", 1, 1, "3:0")
    a = on_two_ranks(Story().opened())
    b = beside(a).opened()
    groups = []
    for row in range(2):
        b.task = TASK.model_copy(update={"row": row})
        groups += b.group(f"run-b-{row}", AS_IT_WAS[row])
    b.update("u0", [groups])
    report = diffed(a, b)
    assert report.left_counts == {NotCompared.OTHER_RANKS: 1}
    assert (report.rows, report.tallies[What.REWARD_RAW].values) == (4, 8)
    assert differing(report).keys() <= {What.ADVANTAGE_KL, What.LOSS_POLICY}


def test_runs_in_one_file_and_each_in_its_own(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    a = told(Story())
    b = told(beside(a), (*AS_IT_WAS[:3], (1.0, 0.75)))
    both = in_file(a, tmp_path / "both.avro")
    each = [in_file(a, tmp_path / f"{one.run_id}.avro", one.run_id) for one in (a, b)]
    assert rollbook(["diff", "run-a", "run-b", both]) == 1
    told_of = capsys.readouterr().out
    assert "DIFFERENT  run-a and run-b: 2 updates, 8 rows, " in told_of
    assert "first difference: reward.raw, raw_rewards, in update 2, made-up row 3, group 0, sample 1" in told_of
    assert "  0.5   run run-a, update u1, sample run-a-3.1: t.lifecycle:0@" in told_of
    assert "  0.75  run run-b, update u1, sample run-b-3.1: t.lifecycle:0@" in told_of
    assert rollbook(["diff", "run-a", "run-b", *each]) == 1
    assert capsys.readouterr().out == told_of
    assert rollbook(["diff", "run-a", "run-b", *each, "--json"]) == 1
    found = json.loads(capsys.readouterr().out)
    assert (found["verdict"], found["first"]["what"], found["first"]["update"]) == ("different", "reward.raw", 2)
    assert rollbook(["diff", "run-a", "run-a", both]) == 0
    capsys.readouterr()
    assert rollbook(["diff", "run-a", "run-c", *each]) == 2
    assert "run run-c is not in " in capsys.readouterr().err
    assert rollbook(["diff", "run-a", "run-c", both]) == 2
    assert "there is no record of run run-c" in capsys.readouterr().err


def test_a_training_with_trl_computed_the_same_whether_the_ledger_gated_or_observed_it() -> None:
    gate, observe, resumed = (
        RunIn(story.value, read_log(story), settings_of(story))
        for story in (Recorded.GATE, Recorded.OBSERVE, Recorded.RESUMED)
    )
    report = diff_runs(gate, observe)
    assert (report.verdict, report.updates, report.rows, report.left) == (DiffVerdict.SAME, 2, 16, ())
    report = diff_runs(gate, resumed)
    assert (report.verdict, report.updates, report.undone) == (DiffVerdict.DIFFERENT, 2, 1)
    assert [what for what, tally in report.tallies.items() if tally.differing] == [What.COHORT]
    assert report.left_counts == {
        NotCompared.NO_SUCH_ROW: 4,
        NotCompared.NO_SUCH_STEP: 3,
        NotCompared.NO_SUCH_UPDATE: 1,
    }
