"""The dashboard's metrics: a pure function from the newest snapshots to Prometheus' text format.

Counters are the run's own, taken from its snapshot, so that a restart of the dashboard resets none of them, and several
dashboards side by side tell the same. What an alert takes the increase of is there from the beginning, as 0: Prometheus
sees no increase in a series that appears.
"""

import threading
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from importlib.metadata import version
from itertools import accumulate

from prometheus_client import CollectorRegistry, ProcessCollector, generate_latest
from prometheus_client.metrics_core import Metric as Family
from prometheus_client.registry import Collector

from rollbook.processors import metric_table as table
from rollbook.processors.gates import Freshness
from rollbook.processors.ledger.figures import BOUNDS
from rollbook.processors.lifecycle import LIVE, Event
from rollbook.processors.metric import OTHER_RUNS, Metric, RunLabels
from rollbook.processors.reasons import Reason
from rollbook.schemas.records.decision import FreshnessSnapshot, LagCount
from rollbook.schemas.records.reward import RewardFailure
from rollbook.schemas.records.rollout import GenerationFailure
from rollbook.schemas.registry import RECORDS

LAG_RANGES = ((0, "0"), (1, "1"), (2, "2"), (3, "3"), (4, "4"), (8, "5-8"), (16, "9-16"), (32, "17-32"))
"""Upper bounds of the lags that share a label."""
FUTURE, BEYOND, UNKNOWN = "future", "33+", "unknown"
ADMITTED, REFUSED = "admitted", "refused"
NEWEST, PREVIOUS = "newest", "previous"
ACTIVATION_REFUSED = (
    Reason.UNKNOWN_VERSION,
    Reason.WRONG_EXPECTED,
    Reason.ARTIFACT_NOT_COMMITTED,
    Reason.NON_MONOTONIC_VERSION,
    Reason.POLICY_ABANDONED,
    Reason.POLICY_ORPHANED,
    Reason.UPDATE_NOT_COMMITTED,
    Reason.MISSING_WORKER_ACK,
    Reason.WORKER_MISMATCH,
)
ALWAYS_TOLD = (
    ("Reserve", Reason.STALE_POLICY),
    ("Admit", Reason.STALE_POLICY),
    ("Admit", Reason.POLICY_DRIFT),
    *(("Activate", reason) for reason in ACTIVATION_REFUSED),
)
"""Refusals that are there as 0, too."""
_CAUSES: Mapping[str, frozenset[str]] = {
    "generation": frozenset(cause.value for cause in GenerationFailure),
    "reward": frozenset(cause.value for cause in RewardFailure),
}
_RECORD_TYPES = frozenset(model.__name__ for model in RECORDS)
_Labels = tuple[str, ...]
_REASONS = frozenset(reason.value for reason in Reason)


@dataclass(frozen=True, slots=True)
class RunFigures:
    """What is known of a run: its newest snapshot, and the timestamp of the record that this stands after.

    `lease_left_s` is what is left now (by the clock of the dashboard, of a lease that began by that of the log) of the
    lease that ends first, and `lease_s` how long that is in all; updates in doubt, whose lease has ended, and those
    without a lease are left out, and none is none.
    """

    snapshot: FreshnessSnapshot
    at_ms: int
    lease_left_s: float | None = None
    lease_s: float | None = None
    closed: bool = False


@dataclass(frozen=True, slots=True)
class ReaderFigures:
    """How the dashboard's reader is getting on: committed records that it has not folded, by partition; open runs that
    it does not keep; records that it could not read."""

    connected: bool
    lag_records: Mapping[int, int]
    folded: int
    left_out: int = 0
    unreadable: int = 0


