"""Export: offset ranges, or a run, of a log into one file that everything else then works from."""

import os
import secrets
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass
from functools import cache
from itertools import islice
from pathlib import Path

from rollbook.infra.settings import Settings, Topic
from rollbook.replay.history.container import ANCHOR, AnchorNote, Contents, Section, Total, write
from rollbook.replay.history.file import FileLog
from rollbook.replay.history.narrowed import narrowed_to
from rollbook.replay.history.ofrun import is_of_run
from rollbook.replay.history.ranges import OffsetRange, check_apart
from rollbook.replay.history.referenced import Referenced
from rollbook.replay.history.source import Bounds, LogSource, StoredRecord, read_there
from rollbook.replay.history.together import resolved_together
from rollbook.replay.progress import Watch
from rollbook.schemas.errors import BadInput, EnvironmentFault
from rollbook.schemas.partition import partition_of
from rollbook.schemas.text import visible

_ALL_OF_RUN = Topic.LIFECYCLE, Topic.DECISIONS, Topic.LEDGER
OF_RUNS = *_ALL_OF_RUN, Topic.FRESHNESS
"""Topics whose records are of a run each, as their keys say."""
_WATCH_EVERY = 1_000
_WATCH_PAYLOADS_EVERY = 16
"""They may be large."""
_PAYLOADS_AT_ONCE = 1_024


@dataclass(frozen=True, slots=True)
class Exported:
    """A finished file: what it holds, and how many records of each section. `gone`: records of payloads that are named,
    and that the log does not have (any more); `unknown`: references to what is no payload of the log."""

    path: Path
    sections: tuple[Section, ...]
    totals: tuple[Total, ...]
    gone: int = 0
    unknown: int = 0


def ranges_of_run(log: LogSource, settings: Settings, run_id: str) -> list[OffsetRange]:
    """All of a run: its lifecycle, and where there are any its decisions and its ledger, as far as it is not compacted;
    of files what they hold of these. Raises BadInput where that is nothing."""
    lifecycle = settings.topic(Topic.LIFECYCLE)
    partition = partition_of(run_id, log.partitions(lifecycle))
    first, *others = (OffsetRange(settings.topic(topic), partition) for topic in _ALL_OF_RUN)
    if not isinstance(log, FileLog):
        return [first, *(one for one in others if log.bounds(one.topic, partition).end > 0)]
    held = [one for one in (first, *others) if log.holds(one.topic, partition)]
    if not held:
        raise BadInput(f"run {visible(run_id)} is not in {log.names}: export it, too")
    return held


def ranges_of_all(log: LogSource, settings: Settings) -> list[OffsetRange]:
    """Every partition of the lifecycle, the decisions and the ledger that holds a record. Raises BadInput where none of
    the lifecycle does."""
    found = []
    for name in map(settings.topic, _ALL_OF_RUN):
        every = ((one, log.bounds(name, one)) for one in range(log.partitions(name)))
        found += [OffsetRange(name, one) for one, bounds in every if bounds.end > bounds.first]
        if not found:
            raise BadInput(
                f"{name} is empty on {settings.bootstrap_servers}: there is nothing to export; or set "
                "ROLLBOOK_TOPIC_PREFIX to the prefix in use"
            )
    return found


def empty_of(log: LogSource, settings: Settings, sections: Sequence[Section]) -> list[str]:
    """The lifecycle partitions that are in no section."""
    lifecycle = settings.topic(Topic.LIFECYCLE)
    held = {one.partition for one in sections if one.topic == lifecycle}
    return [f"{lifecycle}:{one}" for one in range(log.partitions(lifecycle)) if one not in held]


