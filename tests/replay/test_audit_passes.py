"""A pass of the audit says that something was looked at, and all of it: what is missing is told, or is a finding."""

from pathlib import Path

import pytest

from rollbook.infra.cli import run as rollbook
from rollbook.infra.settings import Topic
from rollbook.replay.audit.audit import AuditReport, audit, stretch_of
from rollbook.replay.audit.rules import Instead
from rollbook.replay.audit.whatif import what_if
from rollbook.replay.history.export import export
from rollbook.replay.history.ranges import OffsetRange
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
