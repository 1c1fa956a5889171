"""What one metric is, and which runs have a label of their own: for the processor's metrics and the dashboard's."""

from dataclasses import dataclass
from enum import StrEnum

MOST_RUNS = 50
OTHER_RUNS = "~other"  # no run id begins with a tilde
IDLE_RUN_S = 3_600.0


class Kind(StrEnum):
    """What Prometheus takes a metric for."""

    COUNTER = "counter"
    GAUGE = "gauge"
    HISTOGRAM = "histogram"


@dataclass(frozen=True, slots=True)
class Metric:
    """One line of the table. The name says the unit where that is seconds; buckets are upper bounds."""

    name: str
    kind: Kind
    labels: tuple[str, ...]
    unit: str
    help: str
    buckets: tuple[float, ...] = ()


class RunLabels:
    """Which runs have a label of their own: the first that come, until they are closed or silent for long."""

    def __init__(self, most: int = MOST_RUNS, idle_s: float = IDLE_RUN_S) -> None:
        self._most = most
        self._idle_s = idle_s
        self._heard: dict[str, float] = {}

    def label(self, run_id: str, now: float) -> str:
        """The run's label; it must have been made room for."""
        if run_id in self._heard or len(self._heard) < self._most:
            self._heard[run_id] = now
            return run_id
        return OTHER_RUNS

    def silent(self, now: float) -> list[str]:
        """Runs that give their place away, since all places are taken and nothing was heard of them for long."""
        if len(self._heard) < self._most:
            return []
        return [run_id for run_id, heard in self._heard.items() if now - heard > self._idle_s]

    def held(self) -> frozenset[str]:
        """Runs that have a place."""
        return frozenset(self._heard)

    def free(self, run_id: str) -> bool:
        """Take a run's place; whether it had one."""
        return self._heard.pop(run_id, None) is not None