def export(
    log: LogSource,
    settings: Settings,
    ranges: Sequence[OffsetRange],
    out: Path,
    *,
    run_id: str | None = None,
    payloads: bool = False,
    anchor: AnchorNote | None = None,
    rows: Sequence[tuple[bytes, bytes]] = (),
    watch: Watch = lambda *_: None,
) -> Exported:
    """Write the committed records of `ranges` to `out`, of one run alone where it is given; with `payloads` also those
    that the exported lifecycle records name and that are (still) there, and with `anchor` the ledger's `rows` behind
    them. Ranges with an end give the same bytes at any time, but for those of the ledger, which is compacted.

    Streamed: memory does not grow with the ranges (a bit for each payload that is named). Raises OutOfRange for a
    range that is not to be had, BadInput for an `out` that exists or ranges that overlap, EnvironmentFault where broker
    or disk do not play along.
    """
    check_apart(log, ranges)
    resolved = zip(ranges, resolved_together(log, settings, ranges), strict=True)
    sections = tuple(_section(log, one, within, run_id) for one, within in resolved)
    check_new(out)
    payload_topic = settings.topic(Topic.PAYLOADS)
    referenced = Referenced(payload_topic, _ends(log, payload_topic), sections)
    if payloads:
        for section in (one for one in sections if one.topic == settings.topic(Topic.LIFECYCLE)):
            for record in _read(log, section, watch, "looking for payloads"):
                referenced.note(record)
    named = referenced.sections()
    both = zip(ranges, sections, strict=True)
    to_end = {one.partition: one.end for of, one in both if of.end is None and one.topic == payload_topic}
    bodies = [_read(log, one, watch, str(one)) for one in sections]
    bodies += [_payloads(log, one, referenced, watch) for one in named]
    sections += named
    partitions = {topic: log.partitions(topic) for topic in dict.fromkeys(one.topic for one in sections)}
    if anchor is not None:
        sections += (Section(topic=ANCHOR, partition=anchor.partition, start=0, end=len(rows)),)
        bodies.append(StoredRecord(ANCHOR, anchor.partition, at, 0, *row) for at, row in enumerate(rows))
    contents = Contents(
        topic_prefix=settings.topic_prefix,
        partitions=partitions,
        sections=sections,
        anchor=anchor,
        payload_ends=log.payload_ends if isinstance(log, FileLog) else referenced.ends | to_end,
    )
    totals = _written(out, contents, bodies)
    there = sum(total.records for total in totals[len(ranges) : len(ranges) + len(named)])
    return Exported(out, sections, totals, sum(map(referenced.count, named)) - there, referenced.unknown)


def check_new(out: Path) -> None:
    """Raises BadInput where something is there already."""
    if os.path.lexists(out):
        raise BadInput(f"{visible(out)} exists: an export replaces nothing; give another --out, or remove it")


def _written(out: Path, contents: Contents, bodies: Iterable[Iterator[StoredRecord]]) -> tuple[Total, ...]:
    """Under a name of its own until it is whole: neither another export at the same time nor a file of the user's has
    it."""
    unfinished = out.with_name(f"{out.name}.{secrets.token_hex(4)}.unfinished")
    try:
        totals = write(unfinished, contents, bodies)
        _place(unfinished, out)
    except OSError as fault:
        raise EnvironmentFault(f"{visible(out)} cannot be written ({fault.strerror}): give another --out") from None
    finally:
        with suppress(OSError):  # the first fault is the one to tell
            unfinished.unlink(missing_ok=True)
    return totals


def _place(unfinished: Path, out: Path) -> None:
    """Give it its name, unless something has got that meanwhile."""
    try:
        os.link(unfinished, out)
    except FileExistsError:
        check_new(out)
        raise
    except OSError:  # a file system without links
        check_new(out)
        unfinished.rename(out)


def _ends(log: LogSource, topic: str) -> Callable[[int], int]:
    """Where the partitions of a topic end now; those of files that do not hold them anywhere."""

    @cache
    def end_of(partition: int) -> int:
        if partition >= log.partitions(topic) or (isinstance(log, FileLog) and not log.holds(topic, partition)):
            return 0
        return log.bounds(topic, partition).end

    return end_of


def _section(log: LogSource, wanted: OffsetRange, within: Bounds, run_id: str | None) -> Section:
    """From a file it is a section of no more than the file's: of a run, or of payloads that were named."""
    place = (wanted.topic, wanted.partition)
    held = [one for one in log.sections if (one.topic, one.partition) == place] if isinstance(log, FileLog) else []
    return Section(
        topic=wanted.topic,
        partition=wanted.partition,
        start=within.first,
        end=within.end,
        run=narrowed_to(log, wanted, run_id),
        only_referenced=any(one.only_referenced for one in held),
    )


def _payloads(log: LogSource, section: Section, referenced: Referenced, watch: Watch) -> Iterator[StoredRecord]:
    what, total = f"payloads of {section.topic}:{section.partition}", referenced.count(section)
    there = (
        record
        for some in _batches(referenced.offsets(section))
        for record in read_there(log, section.topic, section.partition, some)
    )
    for count, record in enumerate(there):
        if count % _WATCH_PAYLOADS_EVERY == 0:
            watch(what, count, total)
        yield record
    watch(what, total, total)


def _batches(offsets: Iterator[int]) -> Iterator[list[int]]:
    while some := list(islice(offsets, _PAYLOADS_AT_ONCE)):
        yield some


def _read(log: LogSource, section: Section, watch: Watch, what: str) -> Iterator[StoredRecord]:
    for record in watched(log, section.topic, section.partition, Bounds(section.start, section.end), watch, what):
        if section.run is None or is_of_run(record, section.run):
            yield record


def watched(
    log: LogSource, topic: str, partition: int, within: Bounds, watch: Watch, what: str
) -> Iterator[StoredRecord]:
    """The records of a stretch, told about by the offsets that are done."""
    size = within.end - within.first
    for count, record in enumerate(log.read(topic, partition, within.first, within.end)):
        if count % _WATCH_EVERY == 0:
            watch(what, record.offset - within.first, size)
        yield record
    watch(what, size, size)
