"""Recorded histories of TRL trainings: a run's records and decisions, and beside them the payloads they refer to.

They are frozen, and never made anew. A story more is recorded (a minute, with TRL installed) by

    python -m rollbook.tests.producers.trl.recorded
"""

import sys
from contextlib import redirect_stdout
from enum import StrEnum
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import fastavro
import pytest

from rollbook.infra.broker import EmbeddedBroker
from rollbook.infra.settings import Settings, Topic
from rollbook.infra.topics.topics import create_topics
from rollbook.replay.history.kafka import KafkaLog
from rollbook.schemas.records.run import Enforcement
from rollbook.tests.conftest import PARTITIONS
from rollbook.tests.demo.recorded import read_history, record_history
from rollbook.tests.producers.world import PATIENT, processor
from rollbook.tests.replay.memory_log import MemoryLog

FOLDER = Path(__file__).parents[2] / "data" / "histories"
_SCHEMA = {
    "type": "record",
    "name": "Payload",
    "fields": [
        {"name": "partition", "type": "int"},
        {"name": "offset", "type": "long"},
        {"name": "key", "type": "bytes"},
        {"name": "value", "type": "bytes"},
    ],
}


class Story(StrEnum):
    """What was recorded; the run's id, and its files'."""

    GATE = "trl-gate"
    OBSERVE = "trl-observe"
    RESUMED = "trl-resumed"
    ASYNCHRONOUS = "trl-asynchronous"


def settings_of(story: Story, bootstrap_servers: str = "nowhere:0") -> Settings:
    """Topics under a prefix of the history's own: its references to payloads name them."""
    return Settings(bootstrap_servers=bootstrap_servers, topic_prefix=f"{story.value}.")


def history_path(story: Story, folder: Path = FOLDER) -> Path:
    return folder / f"{story.value}.avro"


def payloads_path(story: Story, folder: Path = FOLDER) -> Path:
    return folder / f"{story.value}-payloads.avro"


def read_log(story: Story, folder: Path = FOLDER) -> MemoryLog:
    """The recorded run as the log that it was, payloads included."""
    settings, history = settings_of(story), read_history(history_path(story, folder))
    log = MemoryLog(history.topic_partitions)
    for record, decision in zip(history.records, history.decisions, strict=True):
        key, value = record.key or b"", record.value or b""
        assert log.append(settings.topic(Topic.LIFECYCLE), history.partition, key, value) == record.offset
        log.append(settings.topic(Topic.DECISIONS), history.partition, key, decision)
    with payloads_path(story, folder).open("rb") as file:
        rows: list[Any] = list(fastavro.reader(file))
    for row in rows:
        offset = log.append(settings.topic(Topic.PAYLOADS), row["partition"], row["key"], row["value"])
        assert offset == row["offset"], "payloads are written outside of transactions: their offsets have no gaps"
    return log


def record(story: Story, bootstrap_servers: str, folder: Path = FOLDER) -> None:
    """Train, and write the two files."""
    settings = settings_of(story, bootstrap_servers)
    create_topics(settings, PARTITIONS)
    with processor(settings), TemporaryDirectory() as output, redirect_stdout(sys.stderr):  # TRL prints its summary
        _train(story, settings, Path(output))
    record_history(settings, story.value, history_path(story, folder))
    _record_payloads(settings, payloads_path(story, folder))


def _train(story: Story, settings: Settings, output: Path) -> None:
    """Two buffers; the same, saved within the second one and gone on from there; or four asynchronous steps, with a row
    that drifted, one without a reward, and a group that is too old."""
    from rollbook.producers.trl import LedgerRun
    from rollbook.tests.producers.trl import tiny

    enforcement = Enforcement.OBSERVE if story is Story.OBSERVE else Enforcement.GATE
    run = LedgerRun(settings, story.value, enforcement=enforcement, options=PATIENT)
    if story is Story.ASYNCHRONOUS:
        from rollbook.tests.producers.trl.asynchronous import small

        with pytest.MonkeyPatch.context() as patch:
            small.stand_in(patch)
            small.train(output, small.Shape(drifted=frozenset({1}), unrewarded=frozenset({10}), lags={4: 2}), run)
    elif story is Story.RESUMED:
        shape = tiny.Shape(options={"save_strategy": "steps", "save_steps": 5})
        tiny.train(output, shape, run)
        tiny.make(output, shape, run).train(resume_from_checkpoint=str(output / "checkpoint-5"))
    else:
        tiny.train(output, tiny.Shape(), run)


def _record_payloads(settings: Settings, path: Path) -> None:
    topic = settings.topic(Topic.PAYLOADS)
    with KafkaLog(settings) as log:
        found = []
        for partition in range(log.partitions(topic)):
            bounds = log.bounds(topic, partition)
            found += list(log.read(topic, partition, bounds.first, bounds.end))
    rows = [
        {"partition": one.partition, "offset": one.offset, "key": one.key or b"", "value": one.value or b""}
        for one in found
    ]
    with path.open("wb") as file:
        fastavro.writer(file, _SCHEMA, rows, codec="xz", sync_interval=1 << 30)


def main() -> None:
    with EmbeddedBroker() as broker:
        for story in (one for one in Story if not history_path(one).exists()):
            record(story, broker.bootstrap_servers)
    for path in sorted(FOLDER.glob("trl-*.avro")):
        print(f"{path.name}: {path.stat().st_size:,} bytes")


if __name__ == "__main__":
    main()
