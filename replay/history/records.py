"""The records of what a command was asked for, streamed."""

from collections.abc import Iterator

from rollbook.replay.history.export import watched
from rollbook.replay.history.joined import joined
from rollbook.replay.history.ofrun import is_of_run
from rollbook.replay.history.ranges import OffsetRange
from rollbook.replay.history.source import Bounds, StoredRecord
from rollbook.replay.history.targets import Targets
from rollbook.replay.progress import Watch


def records(of: Targets, watch: Watch = lambda *_: None) -> Iterator[StoredRecord]:
    """Partition by partition in the order of the offsets, each record once, however many runs files were narrowed to.
    Raises OutOfRange for a range that is not to be had, EnvironmentFault."""
    places: dict[tuple[str, int], list[Bounds]] = {}
    for one in of.ranges:
        places.setdefault((one.topic, one.partition), []).append(one.resolved(of.log))
    for (topic, partition), stretches in places.items():
        for within in joined(stretches):
            asked = OffsetRange(topic, partition, within.first, within.end)
            for stored in watched(of.log, topic, partition, within, watch, str(asked)):
                if of.run_id is None or is_of_run(stored, of.run_id):
                    yield stored
