"""A recorded history: the lifecycle records of a demo's run and the decisions they got, in one Avro container file.

It is frozen, and never made anew. One more is recorded, about a minute, by

    python -m rollbook.tests.demo.recorded NAME
"""

import sys
from dataclasses import dataclass
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import fastavro
from rich.console import Console

from rollbook.infra.broker.daemon import stop_daemon
from rollbook.infra.demo.config import DemoConfig
from rollbook.infra.demo.run import run_demo
from rollbook.infra.settings import Settings, Topic
from rollbook.processors.ledger.fold import SourceRecord
from rollbook.replay.history.kafka import KafkaLog
from rollbook.schemas.partition import partition_of

PATH = Path(__file__).parents[1] / "data" / "histories" / "demo.avro"
_SCHEMA = {
    "type": "record",
    "name": "Recorded",
    "fields": [
        {"name": "offset", "type": "long"},
        {"name": "key", "type": "bytes"},
        {"name": "lifecycle", "type": "bytes"},
        {"name": "decision", "type": "bytes"},
    ],
}


@dataclass(frozen=True, slots=True)
class RecordedHistory:
    """A partition with one run in it: its records from the first on, and the bytes of their decisions."""

    partition: int
    topic_partitions: int
    records: tuple[SourceRecord, ...]
    decisions: tuple[bytes, ...]


def read_history(path: Path = PATH) -> RecordedHistory:
    with path.open("rb") as file:
        reader = fastavro.reader(file)
        partition, topic_partitions = (int(reader.metadata[name]) for name in ("partition", "topic_partitions"))
        rows: list[Any] = list(reader)
    return RecordedHistory(
        partition,
        topic_partitions,
        tuple(SourceRecord(partition, row["offset"], row["key"], row["lifecycle"]) for row in rows),
        tuple(row["decision"] for row in rows),
    )


def record_history(settings: Settings, run_id: str, path: Path) -> None:
    """Write the history of a run that has its partition to itself and is wholly decided."""
    topics = [settings.topic(topic) for topic in (Topic.LIFECYCLE, Topic.DECISIONS)]
    with KafkaLog(settings) as log:
        count = log.partitions(topics[0])
        partition = partition_of(run_id, count)
        read = []
        for topic in topics:
            bounds = log.bounds(topic, partition)
            read.append(list(log.read(topic, partition, bounds.first, bounds.end)))
    rows = [
        {"offset": record.offset, "key": record.key, "lifecycle": record.value, "decision": decision.value}
        for record, decision in zip(*read, strict=True)
    ]
    metadata = {"partition": str(partition), "topic_partitions": str(count)}
    path.parent.mkdir(parents=True, exist_ok=True)
    with path.open("wb") as file:
        # One block: digests aside the records resemble one another, over any distance.
        fastavro.writer(file, _SCHEMA, rows, codec="xz", sync_interval=1 << 30, metadata=metadata)


def main() -> None:
    """Run a demo and record it."""
    path = PATH.with_stem(sys.argv[1])
    if path.exists():
        sys.exit(f"{path.name} is frozen: give the new one another name")
    with TemporaryDirectory() as folder:
        result = run_demo(DemoConfig(), Path(folder) / "demo", Console(stderr=True), keep=True)
        try:
            record_history(result.cluster.settings, result.plan.run_id, path)
        finally:
            stop_daemon(result.folder.broker)
    print(f"{path}: {path.stat().st_size:,} bytes")


if __name__ == "__main__":
    main()
