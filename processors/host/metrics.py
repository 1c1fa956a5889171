"""The metrics of the processor, made of the table (`processors/metric_table.py`) and fed by the host's events.

What counts decisions is counted once their transaction stands, so a batch that is read again is not counted twice.
"""

from collections import Counter as Counts
from importlib.metadata import version

from prometheus_client import (
    CollectorRegistry,
    Counter,
    Gauge,
    Histogram,
    ProcessCollector,
    disable_created_metrics,
    generate_latest,
)

from rollbook.processors.fold_version import FOLD_VERSION
from rollbook.processors.host import watch
from rollbook.processors.host.batch import Batch
from rollbook.processors.host.clock import Clock
from rollbook.processors.metric import Kind, Metric, RunLabels
from rollbook.processors.metric_table import (
    ABORTS,
    ASSIGNED,
    BATCH_BYTES,
    BATCH_RECORDS,
    DEAD_LETTERS,
    FENCES,
    FOLD,
    INFO,
    LAG,
    LEASES,
    OFFSET,
    OPEN,
    PROCESSOR,
    RECORDS,
    RESTORE,
    RESTORED_ROWS,
    RUN_FOLD,
    STOPPED,
    TRANSACTION,
    UNDECODABLE_TYPE,
    UNKNOWN,
)
from rollbook.schemas.records.decision import Outcome
from rollbook.schemas.records.run import RunClosed
from rollbook.schemas.records.update import LeaseExpired

_C, _G, _H = Kind.COUNTER, Kind.GAUGE, Kind.HISTOGRAM


class Metrics:
    """The objects of the table, fed by the host's events."""

    def __init__(self, clock: Clock, name: str) -> None:
        disable_created_metrics()  # type: ignore[no-untyped-call]  # a series for each series, which nobody asks for
        self.registry = CollectorRegistry()
        self._clock = clock
        self._counters = {one: _counter(one, self.registry) for one in PROCESSOR if one.kind is _C}
        self._gauges = {
            one: Gauge(one.name, one.help, one.labels, registry=self.registry) for one in PROCESSOR if one.kind is _G
        }
        self._histograms = {
            one: Histogram(one.name, one.help, one.labels, registry=self.registry, buckets=one.buckets)
            for one in PROCESSOR
            if one.kind is _H
        }
        ProcessCollector(registry=self.registry)
        self._runs = RunLabels()
        self._assigned: set[int] = set()
        self._stopped: set[int] = set()
        self._began: float | None = None
        self._gauges[OPEN].set_function(self._open_s)
        self._gauges[INFO].labels(name, version("rollbook"), str(FOLD_VERSION)).set(1)

    def exposition(self) -> bytes:
        """All of it in Prometheus' text format."""
        return generate_latest(self.registry)

    def __call__(self, event: watch.Event) -> None:
        match event:
            case watch.Lags(records):
                for partition, behind in records.items():
                    self._gauges[LAG].labels(str(partition)).set(behind)
            case watch.Began():
                self._began = self._clock.monotonic()
            case watch.Committed(batch):
                self._committed(batch)
            case watch.Aborted():
                self._ended(ABORTS)
            case watch.OutcomeLost():
                self._ended(UNKNOWN)
            case watch.FencedOff():
                self._ended(FENCES)
            case watch.Restored(partition, next_offset, rows, seconds):
                self._histograms[RESTORE].observe(seconds)
                self._counters[RESTORED_ROWS].inc(rows)
                self._gauges[OFFSET].labels(str(partition)).set(next_offset - 1)
            case watch.Assigned(partitions):
                self._assigned.update(partitions)
                self._hold()
            case watch.Released(partitions):
                self._release(partitions)
            case watch.Opening(partition):
                self._stopped.discard(partition)
                self._hold()
            case watch.PartitionStopped(partition):
                self._stopped.add(partition)
                self._hold()
            case watch.Alive():
                pass

    def _committed(self, batch: Batch) -> None:
        now = self._clock.monotonic()
        if self._began is not None:
            self._histograms[TRANSACTION].observe(now - self._began)
            self._began = None
        self._histograms[FOLD].observe(batch.seconds)
        self._histograms[BATCH_RECORDS].observe(len(batch.folded))
        self._histograms[BATCH_BYTES].observe(batch.size)
        for partition, next_offset in batch.next_offsets.items():
            self._gauges[OFFSET].labels(str(partition)).set(next_offset - 1)
        counts = Counts((folded.decision.record_type, folded.decision.outcome) for _, folded in batch.folded)
        for (record_type, outcome), count in counts.items():
            self._counters[RECORDS].labels(record_type or UNDECODABLE_TYPE, outcome.value).inc(count)
        self._counters[DEAD_LETTERS].inc(sum(folded.undecodable is not None for _, folded in batch.folded))
        self._counters[LEASES].inc(counts[LeaseExpired.__name__, Outcome.ACCEPTED])
        self._folded(batch, now)
        if counts[RunClosed.__name__, Outcome.ACCEPTED]:
            for _, folded in batch.folded:
                decision = folded.decision
                if decision.record_type == RunClosed.__name__ and decision.outcome is Outcome.ACCEPTED:
                    self._forget_run(decision.run_id)

    def _folded(self, batch: Batch, now: float) -> None:
        for run_id in self._runs.silent(now):
            self._forget_run(run_id)
        for run_id, seconds in batch.run_seconds.items():
            self._counters[RUN_FOLD].labels(self._runs.label(run_id, now)).inc(seconds)

    def _forget_run(self, run_id: str) -> None:
        if self._runs.free(run_id):
            self._counters[RUN_FOLD].remove(run_id)

    def _release(self, partitions: tuple[int, ...]) -> None:
        for metric in (LAG, OFFSET):
            for partition in partitions:
                self._gauges[metric].remove_by_labels({"partition": str(partition)})
        self._assigned.difference_update(partitions)
        self._stopped.difference_update(partitions)
        self._hold()

    def _hold(self) -> None:
        self._gauges[ASSIGNED].set(len(self._assigned))
        self._gauges[STOPPED].set(len(self._stopped))

    def _ended(self, metric: Metric) -> None:
        self._began = None
        self._counters[metric].inc()

    def _open_s(self) -> float:
        began = self._began
        return 0.0 if began is None else self._clock.monotonic() - began


def _counter(metric: Metric, registry: CollectorRegistry) -> Counter:
    """The library puts `_total` at the end of a counter's name itself."""
    return Counter(metric.name.removesuffix("_total"), metric.help, metric.labels, registry=registry)
