"""What waits to be trained on, as the ledger topic last had it: how a trainer sees what its claims pass over."""

from types import TracebackType

from rollbook.infra.settings import Settings, Topic
from rollbook.processors.ledger.keys import parse_key
from rollbook.replay.history.kafka import KafkaLog
from rollbook.schemas.codec import decode
from rollbook.schemas.partition import partition_of
from rollbook.schemas.records.ledger import TrajectoryState, TrajectoryStatus
from rollbook.schemas.records.rollout import Purpose
from rollbook.schemas.records.update import ReserveItem


class Waiting:
    """A view of the ledger, as old as the last look. It may be wrong by now, so a Reserve names the revision seen."""

    def __init__(self, settings: Settings, run_id: str) -> None:
        self._log = KafkaLog(settings)
        self._topic = settings.topic(Topic.LEDGER)
        self._run_id = run_id
        self._partition = partition_of(run_id, self._log.partitions(self._topic))
        self._next = 0
        self._waiting: dict[str, TrajectoryState] = {}

    def older_than(self, version: int) -> tuple[ReserveItem, ...]:
        """The rewarded training trajectories whose oldest policy is below this version."""
        self._look()
        return tuple(
            ReserveItem(trajectory_id=state.trajectory_id, expected_revision=state.revision)
            for state in self._waiting.values()
            if min(policy.version for policy in state.policies) < version
        )

    def close(self) -> None:
        self._log.close()

    def __enter__(self) -> "Waiting":
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def _look(self) -> None:
        bounds = self._log.bounds(self._topic, self._partition)
        start = max(self._next, bounds.first)
        for stored in self._log.read(self._topic, self._partition, start, bounds.end):
            run_id, kind, name = parse_key(stored.key or b"")
            if (run_id, kind) == (self._run_id, "trajectory"):
                state = None if stored.value is None else decode(stored.value)
                self._waiting.pop(str(name), None)
                if isinstance(state, TrajectoryState) and _waits(state):
                    self._waiting[str(name)] = state
        self._next = bounds.end


def _waits(state: TrajectoryState) -> bool:
    return state.status is TrajectoryStatus.REWARDED and state.purpose is Purpose.TRAIN
