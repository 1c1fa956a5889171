"""Recorded histories as logs in memory, and what a plain reading of them finds."""

from dataclasses import dataclass, field
from pathlib import Path

import fastavro

from rollbook.replay.audit.audit import stretch_of
from rollbook.replay.audit.decisions import Stretch
from rollbook.replay.history.ranges import OffsetRange
from rollbook.replay.history.source import StoredRecord
from rollbook.schemas.codec import decode, decode_as
from rollbook.schemas.records.decision import Decision, Outcome
from rollbook.schemas.records.policy import PolicyPrepared
from rollbook.schemas.records.rollout import Generated, TaskSource
from rollbook.schemas.records.run import Enforcement, RunConfigured
from rollbook.schemas.records.update import Commit
from rollbook.schemas.types import Part
from rollbook.tests.replay.memory_log import MemoryLog
from rollbook.tests.replay.story import DECISIONS, LIFECYCLE, SETTINGS

FOLDER = Path(__file__).parents[1] / "data" / "histories"


@dataclass
class Recorded:
    """One run of a recorded history, and what a plain reading of it finds."""

    log: MemoryLog
    stretch: Stretch
    sources: dict[int, int | None] = field(default_factory=dict)
    added: dict[int, tuple[str, ...]] = field(default_factory=dict)
    steps: dict[str, tuple[tuple[str, ...], ...]] = field(default_factory=dict)
    tasks: dict[str, TaskSource] = field(default_factory=dict)
    observed: bool = False


def recorded(name: str) -> Recorded:
    """The history of a name, narrowed to its first run."""
    with (FOLDER / f"{name}.avro").open("rb") as file:
        reader = fastavro.reader(file)
        partition, count = (int(reader.metadata[key]) for key in ("partition", "topic_partitions"))
        rows: list[dict[str, bytes | int]] = list(reader)  # type: ignore[arg-type]
    log = MemoryLog(count)
    records, decisions, told = [], [], []
    for number, row in enumerate(rows):
        offset, key, value, decided = row["offset"], row["key"], row["lifecycle"], row["decision"]
        assert isinstance(offset, int)
        assert isinstance(value, bytes)
        assert isinstance(decided, bytes)
        assert key is None or isinstance(key, bytes)
        decision = decode_as(Decision, decided)
        records.append(StoredRecord(LIFECYCLE, partition, offset, 0, key, value))
        decisions.append(StoredRecord(DECISIONS, partition, number, 0, decision.run_id.encode(), decided))
        told.append((decision, value))
    log.put(LIFECYCLE, partition, records[-1].offset + 1, records)
    log.put(DECISIONS, partition, len(decisions), decisions)
    run = told[0][0].run_id
    found = Recorded(log, stretch_of(log, SETTINGS, OffsetRange(LIFECYCLE, partition), run))
    for decision, value in told:
        if decision.run_id == run and decision.outcome is Outcome.ACCEPTED:
            _read(found, decode(value))
    return found


def _read(found: Recorded, record: Part) -> None:
    if isinstance(record, RunConfigured):
        found.sources.setdefault(record.initial_policy.version, None)
        found.observed = record.enforcement is Enforcement.OBSERVE
    elif isinstance(record, PolicyPrepared):
        back = record.rollback_of
        found.sources[record.version] = record.parent_version if back is None else back
        found.added[record.version] = record.update_ids
    elif isinstance(record, Commit):
        found.steps[record.update_id] = tuple(step.trajectory_ids for step in record.steps)
    elif isinstance(record, Generated):
        found.tasks[record.identity.trajectory_id] = record.task
