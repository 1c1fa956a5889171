"""Reads a run's topics once it is over: what its figures and its table are made of."""

from collections.abc import Iterator

from rollbook.infra.settings import Settings, Topic
from rollbook.replay.history.decisions import DecisionLog
from rollbook.replay.history.kafka import KafkaLog
from rollbook.schemas.codec import decode, decode_as
from rollbook.schemas.partition import partition_of
from rollbook.schemas.records.common import Lifecycle
from rollbook.schemas.records.decision import Decision, FreshnessSnapshot


def decided_records(log: KafkaLog, settings: Settings, run_id: str) -> Iterator[tuple[Decision, Lifecycle]]:
    """Every decision of the run with the record that it decides, in order."""
    lifecycle = settings.topic(Topic.LIFECYCLE)
    partition = partition_of(run_id, log.partitions(lifecycle))
    bounds = log.bounds(lifecycle, partition)
    records = log.read(lifecycle, partition, bounds.first, bounds.end)
    for decided in DecisionLog(log, settings.topic(Topic.DECISIONS), partition).read():
        source = next(record for record in records if record.offset == decided.decision.source.offset)
        if decided.decision.run_id == run_id:
            record = decode(source.value or b"")
            assert isinstance(record, Lifecycle), "only lifecycle records are decided under their run"
            yield decided.decision, record


def last_freshness(log: KafkaLog, settings: Settings, run_id: str) -> FreshnessSnapshot | None:
    """The run's freshness after its last decision."""
    topic = settings.topic(Topic.FRESHNESS)
    partition = partition_of(run_id, log.partitions(topic))
    bounds = log.bounds(topic, partition)
    latest: bytes | None = None
    for record in log.read(topic, partition, bounds.first, bounds.end) if bounds.first < bounds.end else ():
        if record.key == run_id.encode():
            latest = record.value
    return None if latest is None else decode_as(FreshnessSnapshot, latest)
