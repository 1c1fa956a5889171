"""The page that an audit keeps: in nobody's place, whole or not at all, and what a file says draws nothing in it."""

from pathlib import Path

import pytest

from rollbook.infra.command import run as rollbook
from rollbook.replay.audit.audit import AuditReport, audit, stretch_of
from rollbook.replay.audit.findings import Finding, FindingKind
from rollbook.replay.audit.report import keep, lines
from rollbook.replay.history.export import export
from rollbook.replay.history.ranges import OffsetRange
from rollbook.tests.replay.story import DECISIONS, LIFECYCLE, SETTINGS, Story

NOTES = "# What I found out\n"


@pytest.fixture
def story() -> Story:
    made = Story().opened()
    made.update("u0", [made.group("a")])
    return made


@pytest.fixture
def file(story: Story, tmp_path: Path) -> str:
    ranges = [OffsetRange(LIFECYCLE, 0), OffsetRange(DECISIONS, 0)]
    return str(export(story.log, SETTINGS, ranges, tmp_path / "run.avro", payloads=True).path)


@pytest.mark.parametrize("name", ["audit.md", "audit.html"])
def test_a_page_replaces_an_older_one_and_nothing_else(
    file: str, tmp_path: Path, name: str, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    page = tmp_path / name
    page.touch()
    assert rollbook(["audit", file, "--report", str(page)]) == 0
    page.write_text(first := page.read_text() + "an older one")
    assert rollbook(["audit", file, "--report", str(page)]) == 0
    assert "PASS" in page.read_text() != first
    page.write_text(NOTES)
    capsys.readouterr()
    monkeypatch.setattr("rollbook.replay.histories.audit", None)
    assert rollbook(["audit", file, "--report", str(page)]) == 2
    said = capsys.readouterr()
    assert said.out == "", "it is told before the audit"
    assert "is no page of an audit" in said.err
    assert page.read_text() == NOTES


@pytest.mark.parametrize("name", ["audit.txt", "audit", "nowhere/audit.md", "folder.md"])
def test_a_place_where_no_page_can_be_is_refused_before_the_audit(
    file: str, tmp_path: Path, name: str, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "folder.md").mkdir()
    assert rollbook(["audit", file, "--report", str(tmp_path / name)]) == 2
    assert capsys.readouterr().out == ""


def test_the_answer_is_told_where_the_disk_is_full_and_the_older_page_stays(
    file: str, tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    page = tmp_path / "audit.md"
    assert rollbook(["audit", file, "--report", str(page)]) == 0
    older = page.read_text()
    capsys.readouterr()

    def full(path: Path, text: str, encoding: str) -> int:
        path.touch()
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(Path, "write_text", full)
    assert rollbook(["audit", file, "--report", str(page)]) == 3
    said = capsys.readouterr()
    assert said.out.startswith("PASS")
    assert "No space left" in said.err
    assert page.read_text() == older
    assert sorted(path.name for path in tmp_path.iterdir()) == ["audit.md", "run.avro"]


def test_what_a_file_says_draws_nothing(story: Story, tmp_path: Path) -> None:
    escape = "\x1b[31m\n<script>"
    stretch = stretch_of(story.log, SETTINGS, OffsetRange(LIFECYCLE, 0), None)
    report = audit(story.log, SETTINGS, stretch).report
    finding = Finding(FindingKind.RECORD_GONE, escape, escape, {escape: escape}, {escape: escape})
    evil = AuditReport(
        lifecycle=f"{escape}lifecycle",
        partition=0,
        within=report.within,
        run_id=escape,
        decided=1,
        undecided=0,
        heads=(),
        checked=report.checked,
        findings=(finding,),
        unchecked=(escape,),
    )
    assert all(line.isprintable() for line in lines(evil))
    for name in ("audit.md", "audit.html"):
        keep([evil], tmp_path / name)
        assert "\x1b" not in (tmp_path / name).read_text()
    assert "<script>" not in (tmp_path / "audit.html").read_text()


def test_reports_can_be_in_a_set(story: Story) -> None:
    """As whatever is frozen: to compare runs, or the audits of two days."""
    stretch = stretch_of(story.log, SETTINGS, OffsetRange(LIFECYCLE, 0), None)
    one, again = (audit(story.log, SETTINGS, stretch).report for _ in range(2))
    story.log.remove(LIFECYCLE, 0, story.end - 2)
    other = audit(story.log, SETTINGS, stretch).report
    assert other.findings
    assert {one, again, other} == {one, other}
