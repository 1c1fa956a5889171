"""Over recorded histories: each policy's proof is what a plain reading of the log says, and a what-if without other
rules changes nothing."""

from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path

import fastavro
import pytest

from rollbook.replay.audit.audit import stretch_of
from rollbook.replay.audit.decisions import Stretch
from rollbook.replay.audit.rules import Instead
from rollbook.replay.audit.whatif import what_if
from rollbook.replay.audit.whatif_report import UNMEASURED, Stage
from rollbook.replay.history.ranges import OffsetRange
from rollbook.replay.history.source import StoredRecord
from rollbook.replay.prove.proof import Membership
from rollbook.replay.prove.prove import OfPolicy, prove
from rollbook.schemas.codec import decode, decode_as
from rollbook.schemas.records.decision import Decision, Outcome
from rollbook.schemas.records.policy import PolicyPrepared
from rollbook.schemas.records.rollout import Generated, TaskSource
from rollbook.schemas.records.run import RunConfigured
from rollbook.schemas.records.update import Commit
from rollbook.schemas.types import Part
from rollbook.tests.replay.memory_log import MemoryLog
from rollbook.tests.replay.story import DECISIONS, LIFECYCLE, SETTINGS

FOLDER = Path(__file__).parents[1] / "data" / "histories"
NAMES = ("every-record", "walk-gate", "walk-observe", "trl-gate", "trl-observe", "trl-asynchronous", "trl-resumed")


@dataclass
class Recorded:
    """One run of a recorded history, and what a plain reading of it finds."""

    log: MemoryLog
    stretch: Stretch
    sources: dict[int, int | None] = field(default_factory=dict)
    added: dict[int, tuple[str, ...]] = field(default_factory=dict)
    steps: dict[str, tuple[tuple[str, ...], ...]] = field(default_factory=dict)
    tasks: dict[str, TaskSource] = field(default_factory=dict)


def recorded(name: str) -> Recorded:
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
            read(found, decode(value))
    return found


def read(found: Recorded, record: Part) -> None:
    if isinstance(record, RunConfigured):
        found.sources.setdefault(record.initial_policy.version, None)
    elif isinstance(record, PolicyPrepared):
        back = record.rollback_of
        found.sources[record.version] = record.parent_version if back is None else back
        found.added[record.version] = record.update_ids
    elif isinstance(record, Commit):
        found.steps[record.update_id] = tuple(step.trajectory_ids for step in record.steps)
    elif isinstance(record, Generated):
        found.tasks[record.identity.trajectory_id] = record.task


def expected(found: Recorded, version: int | None) -> Iterator[tuple[str, str, tuple[int, ...]]]:
    """Update, trajectory and steps of all that a policy and its ancestors name."""
    while version is not None:
        for update_id in found.added.get(version, ()):
            steps = found.steps.get(update_id, ())
            for name in {name for step in steps for name in step}:
                yield update_id, name, tuple(number for number, step in enumerate(steps) if name in step)
        version = found.sources[version]


@pytest.mark.parametrize("name", NAMES)
def test_a_proof_is_what_a_plain_reading_says(name: str) -> None:
    found = recorded(name)
    assert found.sources
    for version in found.sources:
        proof = prove(found.log, found.stretch, OfPolicy(version))
        rows = [one for one in proof.trajectories if one.membership is Membership.IN_WEIGHTS]
        assert {(one.update_id, one.trajectory_id, one.steps) for one in rows} == set(expected(found, version))
        assert len(rows) == len(set(expected(found, version)))
        assert all(one.task == found.tasks.get(one.trajectory_id) for one in proof.trajectories)


@pytest.mark.parametrize("name", NAMES)
def test_without_other_rules_every_judgement_is_the_same(name: str) -> None:
    """But for rows that were trained on without one."""
    found = recorded(name)
    for run in what_if(found.log, found.stretch, Instead()).runs:
        judged = [one for one in run.counts if one.stage is not Stage.TRAIN]
        assert all(one.was == one.would for one in judged)
        assert run.within_reach == ()
        if not run.observed:
            assert {one.reason for one in run.counts if one.stage is Stage.TRAIN} <= {"trained", UNMEASURED}
