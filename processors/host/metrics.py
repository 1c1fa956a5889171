"""The metrics of the processor: one table, from which the objects are made and docs/reference/metrics.md is written.

What counts decisions is counted once their transaction stands, so a batch that is read again is not counted twice.
Labels are bounded: partitions and record types by nature, runs by `MOST_RUNS`.
"""

from collections import Counter as Counts
from dataclasses import dataclass
from enum import StrEnum
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
from rollbook.schemas.records.decision import Outcome
from rollbook.schemas.records.run import RunClosed
from rollbook.schemas.records.update import LeaseExpired

PREFIX = "rollbook_processor_"
MOST_RUNS = 50
OTHER_RUNS = "~other"  # no run id begins with a tilde
IDLE_RUN_S = 3_600.0
UNDECODABLE_TYPE = "undecodable"


class Kind(StrEnum):
    """What Prometheus takes a metric for."""

    COUNTER = "counter"
    GAUGE = "gauge"
    HISTOGRAM = "histogram"


@dataclass(frozen=True, slots=True)
class Metric:
    """One line of the table. `unit` is also the end of the name where there is one; buckets are upper bounds."""

    short: str
    kind: Kind
    labels: tuple[str, ...]
    unit: str
    help: str
    buckets: tuple[float, ...] = ()

    @property
    def name(self) -> str:
        """The name under which Prometheus has it."""
        return f"{PREFIX}{self.short}"


_SECONDS = (0.002, 0.005, 0.01, 0.02, 0.05, 0.1, 0.2, 0.5, 1.0, 2.0, 5.0, 10.0, 30.0, 60.0, 300.0)
_RECORDS = (1, 10, 50, 100, 250, 500, 1_000, 2_500, 5_000)
_BYTES = (1_024, 16_384, 131_072, 524_288, 1_048_576, 2_097_152, 4_194_304, 8_388_608)
_C, _G, _H = Kind.COUNTER, Kind.GAUGE, Kind.HISTOGRAM

INFO = Metric("info", _G, ("name", "version", "fold_version"), "", "Always 1; the labels say which processor this is.")
RECORDS = Metric(
    "records_total",
    _C,
    ("type", "outcome"),
    "records",
    f"Lifecycle records decided, by type (`{UNDECODABLE_TYPE}` where there is none) and outcome of the decision.",
)
DEAD_LETTERS = Metric("dead_letters_total", _C, (), "records", "Dead letters written, one an undecodable record.")
LEASES = Metric("leases_expired_total", _C, (), "updates", "Updates that the lease clerk ended (accepted expiries).")
LAG = Metric(
    "lag_records", _G, ("partition",), "records", "Records behind the end of the log, as of at most a second ago."
)
OFFSET = Metric(
    "decided_offset", _G, ("partition",), "offset", "The last lifecycle offset whose decision is committed."
)
ASSIGNED = Metric("assigned_partitions", _G, (), "partitions", "Partitions that this instance has now.")
STOPPED = Metric(
    "stopped_partitions",
    _G,
    (),
    "partitions",
    "Partitions stopped before a record that this version cannot fold: somebody must act.",
)
FOLD = Metric("fold_seconds", _H, (), "seconds", "Folding time of a committed batch.", _SECONDS)
RUN_FOLD = Metric(
    "run_fold_seconds_total",
    _C,
    ("run",),
    "seconds",
    f"Folding time of committed records by run: of at most {MOST_RUNS} runs, the others pooled as `{OTHER_RUNS}`; "
    "`~partition-N` stands for records of no run. A run gives its place away when it is closed, or silent for an hour.",
)
TRANSACTION = Metric(
    "transaction_seconds", _H, (), "seconds", "Time of a committed transaction, from begin to commit.", _SECONDS
)
OPEN = Metric(
    "open_transaction_seconds",
    _G,
    (),
    "seconds",
    "Age of the transaction that is open now, 0 without one: an open one hides all behind it.",
)
BATCH_RECORDS = Metric("batch_records", _H, (), "records", "Records in a committed batch.", _RECORDS)
BATCH_BYTES = Metric("batch_bytes", _H, (), "bytes", "Bytes of the record values in a committed batch.", _BYTES)
RESTORE = Metric(
    "restore_seconds", _H, (), "seconds", "Time to restore a partition; its count is that of the restores.", _SECONDS
)
RESTORED_ROWS = Metric("restored_rows_total", _C, (), "records", "Ledger records read by restores.")
ABORTS = Metric("aborts_total", _C, (), "transactions", "Transactions aborted; their records were read again.")
UNKNOWN = Metric(
    "unknown_outcomes_total",
    _C,
    (),
    "transactions",
    "Transactions of which it was not known whether they committed; everything was restored.",
)
FENCES = Metric("fences_total", _C, (), "fences", "Fences by a newer process of this name; the process ends by it.")

TABLE = (
    INFO,
    RECORDS,
    DEAD_LETTERS,
    LEASES,
    LAG,
    OFFSET,
    ASSIGNED,
    STOPPED,
    FOLD,
    RUN_FOLD,
    TRANSACTION,
    OPEN,
    BATCH_RECORDS,
    BATCH_BYTES,
    RESTORE,
    RESTORED_ROWS,
    ABORTS,
    UNKNOWN,
    FENCES,
)


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

    def free(self, run_id: str) -> bool:
        """Take a run's place; whether it had one."""
        return self._heard.pop(run_id, None) is not None


class Metrics:
    """The objects of the table, fed by the host's events."""

    def __init__(self, clock: Clock, name: str) -> None:
        disable_created_metrics()  # type: ignore[no-untyped-call]  # a series for each series, which nobody asks for
        self.registry = CollectorRegistry()
        self._clock = clock
        self._counters = {one: _counter(one, self.registry) for one in TABLE if one.kind is _C}
        self._gauges = {
            one: Gauge(one.name, one.help, one.labels, registry=self.registry) for one in TABLE if one.kind is _G
        }
        self._histograms = {
            one: Histogram(one.name, one.help, one.labels, registry=self.registry, buckets=one.buckets)
            for one in TABLE
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
