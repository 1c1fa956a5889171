"""Whether a run is anywhere in a log: of one that is not every answer would be that nothing is wrong, or nothing
there."""

from collections.abc import Iterator, Sequence
from contextlib import suppress
from itertools import chain

from rollbook.infra.settings import Settings
from rollbook.replay.history.export import OF_RUNS
from rollbook.replay.history.file import FileLog
from rollbook.replay.history.ofrun import is_runs_own
from rollbook.replay.history.ranges import OffsetRange
from rollbook.replay.history.source import Bounds, LogSource, NotTheLog, OutOfRange
from rollbook.schemas.errors import BadInput
from rollbook.schemas.partition import partition_of
from rollbook.schemas.text import visible

_Place = tuple[str, int, Bounds]


def check_known(log: LogSource, settings: Settings, ranges: Sequence[OffsetRange], run_id: str) -> None:
    """Raises BadInput where the log has no record of the run, neither in the ranges nor elsewhere. It is read up to the
    first one, which lies where a command begins to read; all of it only where there is none."""
    try:
        places = chain(_asked(log, ranges), _elsewhere(log, settings, run_id))
        if any(_has(log, place, run_id) for place in places):
            return
    except (OutOfRange, NotTheLog):  # the command says so, or an audit of a file that was changed goes on
        return
    if isinstance(log, FileLog):
        raise BadInput(
            f"there is no record of run {visible(run_id)} in {log.names}: check the name, or give the run's files"
        )
    where = f"{settings.bootstrap_servers} (prefix {settings.topic_prefix})"
    raise BadInput(f"there is no record of run {visible(run_id)} on {where}: check the name, and the prefix")


def _asked(log: LogSource, ranges: Sequence[OffsetRange]) -> Iterator[_Place]:
    """The ranges but those of partitions without a record, where a name that is none leads as well. Raises OutOfRange
    for others that are not to be had."""
    for one in ranges:
        try:
            yield one.topic, one.partition, one.resolved(log)
        except OutOfRange as fault:
            if fault.bounds.end > fault.bounds.first:
                raise


def _has(log: LogSource, place: _Place, run_id: str) -> bool:
    topic, partition, within = place
    return any(is_runs_own(one, run_id) for one in log.read(topic, partition, within.first, within.end))


def _elsewhere(log: LogSource, settings: Settings, run_id: str) -> Iterator[_Place]:
    """Where records of the run would be."""
    for topic in map(settings.topic, OF_RUNS):
        with suppress(BadInput):  # the log does not have the topic
            partition = partition_of(run_id, log.partitions(topic))
            if isinstance(log, FileLog):
                found = log.stretches(topic, partition, run_id)
            else:
                found = [log.bounds(topic, partition)]
            yield from ((topic, partition, within) for within in found)
