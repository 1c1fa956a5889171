"""Reads a run's topics once it is over: what its figures and its table are made of."""

from rollbook.infra.looking.refold import Watch, refold
from rollbook.infra.settings import Settings, Topic
from rollbook.replay.history.decisions import DecisionLog
from rollbook.replay.history.kafka import KafkaLog
from rollbook.schemas.codec import decode_as
from rollbook.schemas.errors import EnvironmentFault
from rollbook.schemas.partition import partition_of
from rollbook.schemas.records.decision import FreshnessSnapshot


def watch_again(log: KafkaLog, settings: Settings, run_id: str, watch: Watch) -> None:
    """Fold the run again from its first record under a watch. EnvironmentFault where that does not end in the chain of
    the last decision: then the processor did something else."""
    topic = settings.topic(Topic.LIFECYCLE)
    count = log.partitions(topic)
    partition = partition_of(run_id, count)
    decisions = DecisionLog(log, settings.topic(Topic.DECISIONS), partition).read()
    last = [decided.decision for decided in decisions if decided.decision.run_id == run_id][-1]
    records = log.read(topic, partition, log.bounds(topic, partition).first, last.source.offset + 1)
    run = refold(records, run_id, partition, count, [watch])
    if run.head.chain != last.chain:
        raise EnvironmentFault(
            f"run {run_id} folded again ends in chain {run.head.chain}, its last decision has {last.chain}: please "
            "report it, with the run's folder"
        )


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
