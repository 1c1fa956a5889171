"""Offset ranges as people write them: `TOPIC:PARTITION:START-END`, END exclusive, either side open or a time."""

import re
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime, timedelta

from rollbook.infra.settings import Settings, Topic
from rollbook.replay.history.source import Bounds, LogSource, OutOfRange
from rollbook.schemas.errors import BadInput
from rollbook.schemas.text import visible

_SIDE = r"[0-9]{0,18}|@[0-9A-Za-z:.+-]{1,40}"
_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_REVERSED = "START must be below END, which is exclusive"
_FORM = re.compile(rf"(?P<topic>[A-Za-z0-9._-]+):(?P<partition>[0-9]{{1,9}}):(?P<start>{_SIDE}?)-(?P<end>{_SIDE})")


@dataclass(frozen=True, slots=True)
class Moment:
    """A time in place of an offset: that of the first record which the topic has stamped so late, or later."""

    timestamp_ms: int

    def __str__(self) -> str:
        text = (_EPOCH + timedelta(milliseconds=self.timestamp_ms)).isoformat(timespec="milliseconds")
        return f"@{text.removesuffix('+00:00')}Z"


Side = int | Moment | None


@dataclass(frozen=True, slots=True)
class OffsetRange:
    """Offsets [start, end) of a partition; None leaves a side open. `topic` is the full name on the cluster; `run`: of
    this run alone, where files were narrowed to runs; `is_open`: that it goes as far as the log, whatever its END;
    `from_first`: that it begins where the log does, whatever its START."""

    topic: str
    partition: int
    start: Side = None
    end: Side = None
    run: str | None = None
    is_open: bool = field(default=False, compare=False)
    from_first: bool = field(default=False, compare=False)

    def __str__(self) -> str:
        start, end = ("" if side is None else str(side) for side in (self.start, self.end))
        return f"{self.topic}:{self.partition}:{start}-{end}"

    def resolved(self, log: LogSource) -> Bounds:
        """Both sides as offsets of the log. Raises OutOfRange as `within` does, and what the source raises."""
        bounds = log.bounds(self.topic, self.partition)
        start, end = (self._offset(log, side, bounds) for side in (self.start, self.end))
        if isinstance(self.start, Moment) or isinstance(self.end, Moment):
            self._check_times(start, end, bounds)
        return replace(self, start=start, end=end)._within(bounds, str(self))

    def _check_times(self, start: int | None, end: int | None, bounds: Bounds) -> None:
        """Where times name no record of what is there, offsets that nobody has given would explain nothing."""
        times = [side.timestamp_ms for side in (self.start, self.end) if isinstance(side, Moment)]
        if len(times) == 2 and times[0] >= times[1]:
            problem = "START must be before END, which is exclusive"
        elif (bounds.first if start is None else start) >= (bounds.end if end is None else end):
            problem = "no record is of that time"
        else:
            return
        raise OutOfRange(str(self), problem, bounds)

    def _offset(self, log: LogSource, side: Side, bounds: Bounds) -> int | None:
        if not isinstance(side, Moment):
            return side
        found = log.offset_at(self.topic, self.partition, side.timestamp_ms)
        return bounds.end if found is None else min(max(found, bounds.first), bounds.end)

    def within(self, bounds: Bounds) -> Bounds:
        """Both sides as offsets. Raises OutOfRange when the range is empty, reversed, or reaches over the bounds."""
        return self._within(bounds, str(self))

    def _within(self, bounds: Bounds, place: str) -> Bounds:
        """`place`: as it was given."""
        if isinstance(self.start, Moment) or isinstance(self.end, Moment):
            raise TypeError("only the log knows at which offset a time is: use resolved")
        start = bounds.first if self.start is None else self.start
        end = bounds.end if self.end is None else self.end
        if self.start is not None and self.end is not None and start >= end:
            raise OutOfRange(place, _REVERSED, bounds)
        if start < bounds.first:
            raise OutOfRange(place, f"offset {start} is not retained any more", bounds)
        if end > bounds.end:
            raise OutOfRange(place, f"offset {end - 1} is beyond the end", bounds)
        if start >= end:
            problem = _REVERSED if self.end is not None else "START is past the end"
            raise OutOfRange(place, problem if bounds.end > bounds.first else "there is no record", bounds)
        return Bounds(start, end)


def check_apart(log: LogSource, ranges: Sequence[OffsetRange]) -> None:
    """Raises BadInput where two have a record in common, which would be counted twice; of several of one partition also
    what `resolved` raises."""
    for at, one in enumerate(ranges):
        for other in ranges[:at]:
            same_place = (one.topic, one.partition) == (other.topic, other.partition)
            if same_place and (one.run == other.run or None in (one.run, other.run)):
                within, theirs = one.resolved(log), other.resolved(log)
                if within.first < theirs.end and theirs.first < within.end:
                    raise BadInput(f"{other} and {one} overlap: give each offset once")


def looks_like_range(text: str) -> bool:
    """Whether a text has the form of a range, whatever topic it names."""
    return _FORM.fullmatch(text) is not None


def parse_range(text: str, settings: Settings) -> OffsetRange:
    """A range as given on the command line; the topic's name with the prefix or without."""
    found = _FORM.fullmatch(text)
    if found is None:
        raise BadInput(
            f"'{visible(text)}' is not an offset range: write TOPIC:PARTITION:START-END, END exclusive and either side "
            "left out for an open one or a time as @ISO8601, such as lifecycle:0:0-100, lifecycle:0:- or "
            "lifecycle:0:@2026-01-31T12:00:00Z-"
        )
    start, end = (_side(found[side], text) for side in ("start", "end"))
    return OffsetRange(_topic(found["topic"], settings), int(found["partition"]), start, end)


def _side(side: str, text: str) -> Side:
    if not side:
        return None
    if not side.startswith("@"):
        return int(side)
    try:
        moment = datetime.fromisoformat(side[1:])
    except ValueError as error:
        raise BadInput(
            f"'{visible(text)}' has a side that is no time ({error}): write it as @2026-01-31T12:00:00Z, and a '-' "
            "behind START"
        ) from None
    since = (moment if moment.tzinfo is not None else moment.replace(tzinfo=UTC)) - _EPOCH
    # Records have whole milliseconds: the first that is not before.
    found = Moment(-(-since // timedelta(milliseconds=1)))
    try:
        str(found)
    except (ValueError, OverflowError):
        raise BadInput(
            f"'{visible(text)}' has a time outside of the years 1 to 9999 of UTC: leave that side out"
        ) from None
    return found


def _topic(name: str, settings: Settings) -> str:
    for topic in Topic:
        if name in (topic.value, settings.topic(topic)):
            return settings.topic(topic)
    raise BadInput(
        f"'{visible(name)}' is no topic of prefix '{settings.topic_prefix}': use one of {', '.join(Topic)}, or set "
        "ROLLBOOK_TOPIC_PREFIX"
    )
