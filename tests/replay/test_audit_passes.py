"""A pass of the audit says that something was looked at, and all of it: what is missing is told, or is a finding."""

import json
from dataclasses import replace
from pathlib import Path

import pytest

from rollbook.infra.command import run as rollbook
from rollbook.infra.settings import Topic
from rollbook.replay.audit.audit import AuditReport, audit, stretch_of
from rollbook.replay.audit.findings import FindingKind
from rollbook.replay.audit.rules import Instead
from rollbook.replay.audit.whatif import what_if
from rollbook.replay.history.container import write
from rollbook.replay.history.export import export
from rollbook.replay.history.file import FileLog
from rollbook.replay.history.ranges import OffsetRange
from rollbook.replay.history.source import OutOfRange
from rollbook.schemas.errors import BadInput
from rollbook.tests.replay.story import DECISIONS, LIFECYCLE, SETTINGS, Story


@pytest.fixture
def story() -> Story:
    made = Story().opened()
    made.update("u0", [made.group("a"), made.group("b")])
    return made


def audited(story: Story, run_id: str | None = None) -> AuditReport:
    return audit(story.log, SETTINGS, stretch_of(story.log, SETTINGS, OffsetRange(LIFECYCLE, 0), run_id)).report


def test_a_run_that_is_not_there_does_not_pass(
    story: Story, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(BadInput, match=f"{LIFECYCLE}:0:0-{story.end}: there is no record of run no-such-run"):
        audited(story, "no-such-run")
    with pytest.raises(BadInput, match="no record of run no-such-run"):
        what_if(story.log, stretch_of(story.log, SETTINGS, None, "no-such-run"), Instead(max_lag=2))
    ranges = [OffsetRange(SETTINGS.topic(topic), 0) for topic in (Topic.LIFECYCLE, Topic.DECISIONS)]
    file = str(export(story.log, SETTINGS, ranges, tmp_path / "whole.avro").path)
    for more in ([], ["--with", "max_lag=2"]):
        assert rollbook(["audit", "--run", "no-such-run", file, *more]) == 2
        told = capsys.readouterr()
        assert (told.out, "no record of run no-such-run" in told.err) == ("", True)


def test_records_without_any_decision_do_not_pass(story: Story) -> None:
    story.log.lose(DECISIONS, 0, story.log.bounds(DECISIONS, 0).end)
    for run_id in (None, story.run_id):
        with pytest.raises(BadInput, match=f"has a decision in {DECISIONS}:0: give all of the decisions"):
            audited(story, run_id)


@pytest.mark.parametrize("run_id", [None, "run-a"])
def test_decisions_that_are_not_retained_are_no_tampering(story: Story, run_id: str | None) -> None:
    story.log.lose(DECISIONS, 0, 5)
    end = story.log.bounds(DECISIONS, 0).end
    with pytest.raises(OutOfRange) as told:
        audited(story, run_id)
    assert f"{DECISIONS}:0: the decision of {LIFECYCLE}:0@0 is not retained" in str(told.value)
    assert f"an anchor in {LIFECYCLE}:0:4-; to be had are offsets 5 to {end - 1}" in str(told.value)
    story.log.remove(DECISIONS, 0, 5)
    with pytest.raises(OutOfRange):
        audited(story, run_id)


@pytest.mark.parametrize("more", [[], ["--run", "run-a"]])
def test_a_file_that_was_changed_fails_in_every_form_of_the_answer(
    story: Story, tmp_path: Path, capsys: pytest.CaptureFixture[str], more: list[str]
) -> None:
    """Here a time was changed, which no decision vouches for."""
    path = changed(story, tmp_path)
    with FileLog([path]) as log:
        stretch = stretch_of(log, SETTINGS, OffsetRange(LIFECYCLE, 0), None)
        for _ in range(2):
            report = audit(log, SETTINGS, stretch).report
            assert [one.kind for one in report.findings] == [FindingKind.FILE_CHANGED]
    page = tmp_path / "audit.md"
    assert rollbook(["audit", str(path), *more, "--json", "--report", str(page)]) == 1
    (found,) = map(json.loads, capsys.readouterr().out.splitlines())
    (finding,) = found["findings"]
    assert (found["passed"], finding["kind"], finding["place"]) == (False, "file_changed", str(path))
    assert finding["there"]["records"] == finding["derived"]["records"]
    assert finding["there"]["sha256"] != finding["derived"]["sha256"]
    assert "## Failed" in page.read_text()
    assert "file_changed" in page.read_text()
    assert rollbook(["audit", str(path), *more]) == 1
    assert "FAIL" in capsys.readouterr().out.splitlines()[0]


def changed(story: Story, folder: Path) -> Path:
    """A file in which a record has another time than when it was exported."""
    whole = [OffsetRange(SETTINGS.topic(topic), 0) for topic in (Topic.LIFECYCLE, Topic.DECISIONS)]
    with FileLog([export(story.log, SETTINGS, whole, folder / "honest.avro").path]) as log:
        contents = log.contents[0]
        records = [list(log.read(one.topic, one.partition, one.start, one.end)) for one in contents.sections]
    later = replace(records[0][3], timestamp_ms=records[0][3].timestamp_ms + 1)
    path = folder / "changed.avro"
    honest, *_ = write(folder / "same.avro", contents, records)
    other, *_ = write(path, contents, [[*records[0][:3], later, *records[0][4:]], *records[1:]])
    path.write_bytes(path.read_bytes().replace(other.digest.encode(), honest.digest.encode()))
    return path
