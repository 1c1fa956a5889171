"""Which of several exported files hold a run, where they may be of several clusters: topics of two can have the same
names, and what lies there is not one log."""

from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack
from itertools import islice
from pathlib import Path

from rollbook.infra.settings import Topic
from rollbook.replay.history.container import Contents, topic_of
from rollbook.replay.history.export import watched
from rollbook.replay.history.file import FileLog, contents_at
from rollbook.replay.history.source import Bounds, StoredRecord
from rollbook.replay.history.strays import is_stray
from rollbook.replay.progress import Watch
from rollbook.schemas.errors import BadInput
from rollbook.schemas.partition import partition_of
from rollbook.schemas.text import visible

_SHOWN = 5
_COMPARED = 64
"""Records of a stretch that two files both have; of files that were narrowed to runs some are of one alone."""


def files_of(paths: Sequence[Path], run_id: str) -> list[Path]:
    """Those with lifecycle records of the run, and of the others those that may belong to the same log: parts of it
    without a record of the run, or its payloads. Where none has any it is those that could."""
    contents = {path: contents_at(path) for path in paths}
    able = {path: one for path, one in contents.items() if _may_hold(one, run_id, Topic.LIFECYCLE)}
    own = {path: one for path, one in able.items() if len(able) == 1 or _holds(path, one, run_id)} or able
    others = [
        path
        for path, one in contents.items()
        if path not in own and (path in able or _is_beside(one)) and _may_hold(one, run_id)
    ]
    beside = [path for path in others if _is_of_one_log(path, contents[path], own)]
    return [path for path in paths if path in own or path in beside]


def run_of(paths: Sequence[Path], watch: Watch = lambda *_: None) -> str:
    """The run of files that hold records of no other. Raises BadInput for those of several runs, or of none."""
    runs = sorted({run for path in paths for run in _runs(path, contents_at(path), watch)})
    if len(runs) == 1:
        return runs[0]
    named = ", ".join(map(visible, paths))
    if not runs:
        raise BadInput(f"{named}: no record of any run is there: give a file with lifecycle records")
    others = f" and {len(runs) - _SHOWN} more" if len(runs) > _SHOWN else ""
    raise BadInput(
        f"{named}: records of {len(runs)} runs are there, and one is wanted: add --run with one of "
        f"{', '.join(map(visible, runs[:_SHOWN]))}{others}"
    )


def _runs(path: Path, contents: Contents, watch: Watch) -> Iterator[str]:
    for section in contents.sections:
        if topic_of(section.topic, contents.topic_prefix) is not Topic.LIFECYCLE:
            continue
        if section.run is not None:
            yield section.run
            continue
        within = Bounds(section.start, section.end)
        what = f"looking for runs in {section.topic}:{section.partition}"
        seen = set[bytes | None]()
        with FileLog([path]) as log:
            partitions = log.partitions(section.topic)
            for record in watched(log, section.topic, section.partition, within, watch, what):
                if record.key not in seen and not is_stray(record, partitions):
                    seen.add(record.key)
        yield from (key.decode("utf-8", "replace") for key in seen if key is not None)


def _may_hold(contents: Contents, run_id: str, of: Topic | None = None) -> bool:
    return any(
        section.run in (None, run_id)
        for section in contents.sections
        if of in (None, topic_of(section.topic, contents.topic_prefix))
    )


def _is_beside(contents: Contents) -> bool:
    """Whether it has no lifecycle records."""
    return not any(topic_of(one.topic, contents.topic_prefix) is Topic.LIFECYCLE for one in contents.sections)


def _holds(path: Path, contents: Contents, run_id: str) -> bool:
    """Whether a lifecycle record has the run's key. Of a file of the run alone that is known."""
    for section in contents.sections:
        if topic_of(section.topic, contents.topic_prefix) is not Topic.LIFECYCLE:
            continue
        if section.run == run_id:
            return True
        with FileLog([path]) as log:
            if section.run is None and section.partition == partition_of(run_id, log.partitions(section.topic)):
                records = log.read(section.topic, section.partition, section.start, section.end)
                if any(one.key == run_id.encode() for one in records):
                    return True
    return False


def _is_of_one_log(path: Path, contents: Contents, own: Mapping[Path, Contents]) -> bool:
    """Whether it can be of the same log as one of them, and is not seen to be of another."""
    able = [other for other, one in own.items() if one.is_of_cluster(contents)]
    told = [_same(path, other) for other in able]
    return bool(able) and (True in told or False not in told)


def _same(one: Path, other: Path) -> bool | None:
    """Whether two files have the same record at the first offset that they both have; None where they share none."""
    with ExitStack() as stack:
        a, b = (stack.enter_context(FileLog([path])) for path in (one, other))
        for mine, theirs in _shared(a, b):
            at = {record.offset: record for record in mine}
            for record in theirs:
                if record.offset in at:
                    return at[record.offset] == record
    return None


def _shared(a: FileLog, b: FileLog) -> Iterator[tuple[Iterator[StoredRecord], Iterator[StoredRecord]]]:
    """The beginnings of the stretches that both have."""
    for mine in a.sections:
        for theirs in b.sections:
            start, end = max(mine.start, theirs.start), min(mine.end, theirs.end)
            if (mine.topic, mine.partition) == (theirs.topic, theirs.partition) and start < end:
                of_a, of_b = (log.read(mine.topic, mine.partition, start, end) for log in (a, b))
                yield islice(of_a, _COMPARED), islice(of_b, _COMPARED)
