"""Figures of the compacted ledger: held against those derived where both were counted from the same decision on."""

import pytest

from rollbook.processors.ledger.figures import ADMITTED, SINCE, THROUGH, is_figure
from rollbook.processors.ledger.keys import key_of, parse_key, position_key
from rollbook.replay.audit.audit import AuditReport, audit, stretch_of
from rollbook.replay.audit.findings import FindingKind
from rollbook.replay.audit.ledger import rows_of
from rollbook.replay.history.ranges import OffsetRange
from rollbook.schemas.codec import decode_as, encode
from rollbook.schemas.records.decision import Tally
from rollbook.schemas.records.ledger import Position
from rollbook.tests.processors.uncounting import uncounting
from rollbook.tests.replay.story import LIFECYCLE, SETTINGS, Story
from rollbook.tests.replay.test_audit_tampering import LEDGER

UNTOLD = "figures of run run-a in the compacted ledger: other decisions are counted there"


@pytest.fixture
def story() -> Story:
    made = Story().opened()
    made.update("u0", [made.group("a"), made.group("b")])
    return made


def kept(story: Story, **others: int | None) -> AuditReport:
    """The audit of a ledger topic whose tallies of these beginnings say something else; None: it has no such row."""
    for key, value in rows_of(story.ledger):
        _, kind, name = parse_key(key)
        told: int | None = -1
        if kind == "tally":
            told = next((count for begins, count in others.items() if str(name).startswith(begins)), -1)
        if told is not None:
            row = value if told < 0 else encode(decode_as(Tally, value).but(count=told))
            story.log.append(LEDGER, 0, key, row)
    position = Position(next_offset=story.end, transactional_id="teller")
    story.log.append(LEDGER, 0, position_key(0), encode(position))
    return audit(story.log, SETTINGS, stretch_of(story.log, SETTINGS, OffsetRange(LIFECYCLE, 0), None)).report


def test_they_are_rows_like_all_others(story: Story) -> None:
    report = kept(story)
    assert (report.findings, UNTOLD in report.unchecked) == ((), False)
    assert [tally for tally in story.ledger.run("run-a").tallies.values() if is_figure(tally.name)]


@pytest.mark.parametrize(("which", "count"), [(ADMITTED, 99), (ADMITTED, None), (SINCE, None), (THROUGH, None)])
def test_one_that_differs_is_a_finding(story: Story, which: str, count: int | None) -> None:
    report = kept(story, **{which: count})
    assert {one.kind for one in report.findings} == {FindingKind.LEDGER_DIFFERS}
    assert all(which in one.what for one in report.findings)


@pytest.mark.parametrize(
    "others",
    [{"figure: ": None}, {SINCE: 99, ADMITTED: 1}, {THROUGH: 2, ADMITTED: 1}],
)
def test_those_that_another_rollbook_began_later_or_never_are_told_as_unchecked(
    story: Story, others: dict[str, int | None]
) -> None:
    report = kept(story, **others)
    assert report.findings == ()
    assert UNTOLD in report.unchecked


@pytest.mark.parametrize("goes_on", [False, True])
def test_those_of_a_run_that_a_rollbook_had_in_between_which_counts_none_are_told_as_unchecked(
    story: Story, goes_on: bool
) -> None:
    """While it has the run, and after it gave it back."""
    with uncounting():
        story.update("u1", [story.group("c")])
    if goes_on:
        story.update("u2", [story.group("d")])
    report = kept(story)
    assert report.findings == ()
    assert UNTOLD in report.unchecked


def test_other_tallies_are_held_against_the_log_all_the_same(story: Story) -> None:
    report = kept(story, **{"figure: ": None, "reserve": 99})
    assert [one.said for one in report.findings] == [{"count": "99"}]
    assert UNTOLD in report.unchecked


def test_of_one_run_nothing_is_said_of_the_figures_of_others(story: Story) -> None:
    since = next(tally for tally in story.ledger.run("run-a").tallies.values() if tally.name == SINCE)
    story.log.append(LEDGER, 0, key_of("run-b", "tally", SINCE), encode(since))
    kept(story)
    report = audit(story.log, SETTINGS, stretch_of(story.log, SETTINGS, None, "run-a")).report
    assert report.findings == ()
    assert not [text for text in report.unchecked if "figures" in text]
