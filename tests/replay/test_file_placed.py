"""A record that lies in a file where its section says nothing of it is read by nobody, and told."""

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest

from rollbook.replay.audit.audit import audit, stretch_of
from rollbook.replay.audit.findings import FindingKind
from rollbook.replay.history.container import Section, write
from rollbook.replay.history.export import export
from rollbook.replay.history.file import FileLog
from rollbook.replay.history.ranges import OffsetRange
from rollbook.replay.history.source import StoredRecord
from rollbook.tests.replay.story import DECISIONS, LIFECYCLE, SETTINGS, Story

Change = Callable[[StoredRecord], StoredRecord]


@pytest.fixture
def file(tmp_path: Path) -> Path:
    story = Story().opened()
    story.update("u0", [story.group("a")])
    ranges = [OffsetRange(topic, 0) for topic in (LIFECYCLE, DECISIONS)]
    return export(story.log, SETTINGS, ranges, tmp_path / "run.avro", run_id=story.run_id).path


def written_anew(file: Path, change: Change, **section: int) -> Path:
    """With totals that fit what is there; the lifecycle's section is changed, too."""
    with FileLog([file]) as log:
        contents = log.contents[0]
        bodies = [list(log.read(one.topic, 0, one.start, one.end)) for one in contents.sections]
    sections = [one.model_copy(update=section) if one.topic == LIFECYCLE else one for one in contents.sections]
    made = file.with_name("changed.avro")
    changed = [[*map(change, body)] if body[0].topic == LIFECYCLE else body for body in bodies]
    write(made, contents.model_copy(update={"sections": tuple(sections)}), changed)
    return made


def changed_in(path: Path) -> list[Section]:
    with FileLog([path]) as log:
        return [one.section for one in log.verify()]


def test_as_it_was_written_it_is_whole(file: Path) -> None:
    assert changed_in(file) == changed_in(written_anew(file, lambda one: one)) == []


@pytest.mark.parametrize(
    "change",
    [
        lambda one: replace(one, topic="t.other"),
        lambda one: replace(one, partition=3) if one.offset == 4 else one,
        lambda one: replace(one, key=b"run-b") if one.offset == 4 else one,
        lambda one: replace(one, key=None) if one.offset == 4 else one,
    ],
)
def test_a_record_of_elsewhere_is_told(file: Path, change: Change) -> None:
    assert [one.topic for one in changed_in(written_anew(file, change))] == [LIFECYCLE]


@pytest.mark.parametrize("section", [{"end": 5}, {"start": 2}])
def test_what_lies_outside_of_its_section_is_told(file: Path, section: dict[str, int]) -> None:
    assert [one.topic for one in changed_in(written_anew(file, lambda one: one, **section))] == [LIFECYCLE]


def test_an_audit_of_what_is_left_of_a_section_does_not_pass(file: Path) -> None:
    with FileLog([written_anew(file, lambda one: one, end=5)]) as log:
        report = audit(log, SETTINGS, stretch_of(log, SETTINGS, None, "run-a")).report
    assert FindingKind.FILE_CHANGED in [one.kind for one in report.findings]
