"""Offset ranges as they are written, and against what is to be had."""

import pytest

from rollbook.infra.settings import Settings
from rollbook.replay.history.ranges import OffsetRange, parse_range
from rollbook.replay.history.source import Bounds, OutOfRange
from rollbook.schemas.errors import BadInput

SETTINGS = Settings(topic_prefix="t.")


@pytest.mark.parametrize(
    ("text", "found"),
    [
        ("lifecycle:0:0-100", OffsetRange("t.lifecycle", 0, 0, 100)),
        ("t.lifecycle:3:5-", OffsetRange("t.lifecycle", 3, 5, None)),
        ("decisions:12:-7", OffsetRange("t.decisions", 12, None, 7)),
        ("dead-letters:0:-", OffsetRange("t.dead-letters", 0)),
    ],
)
def test_a_range_is_read(text: str, found: OffsetRange) -> None:
    assert parse_range(text, SETTINGS) == found
    assert parse_range(str(found), SETTINGS) == found


@pytest.mark.parametrize(
    ("text", "fault"),
    [
        ("", "not an offset range"),
        ("lifecycle", "not an offset range"),
        ("lifecycle:0", "not an offset range"),
        ("lifecycle:0:5", "not an offset range"),
        ("lifecycle:x:0-5", "not an offset range"),
        ("lifecycle:-1:0-5", "not an offset range"),
        ("lifecycle:0:-5-9", "not an offset range"),
        ("lifecycle:0:0-5\n", "not an offset range"),
        ("lifecycle:0:0-" + "9" * 19, "not an offset range"),
        ("other.lifecycle:0:0-5", "is no topic of prefix 't.'"),
        ("lifecyle:0:0-5", "is no topic of prefix 't.'"),
    ],
)
def test_what_is_no_range_is_told_with_the_form(text: str, fault: str) -> None:
    with pytest.raises(BadInput) as told:
        parse_range(text, SETTINGS)
    assert fault in str(told.value)
    assert "\n" not in str(told.value)


@pytest.mark.parametrize(
    ("text", "start", "end"),
    [("-", 10, 20), ("12-", 12, 20), ("-12", 10, 12), ("10-20", 10, 20), ("19-20", 19, 20)],
)
def test_open_sides_reach_to_what_is_to_be_had(text: str, start: int, end: int) -> None:
    assert parse_range(f"lifecycle:0:{text}", SETTINGS).within(Bounds(10, 20)) == Bounds(start, end)


@pytest.mark.parametrize(
    ("text", "fault"),
    [
        ("9-12", "offset 9 is not retained any more"),
        ("12-21", "offset 20 is beyond the end"),
        ("15-12", "START must be below END"),
        ("12-12", "START must be below END"),
        ("20-", "START is past the end"),
        ("25-", "START is past the end"),
        ("-5", "START must be below END"),
    ],
)
def test_what_is_not_to_be_had_is_told_with_what_is(text: str, fault: str) -> None:
    with pytest.raises(OutOfRange, match=f"t.lifecycle:0:{text}: {fault}.*; to be had are offsets 10 to 19"):
        parse_range(f"lifecycle:0:{text}", SETTINGS).within(Bounds(10, 20))


def test_an_empty_partition_has_no_range() -> None:
    with pytest.raises(OutOfRange, match="there is no record; it is empty"):
        OffsetRange("t.lifecycle", 0).within(Bounds(7, 7))
