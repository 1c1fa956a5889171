"""Restore: exported files written back into new topics, each record to the offset at which it lay.

Lifecycle and payloads alone: the processor derives decisions, ledger, freshness and dead letters anew. All that can be
known to be wrong is known before the first record is written.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from rollbook.infra.settings import Settings, Topic
from rollbook.replay.history.export import watched
from rollbook.replay.history.file import FileLog
from rollbook.replay.history.kafka import KafkaLog
from rollbook.replay.history.referenced import Referenced
from rollbook.replay.history.restoring import ANEW, OffsetWriter
from rollbook.replay.history.source import Bounds, StoredRecord
from rollbook.replay.progress import Watch
from rollbook.schemas.errors import BadInput, EnvironmentFault

_WRITTEN = Topic.LIFECYCLE, Topic.PAYLOADS
_EMPTY_PLACE = b""
_CREATED_WITH = {Topic.LIFECYCLE: "--partitions", Topic.PAYLOADS: "--payload-partitions"}


@dataclass(frozen=True, slots=True)
class RestoredPartition:
    """`end`: the offset behind the last one that was written; `records`: of the files; `empty`: places of payloads that
    are in none of them, kept so that what follows lies where it lay. Those before the first record are let go again, as
    retention had let them go."""

    topic: str
    partition: int
    end: int
    records: int
    empty: int

    def __str__(self) -> str:
        return f"{self.topic}:{self.partition}:0-{self.end}"


@dataclass(frozen=True, slots=True)
class Restored:
    """What was written. `untouched`: lifecycle partitions of which the files have nothing; `unknown`: references of
    lifecycle records to what is no payload of the files."""

    partitions: tuple[RestoredPartition, ...]
    untouched: tuple[str, ...]
    unknown: int


def restore(files: Sequence[Path], settings: Settings, watch: Watch = lambda *_: None) -> Restored:
    """Write what the files hold together into the topics of `settings`, which must be there, empty, and of as many
    partitions as they had; the prefix may be another.

    Raises BadInput where they are not, or where a lifecycle partition does not begin at offset 0 or has gaps; NotTheLog
    for a file that was changed; EnvironmentFault when a record does not arrive where it lay, and the topics are to be
    made anew.
    """
    with FileLog(files) as log, KafkaLog(settings) as there:
        held = {topic: _partitions(log, topic) for topic in _WRITTEN}
        if not held[Topic.LIFECYCLE]:
            raise BadInput(f"nothing of {log.topic_prefix}{Topic.LIFECYCLE} is in {log.names}: give its exports, too")
        count = _check_new(log, there, settings)
        unknown = _check_files(log, held, watch)
        with OffsetWriter(settings) as writer:
            done = tuple(
                _restored(log, writer, topic, settings.topic(topic), partition, watch)
                for topic in reversed(_WRITTEN)  # who reads a record finds what it names
                for partition in held[topic]
            )
        _check_ends(there, done)
    lifecycle = settings.topic(Topic.LIFECYCLE)
    untouched = tuple(f"{lifecycle}:{one}" for one in range(count) if one not in held[Topic.LIFECYCLE])
    return Restored(done[::-1], untouched, unknown)


def _partitions(log: FileLog, topic: Topic) -> list[int]:
    """Those of which the files hold anything, descending."""
    name = f"{log.topic_prefix}{topic}"
    return sorted({one.partition for one in log.sections if one.topic == name}, reverse=True)


def _check_new(log: FileLog, there: KafkaLog, settings: Settings) -> int:
    """That all topics are there and empty, with the partitions that they had. How many those of runs have."""
    counts = {topic: there.partitions(settings.topic(topic)) for topic in Topic}
    for topic in _WRITTEN:
        of_files = f"{log.topic_prefix}{topic}"
        had = log.partitions(of_files) if any(one.topic == of_files for one in log.sections) else counts[topic]
        if had != counts[topic]:
            raise BadInput(
                f"{settings.topic(topic)} has {counts[topic]} partitions, and {of_files} of the files had {had}: make "
                f"new topics with `rollbook topics create {_CREATED_WITH[topic]} {had}`"
            )
    for topic, count in counts.items():
        for partition in range(count):
            if there.bounds(name := settings.topic(topic), partition).end:
                raise BadInput(
                    f"{name}:{partition} on {settings.bootstrap_servers} is not empty: a restore writes into new "
                    "topics alone; set ROLLBOOK_BOOTSTRAP_SERVERS or ROLLBOOK_TOPIC_PREFIX to where they are; where "
                    f"it was a restore of yours into these very topics that was broken off, {ANEW}"
                )
    return counts[Topic.LIFECYCLE]


def _check_files(log: FileLog, held: dict[Topic, list[int]], watch: Watch) -> int:
    """That the files hold what was exported, and every record of the lifecycle topic up to where they end. How many
    references lead to none of their payloads."""
    payloads, lifecycle = (f"{log.topic_prefix}{topic}" for topic in (Topic.PAYLOADS, Topic.LIFECYCLE))
    ends = {one: log.bounds(payloads, one).end for one in held[Topic.PAYLOADS]}
    referenced = Referenced(payloads, lambda partition: ends.get(partition, 0))
    for partition in held[Topic.PAYLOADS]:
        log.check(payloads, partition)
    for partition in held[Topic.LIFECYCLE]:
        expected, end = 0, log.bounds(lifecycle, partition).end
        for record in watched(log, lifecycle, partition, Bounds(0, end), watch, f"checking {lifecycle}:{partition}"):
            if record.offset != expected:
                break
            expected += 1
            referenced.note(record)
        if expected != end:
            raise BadInput(
                f"{lifecycle}:{partition}@{expected} is in none of the files {log.names}, and what lay behind it would "
                "come to lie elsewhere: give files that begin at offset 0 and join, of all runs of the partition"
            )
    return referenced.unknown


def _restored(
    log: FileLog, writer: OffsetWriter, topic: Topic, name: str, partition: int, watch: Watch
) -> RestoredPartition:
    of_files = f"{log.topic_prefix}{topic}"
    records = after = 0
    end = log.bounds(of_files, partition).end
    for record in _stored(log, of_files, partition, watch):
        _keep(writer, name, partition, range(after, record.offset))
        if not records and record.offset:
            writer.drop_before(name, partition, record.offset)
        writer.write(replace(record, topic=name))
        records, after = records + 1, record.offset + 1
    _keep(writer, name, partition, range(after, end))  # what is published next must not be taken for what is named here
    if not records and end:
        writer.drop_before(name, partition, end)
    return RestoredPartition(name, partition, end, records, end - records)


def _stored(log: FileLog, topic: str, partition: int, watch: Watch) -> Iterator[StoredRecord]:
    for within in log.stretches(topic, partition, None):
        what = f"writing {topic}:{partition}:{within.first}-{within.end}"
        yield from watched(log, topic, partition, within, watch, what)


def _keep(writer: OffsetWriter, topic: str, partition: int, offsets: range) -> None:
    for offset in offsets:
        writer.write(StoredRecord(topic, partition, offset, 0, None, _EMPTY_PLACE))


def _check_ends(there: KafkaLog, done: Sequence[RestoredPartition]) -> None:
    for one in done:
        if (end := there.bounds(one.topic, one.partition).end) != one.end:
            raise EnvironmentFault(
                f"{one.topic}:{one.partition} ends at offset {end} and not at {one.end}: somebody else writes there; "
                f"end all clients, {ANEW}"
            )
