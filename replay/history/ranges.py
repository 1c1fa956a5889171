"""Offset ranges as people write them: `TOPIC:PARTITION:START-END`, END exclusive, either side open."""

import re
from dataclasses import dataclass

from rollbook.infra.settings import Settings, Topic
from rollbook.replay.history.source import Bounds, OutOfRange
from rollbook.replay.text import visible
from rollbook.schemas.errors import BadInput

_FORM = re.compile(r"(?P<topic>[A-Za-z0-9._-]+):(?P<partition>[0-9]{1,9}):(?P<start>[0-9]{0,18})-(?P<end>[0-9]{0,18})")


@dataclass(frozen=True, slots=True)
class OffsetRange:
    """Offsets [start, end) of a partition; None leaves a side open. `topic` is the full name on the cluster."""

    topic: str
    partition: int
    start: int | None = None
    end: int | None = None

    def __str__(self) -> str:
        start, end = ("" if side is None else str(side) for side in (self.start, self.end))
        return f"{self.topic}:{self.partition}:{start}-{end}"

    def within(self, bounds: Bounds) -> Bounds:
        """Both sides as offsets. Raises OutOfRange when the range is empty, reversed, or reaches over the bounds."""
        start = bounds.first if self.start is None else self.start
        end = bounds.end if self.end is None else self.end
        if start < bounds.first:
            raise OutOfRange(str(self), f"offset {start} is not retained any more", bounds)
        if end > bounds.end:
            raise OutOfRange(str(self), f"offset {end - 1} is beyond the end", bounds)
        if start >= end:
            problem = "START must be below END, which is exclusive" if self.end is not None else "START is past the end"
            raise OutOfRange(str(self), problem if bounds.end > bounds.first else "there is no record", bounds)
        return Bounds(start, end)


def parse_range(text: str, settings: Settings) -> OffsetRange:
    """A range as given on the command line; the topic's name with the prefix or without."""
    found = _FORM.fullmatch(text)
    if found is None:
        raise BadInput(
            f"'{visible(text)}' is not an offset range: write TOPIC:PARTITION:START-END, END exclusive and either side "
            "left out for an open one, such as lifecycle:0:0-100 or lifecycle:0:-"
        )
    start, end = (int(found[side]) if found[side] else None for side in ("start", "end"))
    return OffsetRange(_topic(found["topic"], settings), int(found["partition"]), start, end)


def _topic(name: str, settings: Settings) -> str:
    for topic in Topic:
        if name in (topic.value, settings.topic(topic)):
            return settings.topic(topic)
    raise BadInput(
        f"'{visible(name)}' is no topic of prefix '{settings.topic_prefix}': use one of {', '.join(Topic)}, or set "
        "ROLLBOOK_TOPIC_PREFIX"
    )
