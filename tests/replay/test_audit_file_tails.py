"""A tail that was taken out of a file is missed by what is left in it; a file of a run that goes on has nothing of what
is not in it."""

from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from rollbook.infra.settings import Topic
from rollbook.processors.ledger.keys import position_key
from rollbook.replay.audit.audit import AuditReport, audit, stretch_of
from rollbook.replay.audit.findings import Finding, FindingKind
from rollbook.replay.audit.ledger import rows_of
from rollbook.replay.history.export import export
from rollbook.replay.history.ranges import OffsetRange
from rollbook.replay.history.source import Bounds, StoredRecord
from rollbook.replay.history.targets import opened
from rollbook.schemas.codec import decode, encode
from rollbook.schemas.records.decision import Decision
from rollbook.schemas.records.ledger import Position, TrajectoryState
from rollbook.tests.replay.memory_log import MemoryLog
from rollbook.tests.replay.story import DECISIONS, LIFECYCLE, SETTINGS, Story

LEDGER = SETTINGS.topic(Topic.LEDGER)


class Live(MemoryLog):
    """The run goes on when a topic is asked for its end. `shows`: how many decisions can be seen."""

    def __init__(self) -> None:
        super().__init__()
        self.goes_on: dict[str, Callable[[], None]] = {}
        self.hidden = 0

    def bounds(self, topic: str, partition: int) -> Bounds:
        self.goes_on.pop(topic, lambda: None)()
        found = super().bounds(topic, partition)
        if topic != DECISIONS or not self.hidden:
            return found
        self.hidden -= 1
        return Bounds(found.first, found.end - 6)

    def read(self, topic: str, partition: int, start: int, end: int) -> Iterator[StoredRecord]:
        return super().read(topic, partition, start, min(end, super().bounds(topic, partition).end))


@pytest.fixture
def log() -> Live:
    return Live()


@pytest.fixture
def story(log: Live) -> Story:
    made = Story(log=log).opened()
    made.update("u0", [made.group("a")])
    keep_ledger(made)
    return made


def keep_ledger(story: Story, stands: int | None = None) -> None:
    position = Position(next_offset=story.end if stands is None else stands, transactional_id="teller")
    for key, value in (*rows_of(story.ledger), (position_key(0), encode(position))):
        story.log.append(LEDGER, 0, key, value)


def exported(story: Story, path: Path, end: int | None = None, run_id: str | None = None) -> Path:
    ranges = [OffsetRange(LIFECYCLE, 0, None, end), OffsetRange(DECISIONS, 0), OffsetRange(LEDGER, 0)]
    return export(story.log, SETTINGS, ranges, path, run_id=run_id, payloads=True).path


def audited(*texts: str | Path) -> AuditReport:
    with opened(texts) as of:
        lifecycle = next(one for one in of.ranges if one.topic == LIFECYCLE)
        return audit(of.log, of.settings, stretch_of(of.log, of.settings, lifecycle, None)).report


def the_one(path: Path) -> Finding:
    (finding,) = audited(path).findings
    return finding


runs = pytest.mark.parametrize("run_id", [None, "run-a"])
hurried = pytest.mark.usefixtures("impatient")


@pytest.fixture
def impatient(monkeypatch: pytest.MonkeyPatch) -> None:
    """What was taken away is not waited for."""
    monkeypatch.setattr("rollbook.replay.history.together._SETTLES_S", 0.0)


@runs
def test_a_file_of_all_of_it_passes(story: Story, tmp_path: Path, run_id: str | None) -> None:
    report = audited(exported(story, tmp_path / "run.avro", run_id=run_id))
    assert (report.findings, report.undecided) == ((), 0)
    assert not any("ledger" in text for text in report.unchecked)


@runs
def test_records_whose_decisions_are_in_the_file_are_missed(story: Story, tmp_path: Path, run_id: str | None) -> None:
    story.log.cut(LIFECYCLE, 0, end := story.end - 3)
    found = the_one(exported(story, tmp_path / "run.avro", run_id=run_id))
    assert (found.kind, found.place) == (FindingKind.RECORD_GONE, f"{LIFECYCLE}:0@{end}")


@runs
@hurried
def test_decisions_that_the_ledger_in_the_file_has_are_missed(story: Story, tmp_path: Path, run_id: str | None) -> None:
    at, first = decided(story)[-3]
    story.log.cut(DECISIONS, 0, at)
    found = the_one(exported(story, tmp_path / "run.avro", run_id=run_id))
    assert (found.kind, found.place) == (FindingKind.RECORD_UNDECIDED, f"{LIFECYCLE}:0@{first.source.offset}")


