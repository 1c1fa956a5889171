"""Offset ranges as they are written, and against what is to be had."""

import pytest

from rollbook.infra.settings import Settings
from rollbook.replay.history.ranges import OffsetRange, parse_range
from rollbook.replay.history.source import Bounds, OutOfRange, StoredRecord
from rollbook.schemas.errors import BadInput
from rollbook.tests.replay.memory_log import MemoryLog

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


def timed() -> MemoryLog:
    """A record each second from 1970-01-01T00:00:01Z on, then none."""
    log = MemoryLog()
    log.put("t.lifecycle", 0, 4, [StoredRecord("t.lifecycle", 0, at, 1_000 * (at + 1), None, None) for at in range(4)])
    return log


@pytest.mark.parametrize(
    ("text", "start", "end"),
    [
        ("@1970-01-01T00:00:01Z-", 0, 4),
        ("@1970-01-01T00:00:01.000001Z-", 1, 4),
        ("@1970-01-01T01:00:02+01:00-@1970-01-01T00:00:03.0001Z", 1, 3),
        ("@1969-12-31T23:59:59.999Z-3", 0, 3),
        ("@0001-01-01T00:00:00-@9999-12-31T23:59:59.999", 0, 4),
    ],
)
def test_times_are_those_of_the_first_record_that_is_not_before(text: str, start: int, end: int) -> None:
    wanted = parse_range(f"lifecycle:0:{text}", SETTINGS)
    assert wanted.resolved(timed()) == Bounds(start, end)
    assert parse_range(str(wanted), SETTINGS) == wanted


@pytest.mark.parametrize(
    "text",
    [
        "@0001-01-01T00:00:00+14:00-@0001-01-01T00:00:00+13:00",
        "@9999-12-31T23:59:59-14:00-",
        "-@9999-12-31T23:59:59.999999Z",
    ],
)
def test_times_that_no_calendar_has_are_told(text: str) -> None:
    with pytest.raises(BadInput, match="outside of the years 1 to 9999 of UTC: leave that side out"):
        parse_range(f"lifecycle:0:{text}", SETTINGS)


@pytest.mark.parametrize(
    ("text", "told"),
    [
        ("@2027-01-01T00:00:00.000Z-", "no record is of that time"),
        ("@1970-01-01T00:00:09.000Z-@1970-01-01T00:00:02.000Z", "START must be before END, which is exclusive"),
        ("@1970-01-01T00:00:02.000Z-@1970-01-01T00:00:02.000Z", "START must be before END, which is exclusive"),
        ("@1970-01-01T00:00:01.001Z-@1970-01-01T00:00:01.002Z", "no record is of that time"),
        ("-@1970-01-01T00:00:00.500Z", "no record is of that time"),
        ("3-@1970-01-01T00:00:02.000Z", "no record is of that time"),
        ("@1970-01-01T00:00:02.000Z-9", "offset 8 is beyond the end"),
    ],
)
def test_times_of_which_there_is_nothing_are_told_as_they_were_given(text: str, told: str) -> None:
    with pytest.raises(OutOfRange) as problem:
        parse_range(f"lifecycle:0:{text}", SETTINGS).resolved(timed())
    assert str(problem.value) == f"t.lifecycle:0:{text}: {told}; to be had are offsets 0 to 3"
