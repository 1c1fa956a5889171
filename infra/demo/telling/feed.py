"""The decisions of a run as they are made: each look returns those that are new."""

from types import TracebackType

from rollbook.infra.settings import Settings, Topic
from rollbook.replay.history.decisions import DecisionLog
from rollbook.replay.history.kafka import KafkaLog
from rollbook.schemas.partition import partition_of
from rollbook.schemas.records.decision import Decision


class Feed:
    """Follows the run from its first decision. A context manager."""

    def __init__(self, settings: Settings, run_id: str) -> None:
        self.settings = settings
        self._log = KafkaLog(settings)
        self._run_id = run_id
        self._lifecycle = settings.topic(Topic.LIFECYCLE)
        self._decisions = settings.topic(Topic.DECISIONS)
        self._partition = partition_of(run_id, self._log.partitions(self._lifecycle))
        self._next = 0
        self._decided = 0

    def look(self) -> list[Decision]:
        """The run's decisions since the last look."""
        decisions = DecisionLog(self._log, self._decisions, self._partition)
        found = (
            [decided.decision for decided in decisions.read(self._next)] if self._next < decisions.bounds.end else []
        )
        self._next = decisions.bounds.end
        if found:
            self._decided = found[-1].source.offset + 1
        return [decision for decision in found if decision.run_id == self._run_id]

    def is_caught_up(self) -> bool:
        """Whether every record that is on the log now had its decision at the last look."""
        return self._decided >= self._log.bounds(self._lifecycle, self._partition).end

    def close(self) -> None:
        self._log.close()

    def __enter__(self) -> "Feed":
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()
