"""Where a run lies: the cluster, the prefix, and its partition."""

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass

from rollbook.infra.settings import Settings, Topic
from rollbook.processors.ledger.fold import STRAYS
from rollbook.replay.history.decisions import DecisionLog
from rollbook.replay.history.kafka import KafkaLog
from rollbook.replay.history.source import LogSource
from rollbook.replay.history.watched import WatchedLog
from rollbook.replay.progress import Watch
from rollbook.schemas.errors import BadInput
from rollbook.schemas.partition import partition_of
from rollbook.schemas.text import visible


@dataclass(frozen=True, slots=True)
class Place:
    """A run's partition of an open log."""

    settings: Settings
    log: LogSource
    run_id: str
    partitions: int
    partition: int

    def topic(self, topic: Topic) -> str:
        """The full name of a topic."""
        return self.settings.topic(topic)

    def decisions(self) -> DecisionLog:
        """The partition's decisions, as far as there are any now."""
        return DecisionLog(self.log, self.topic(Topic.DECISIONS), self.partition)

    def nothing(self, what: str) -> BadInput:
        """The refusal of a run of which there is nothing."""
        return BadInput(
            f"run {visible(self.run_id)} has no {what} on {self.settings.bootstrap_servers} (prefix "
            f"{self.settings.topic_prefix}): check the name, and that `rollbook processor run` is up"
        )


@contextmanager
def place_of_run(run_id: str, watch: Watch | None = None) -> Iterator[Place]:
    """The run's place on the cluster that the environment names; `watch` is told how far it was read."""
    settings = Settings.from_env()
    with KafkaLog(settings) as log:
        partitions = log.partitions(settings.topic(Topic.LIFECYCLE))
        source = log if watch is None else WatchedLog(log, watch)
        yield Place(settings, source, run_id, partitions, _partition(run_id, partitions))


def _partition(run_id: str, partitions: int) -> int:
    """A run's partition; the strays of a partition lie in it, whatever their name says."""
    number = run_id.removeprefix(STRAYS)
    if number != run_id and number.isascii() and number.isdigit() and int(number) < partitions:
        return int(number)
    return partition_of(run_id, partitions)