class RunMetrics:
    """Keeps which runs have a label, and nothing else. May be asked by several threads."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._labels = RunLabels()
        self._process = CollectorRegistry()
        ProcessCollector(registry=self._process)

    def exposition(self, views: Iterable[RunFigures], reader: ReaderFigures) -> bytes:
        """All of it in Prometheus' text format (`prometheus_client.CONTENT_TYPE_LATEST`)."""
        runs = [view for view in views if not view.closed]
        with self._lock:
            shown = self._shown(runs)
        page = _Page()
        for view in shown:
            _RunPage(page, view.snapshot.run_id).tell(view)
        page.put(table.DASHBOARD_INFO, 1, version("rollbook"))
        page.put(table.DASHBOARD_RUNS, len(runs) + reader.left_out)
        page.put(table.DASHBOARD_RUNS_HIDDEN, len(runs) - len(shown) + reader.left_out)
        page.put(table.READER_CONNECTED, reader.connected)
        page.put(table.READER_FOLDED, reader.folded)
        page.put(table.READER_UNREADABLE, reader.unreadable)
        for partition, behind in sorted(reader.lag_records.items()):
            page.put(table.READER_LAG, behind, str(partition))
        registry = CollectorRegistry()
        registry.register(page)
        return generate_latest(registry) + generate_latest(self._process)

    def _shown(self, runs: Sequence[RunFigures]) -> list[RunFigures]:
        """The clock is the log's: a run is silent by the last record of any."""
        now = max((view.at_ms for view in runs), default=0) / 1000
        known = {view.snapshot.run_id for view in runs}
        for gone in self._labels.held() - known:
            self._labels.free(gone)
        for run_id in self._labels.silent(now):
            self._labels.free(run_id)
        newest_first = sorted(runs, key=lambda view: (-view.at_ms, view.snapshot.run_id))
        held = [view for view in newest_first if view.snapshot.run_id in self._labels.held()]
        others = [view for view in newest_first if view.snapshot.run_id not in self._labels.held()]
        return [
            view
            for view in (*held, *others)
            if self._labels.label(view.snapshot.run_id, view.at_ms / 1000) != OTHER_RUNS
        ]


class _Page(Collector):
    """The families of the table, with the samples that they were given."""

    def __init__(self) -> None:
        self._families = {one: Family(one.name.removesuffix("_total"), one.help, one.kind) for one in table.DASHBOARD}

    def collect(self) -> Iterable[Family]:
        """Those that have any."""
        return (family for family in self._families.values() if family.samples)

    def put(self, metric: Metric, value: float | None, *labels: str) -> None:
        """A sample, where there is a value."""
        if value is not None:
            self._families[metric].add_sample(metric.name, dict(zip(metric.labels, labels, strict=True)), float(value))

    def put_bins(self, metric: Metric, counts: Sequence[int], *labels: str) -> None:
        """A histogram: rows by bin, the last of which has no bound."""
        named = dict(zip(metric.labels, labels, strict=True))
        family = self._families[metric]
        for bound, upto in zip((*map(str, metric.buckets), "+Inf"), accumulate(counts), strict=True):
            family.add_sample(f"{metric.name}_bucket", {**named, "le": bound}, float(upto))
        family.add_sample(f"{metric.name}_count", named, float(sum(counts)))