@runs
@hurried
def test_records_and_decisions_that_the_ledger_in_the_file_has_are_missed(
    story: Story, tmp_path: Path, run_id: str | None
) -> None:
    at, first = decided(story)[-3]
    story.log.cut(DECISIONS, 0, at)
    story.log.cut(LIFECYCLE, 0, first.source.offset)
    found = the_one(exported(story, tmp_path / "run.avro", run_id=run_id))
    assert found.kind is FindingKind.LEDGER_DIFFERS
    assert found.derived == {"next_offset": str(first.source.offset)}


@hurried
def test_a_ledger_that_stands_behind_the_end_of_its_file_hides_no_row(story: Story, tmp_path: Path) -> None:
    keep_ledger(story, story.end + 1)
    found = the_one(exported(story, tmp_path / "run.avro"))
    assert (found.kind, found.said) == (FindingKind.LEDGER_DIFFERS, {"next_offset": str(story.end + 1)})


@runs
@pytest.mark.parametrize("behind", [1, 5, None])
def test_a_ledger_is_held_against_the_state_where_it_stands_or_has_no_place(
    story: Story, tmp_path: Path, run_id: str | None, behind: int | None
) -> None:
    """Else who edits its rows has them looked at by nobody, with another position or with none."""
    at = story.log.bounds(LEDGER, 0).end - 1
    if behind is None:
        story.log.remove(LEDGER, 0, at)
    else:
        position = Position(next_offset=story.end - behind, transactional_id="teller")
        story.log.tamper(LEDGER, 0, at, encode(position))
    findings = audited(exported(story, tmp_path / "run.avro", run_id=run_id)).findings
    assert {one.kind for one in findings} == {FindingKind.LEDGER_DIFFERS}
    assert ("position" in findings[0].what) == (behind is None)


@runs
def test_a_ledger_that_stands_before_the_end_is_held_against_the_state_there(
    story: Story, tmp_path: Path, run_id: str | None
) -> None:
    story.update("u1", [story.group("b")])
    story.log.marker(LEDGER, 0)
    path = exported(story, tmp_path / "run.avro", run_id=run_id)
    report = audited(path)
    assert report.findings == ()
    assert not any("ledger" in text for text in report.unchecked)
    bounds = story.log.bounds(LEDGER, 0)
    row = next(one for one in story.log.read(LEDGER, 0, 0, bounds.end) if b"trajectory" in (one.key or b""))
    changed = decode(row.value or b"")
    assert isinstance(changed, TrajectoryState)
    story.log.tamper(LEDGER, 0, row.offset, encode(changed.but(revision=77)))
    found = the_one(exported(story, tmp_path / "forged.avro", run_id=run_id))
    assert (found.kind, found.said) == (FindingKind.LEDGER_DIFFERS, {"revision": "77"})


def test_ranges_with_an_end_and_files_of_their_own_may_have_more_of_one_than_of_the_other(
    story: Story, tmp_path: Path
) -> None:
    middle = story.end - 3
    part = exported(story, tmp_path / "part.avro", end=middle)
    report = audited(part, f"lifecycle:0:-{middle}")
    assert report.findings == ()
    assert report.decided == middle
    assert "the compacted ledger" in report.unchecked[-1]
    assert the_one(part).kind is FindingKind.RECORD_GONE
    early = export(story.log, SETTINGS, [OffsetRange(LIFECYCLE, 0)], tmp_path / "early.avro").path
    story.group("b")
    keep_ledger(story)
    ranges = [OffsetRange(DECISIONS, 0), OffsetRange(LEDGER, 0)]
    late = export(story.log, SETTINGS, ranges, tmp_path / "late.avro").path
    report = audited(early, late)
    assert report.findings == ()
    assert "3 decisions: of records behind the end of what was given" in report.unchecked, "a tail may also be gone"
    assert "the compacted ledger" in report.unchecked[-1]


@runs
def test_a_file_of_a_run_that_goes_on_passes(story: Story, log: Live, tmp_path: Path, run_id: str | None) -> None:
    """Whatever is asked for its end first, and whichever partition shows a transaction last."""

    def go_on() -> None:
        story.group(f"g{story.end}")
        keep_ledger(story)

    log.goes_on = dict.fromkeys((LIFECYCLE, DECISIONS, LEDGER), go_on)
    log.hidden = 5
    report = audited(exported(story, tmp_path / "run.avro", run_id=run_id))
    assert log.goes_on == {}
    assert report.findings == ()


def decided(story: Story) -> list[tuple[int, Decision]]:
    bounds = story.log.bounds(DECISIONS, 0)
    stored = list(story.log.read(DECISIONS, 0, bounds.first, bounds.end))
    found = [(one.offset, decode(one.value or b"")) for one in stored]
    return [(offset, decision) for offset, decision in found if isinstance(decision, Decision)]
