"""Recorded histories of TRL trainings: a run's records and decisions, and beside them the payloads they refer to.

Until the formats are frozen they are made anew whenever a record or a rule changes (half a minute, with TRL installed):

    python -m rollbook.tests.producers.trl.recorded
"""

import sys
from contextlib import redirect_stdout
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import fastavro

from rollbook.infra.broker import EmbeddedBroker
from rollbook.infra.settings import Settings, Topic
from rollbook.infra.topics import create_topics
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


def name_of(enforcement: Enforcement) -> str:
    """The run's id, and its files'."""
    return f"trl-{enforcement.value}"


def settings_of(enforcement: Enforcement, bootstrap_servers: str = "nowhere:0") -> Settings:
    """Topics under a prefix of the history's own: its references to payloads name them."""
    return Settings(bootstrap_servers=bootstrap_servers, topic_prefix=f"{name_of(enforcement)}.")


def history_path(enforcement: Enforcement, folder: Path = FOLDER) -> Path:
    return folder / f"{name_of(enforcement)}.avro"


def payloads_path(enforcement: Enforcement, folder: Path = FOLDER) -> Path:
    return folder / f"{name_of(enforcement)}-payloads.avro"


def read_log(enforcement: Enforcement, folder: Path = FOLDER) -> MemoryLog:
    """The recorded run as the log that it was, payloads included."""
    settings, history = settings_of(enforcement), read_history(history_path(enforcement, folder))
    log = MemoryLog(history.topic_partitions)
    for record, decision in zip(history.records, history.decisions, strict=True):
        key, value = record.key or b"", record.value or b""
        assert log.append(settings.topic(Topic.LIFECYCLE), history.partition, key, value) == record.offset
        log.append(settings.topic(Topic.DECISIONS), history.partition, key, decision)
    with payloads_path(enforcement, folder).open("rb") as file:
        rows: list[Any] = list(fastavro.reader(file))
    for row in rows:
        offset = log.append(settings.topic(Topic.PAYLOADS), row["partition"], row["key"], row["value"])
        assert offset == row["offset"], "payloads are written outside of transactions: their offsets have no gaps"
    return log


def record(enforcement: Enforcement, bootstrap_servers: str, folder: Path = FOLDER) -> None:
    """Train, and write the two files."""
    from rollbook.producers.trl import LedgerRun
    from rollbook.tests.producers.trl.tiny import Shape, train

    settings = settings_of(enforcement, bootstrap_servers)
    create_topics(settings, PARTITIONS)
    run = LedgerRun(settings, name_of(enforcement), enforcement=enforcement, options=PATIENT)
    with processor(settings), TemporaryDirectory() as output, redirect_stdout(sys.stderr):  # TRL prints its summary
        train(Path(output), Shape(), run)
    record_history(settings, run.run_id, history_path(enforcement, folder))
    _record_payloads(settings, payloads_path(enforcement, folder))


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
        for enforcement in Enforcement:
            record(enforcement, broker.bootstrap_servers)
    for path in sorted(FOLDER.glob("trl-*.avro")):
        print(f"{path.name}: {path.stat().st_size:,} bytes")


if __name__ == "__main__":
    main()