class _RunPage:
    """What a page tells of one run."""

    def __init__(self, page: _Page, run_id: str) -> None:
        self._page = page
        self._run_id = run_id

    def tell(self, view: RunFigures) -> None:
        """All of it."""
        snapshot = view.snapshot
        self._put(table.RUN_INFO, 1, snapshot.lag_unit, snapshot.drift_gate)
        self._put(table.RUN_DECISIONS, snapshot.sequence)
        self._put(table.RUN_SNAPSHOT_AT, view.at_ms / 1000)
        self._put(table.RUN_ACTIVE, None if snapshot.active_policy is None else snapshot.active_policy.version)
        self._put(table.RUN_LEARNER, None if snapshot.learner_policy is None else snapshot.learner_policy.version)
        self._ready(snapshot)
        self._happened(snapshot)
        self._drift(snapshot)
        self._updates(view)
        self._workers(snapshot)

    def _put(self, metric: Metric, value: float | None, *labels: str) -> None:
        self._page.put(metric, value, self._run_id, *labels)

    def _put_all(self, metric: Metric, counts: Mapping[_Labels, int]) -> None:
        for labels, count in counts.items():
            self._put(metric, count, *labels)

    def _ready(self, snapshot: FreshnessSnapshot) -> None:
        by_freshness: dict[_Labels, int] = {
            (Freshness.FRESH.value,): snapshot.ready_fresh,
            (Freshness.TOLERATED.value,): snapshot.ready_tolerated,
            (Freshness.STALE.value,): snapshot.ready_stale,
            (Freshness.FUTURE.value,): snapshot.ready_future,
            (UNKNOWN,): snapshot.ready_unknown,
        }
        self._put_all(table.RUN_READY, by_freshness)
        self._put_all(table.RUN_READY_LAG, _by_range(snapshot.ready_by_lag, snapshot.ready_unknown))
        self._put(table.RUN_EXPIRING, snapshot.ready_expiring)
        self._put(table.RUN_STALE_FOR_LEARNER, snapshot.ready_stale_for_learner)
        self._put(table.RUN_MAX_LAG, snapshot.max_lag)
        self._put(table.RUN_MEAN_LAG, snapshot.mean_lag)
        live = dict.fromkeys(((state.value,) for state in LIVE), 0)
        for one in snapshot.by_version:
            if (one.state,) in live:
                live[one.state,] += one.count
        self._put_all(table.RUN_LIVE, dict(sorted(live.items())))
        self._put(table.RUN_CAPACITY, snapshot.capacity)
        self._put(table.RUN_UPDATE_ROWS, snapshot.rows_per_update)
        self._put(table.RUN_UPDATES_LEFT, snapshot.updates_left)

    def _happened(self, snapshot: FreshnessSnapshot) -> None:
        tallies = {tally.name: tally.count for tally in snapshot.happened}
        self._put_all(table.RUN_EVENTS, {(event.value,): tallies.get(event.value, 0) for event in Event})
        self._put_all(table.RUN_CONSUMED, _by_range(snapshot.consumed_by_lag, snapshot.consumed_lag_unknown))
        refusals: Counter[_Labels] = Counter({(record, reason.value): 0 for record, reason in ALWAYS_TOLD})
        for one in snapshot.refusals:
            refusals[_known(one.record_type, _RECORD_TYPES), _known(one.reason, _REASONS)] += one.count
        self._put_all(table.RUN_REFUSALS, refusals)
        failures: Counter[_Labels] = Counter(
            {(stage, cause): 0 for stage, causes in _CAUSES.items() for cause in sorted(causes)}
        )
        for failure in snapshot.failures:
            causes = _CAUSES.get(failure.stage, frozenset())
            failures[_known(failure.stage, frozenset(_CAUSES)), _known(failure.cause, causes)] += failure.count
        self._put_all(table.RUN_FAILURES, failures)

    def _drift(self, snapshot: FreshnessSnapshot) -> None:
        bins = {one.up_to: one for one in snapshot.drift}
        found = [bins.get(bound) for bound in (*BOUNDS, None)]
        self._page.put_bins(table.RUN_DRIFT, [one.admitted if one else 0 for one in found], self._run_id, ADMITTED)
        self._page.put_bins(table.RUN_DRIFT, [one.refused if one else 0 for one in found], self._run_id, REFUSED)
        self._put(table.RUN_DRIFT_LIMIT, snapshot.max_mean_abs_log_ratio)
        newest = sorted(snapshot.drift_floor, key=lambda one: -one.version)[:2]
        for which, floor in zip((NEWEST, PREVIOUS), newest, strict=False):
            self._put(table.RUN_FLOOR, floor.mean_abs_log_ratio, which)
            self._put(table.RUN_FLOOR_VERSION, floor.version, which)
            self._put(table.RUN_FLOOR_ROWS, floor.rows, which)
        if len(newest) == 2:
            self._put(table.RUN_FLOOR_JUMP, newest[0].mean_abs_log_ratio - newest[1].mean_abs_log_ratio)

    def _updates(self, view: RunFigures) -> None:
        snapshot = view.snapshot
        self._put(table.RUN_OPEN_UPDATES, snapshot.open_update_count)
        self._put(table.RUN_IN_DOUBT, snapshot.in_doubt_count)
        self._put(table.RUN_LEASE, view.lease_s)
        self._put(table.RUN_LEASE_LEFT, view.lease_left_s)

    def _workers(self, snapshot: FreshnessSnapshot) -> None:
        required = [one for one in snapshot.workers if one.required]
        self._put(table.RUN_WORKERS, snapshot.worker_count)
        self._put(table.RUN_WORKERS_REQUIRED, len(required))
        self._put(table.RUN_WORKERS_SILENT, sum(one.incarnation is None for one in required))
        self._put(table.RUN_WORKERS_BEHIND, snapshot.workers_behind)
        for one in sorted(required, key=lambda one: (one.serves_active, one.worker_id))[: table.MOST_WORKERS]:
            self._put(table.RUN_WORKER_BEHIND, not one.serves_active, one.worker_id)
            self._put(table.RUN_WORKER_VERSION, None if one.serves is None else one.serves.version, one.worker_id)


def _by_range(counts: Iterable[LagCount], unknown: int) -> dict[_Labels, int]:
    """All ranges, in the order of their lags."""
    ranges: dict[_Labels, int] = dict.fromkeys(((FUTURE,), *((name,) for _, name in LAG_RANGES), (BEYOND,)), 0)
    for one in counts:
        ranges[(_range_of(one.lag),)] += one.count
    return {**ranges, (UNKNOWN,): unknown}


def _range_of(lag: int) -> str:
    return FUTURE if lag < 0 else next((name for bound, name in LAG_RANGES if lag <= bound), BEYOND)


def _known(name: str, names: frozenset[str]) -> str:
    """A newer processor may know more: a label of its own for each would be without bound."""
    return name if name in names else table.OTHER
