"""What a learner's later start undid is told exactly, however many updates that were and wherever the range begins."""

from collections.abc import Sequence
from pathlib import Path

import pytest

from rollbook.replay.materialize.report import NotWritten
from rollbook.schemas.codec import decode_as, encode
from rollbook.schemas.records.decision import Decision
from rollbook.tests.replay.materialized import problem, write, write_run
from rollbook.tests.replay.story import DECISIONS, LIFECYCLE, Story

MANY = 120


@pytest.fixture
def story() -> Story:
    return Story().opened()


def commits(story: Story, prefix: str, count: int) -> list[str]:
    """Committed updates of a trajectory each, not recorded: whether they stand is all that is asked."""
    names = [f"{prefix}{number:03d}" for number in range(count)]
    for name in names:
        ids = story.group(f"{story.learner_id}-{name}", (1.0,))
        story.reserve(name, ids)
        story.start(name)
        story.commit(name, [ids], ())
    return names


def undone(story: Story, out: Path, text: str = "lifecycle:0:-") -> list[str]:
    """The updates that materialize does not write because they were undone; the others lack recordings."""
    problems = write(story, out, text).problems
    assert {found.reason for found in problems} <= {NotWritten.ROLLED_BACK, NotWritten.NOT_RECORDED}
    return [found.update_id for found in problems if found.reason is NotWritten.ROLLED_BACK]


def test_a_start_from_a_checkpoint_leaves_what_the_checkpoint_contains(story: Story, tmp_path: Path) -> None:
    a, b, c = (story.group(name) for name in "abc")
    story.update("u0", [a])
    story.save("after-u0", "u0")
    story.update("u1", [b])
    start = story.start_learner("after-u0")
    story.update("u2", [c])
    report = write(story, tmp_path)
    assert [written.update_id for written in report.steps] == ["u0", "u2"]
    assert problem(report).startswith(f"u1 rolled_back: undone by {DECISIONS}:0@")
    assert start.mass_changes[0].count == 1


@pytest.mark.parametrize("kept", [0, 1, 50])
def test_more_than_a_decision_names(story: Story, tmp_path: Path, kept: int) -> None:
    first = commits(story, "u", MANY + kept)
    if kept:
        story.save("checkpoint", first[kept - 1])
    (change,) = (
        change
        for change in story.start_learner("checkpoint" if kept else None).mass_changes
        if change.predicate == "updates rolled back"
    )
    assert (change.count, len(change.first_ids)) == (MANY, 100)
    commits(story, "later", 2)
    assert undone(story, tmp_path) == first[kept:]


def test_of_another_learner_nothing_is_undone(story: Story, tmp_path: Path) -> None:
    other = Story(log=story.log, ledger=story.ledger, learner_id="learner-1", events=100_000)
    other.start_learner()
    commits(other, "theirs", 2)
    ours = commits(story, "ours", MANY)
    commits(other, "too", 2)
    story.start_learner()
    assert undone(story, tmp_path) == ours


def test_a_range_that_begins_in_the_midst_of_what_was_undone(story: Story, tmp_path: Path) -> None:
    """Before the range lie commits that stand, some undone by name, some undone by number, and the rest of these."""
    stand = commits(story, "stand", 3)
    story.save("first", stand[-1])
    commits(story, "by-number", MANY)
    story.start_learner("first")
    middle = commits(story, "middle", 5)
    story.save("second", middle[-1])
    commits(story, "by-name", 4)
    story.start_learner("second")
    before = commits(story, "before", 60)
    begins = story.end
    inside = commits(story, "inside", 70)
    story.start_learner("second")
    last = commits(story, "last", 1)
    assert undone(story, tmp_path, f"lifecycle:0:{begins}-") == inside
    part = undone(story, tmp_path, f"lifecycle:0:{begins}-{begins + 240}")
    assert part == inside[:40]
    assert set(undone(story, tmp_path)) >= {*before, *inside}
    assert not set(undone(story, tmp_path)) & {*stand, *middle, *last}


def test_a_commit_after_the_range_counts(story: Story, tmp_path: Path) -> None:
    first = commits(story, "u", 10)
    story.save("checkpoint", first[-1])
    end = story.end
    commits(story, "v", MANY)
    story.start_learner("checkpoint")
    assert undone(story, tmp_path, f"lifecycle:0:0-{end}") == []


def test_where_earlier_decisions_are_gone_all_that_follow_were_undone(story: Story, tmp_path: Path) -> None:
    commits(story, "gone", 80)
    begins = story.end
    here = commits(story, "here", 80)
    story.start_learner()
    lose_before(story, begins)
    assert undone(story, tmp_path, f"lifecycle:0:{begins}-") == here


def lose_before(story: Story, source_offset: int) -> None:
    for stored in story.log.read(DECISIONS, 0, 0, story.log.bounds(DECISIONS, 0).end):
        if decode_as(Decision, stored.value or b"").source.offset == source_offset:
            story.log.lose(DECISIONS, 0, below=stored.offset)
            return
    raise AssertionError(source_offset)


def test_decisions_that_do_not_add_up_leave_it_open(story: Story, tmp_path: Path) -> None:
    commits(story, "u", MANY)
    start = story.start_learner()
    forge_digest(story, start)
    problems = write(story, tmp_path).problems
    assert {found.reason for found in problems} == {NotWritten.DISAGREEMENT}
    assert len(problems) == MANY
    assert "whether this one stands cannot be told" in problems[0].what


def forge_digest(story: Story, start: Decision) -> None:
    (stored,) = list(story.log.read(DECISIONS, 0, 0, story.log.bounds(DECISIONS, 0).end))[-1:]
    changes = [
        change.model_copy(update={"digest": "f" * 64} if change.predicate == "updates rolled back" else {})
        for change in start.mass_changes
    ]
    forged = encode(start.model_copy(update={"mass_changes": tuple(changes)}))
    story.log.tamper(DECISIONS, 0, stored.offset, forged)


def test_an_update_asked_for_by_name_is_judged_by_all_commits(story: Story, tmp_path: Path) -> None:
    names: Sequence[str] = commits(story, "u", MANY + 1)
    story.save("checkpoint", names[0])
    story.start_learner("checkpoint")
    reasons = [write_run(story, tmp_path, "run-a", name).problems[0].reason for name in (names[0], names[1], names[-1])]
    assert reasons == [NotWritten.NOT_RECORDED, NotWritten.ROLLED_BACK, NotWritten.ROLLED_BACK]
    assert story.log.bounds(LIFECYCLE, 0).end == story.end
