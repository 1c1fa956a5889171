"""What the Grafana dashboard shows: ONE table of panels. `$run` and `$__rate_interval` are Grafana's to fill in."""

from dataclasses import dataclass
from enum import StrEnum

from rollbook.infra.monitoring.alerts import SILENT_S
from rollbook.infra.monitoring.promql import growth, of_run, one_of_run, selector, total
from rollbook.processors import metric_table as table
from rollbook.processors.metric import Metric

_RUN = 'run="$run"'
_RATE = "$__rate_interval"


class Look(StrEnum):
    """How a panel shows its figures."""

    STAT = "stat"
    LINES = "lines"
    AREAS = "areas"
    HEAT = "heat"


class Unit(StrEnum):
    """Units, by Grafana's names."""

    COUNT = "short"
    SECONDS = "s"
    AGE = "dtdurations"
    PER_SECOND = "cps"
    NATS = "none"


@dataclass(frozen=True, slots=True)
class Query:
    """An expression, and what its series are called."""

    expr: str
    legend: str


@dataclass(frozen=True, slots=True)
class Panel:
    """One panel; from `bad_from` on a stat is red."""

    title: str
    look: Look
    unit: Unit
    queries: tuple[Query, ...]
    about: str = ""
    bad_from: float | None = None


@dataclass(frozen=True, slots=True)
class Section:
    """A row of the dashboard and the panels below it."""

    title: str
    panels: tuple[Panel, ...]


def _now(metric: Metric, legend: str = "") -> Query:
    return Query(one_of_run(metric, _RUN), legend)


def _by(metric: Metric) -> Query:
    """By its own label."""
    return Query(of_run(metric, _RUN), f"{{{{{metric.labels[-1]}}}}}")


def _rate(metric: Metric, legend: str) -> Query:
    return Query(growth(metric, _RATE, _RUN, "rate"), legend)


def _drift_quantile(quantile: float) -> Query:
    grown = growth(table.RUN_DRIFT, _RATE, _RUN, "rate")
    return Query(f"histogram_quantile({quantile}, {total(grown, 'le')})", f"quantile {quantile:g}")


def _drift_bins(verdict: str) -> Query:
    grown = growth(table.RUN_DRIFT, _RATE, f'{_RUN}, verdict="{verdict}"')
    return Query(f"sum by (le) ({grown})", "{{le}}")


def _of_processors(quantile: float, metric: Metric) -> Query:
    rates = f"sum by (le) (rate({selector(metric)}[{_RATE}]))"
    return Query(f"histogram_quantile({quantile}, {rates})", f"quantile {quantile:g}")


def _processor_rate(metric: Metric, legend: str, *by: str) -> Query:
    grouping = f" by ({', '.join(by)})" if by else ""
    return Query(f"sum{grouping} (rate({selector(metric)}[{_RATE}]))", legend)


_USABLE = Query(total(of_run(table.RUN_READY, f'{_RUN}, freshness=~"fresh|tolerated"')), "")
_AGE = Query(f"time() - {one_of_run(table.RUN_SNAPSHOT_AT, _RUN)}", "")
_CONSUMED = Query(total(of_run(table.RUN_CONSUMED, _RUN)), "")

NOW = Section(
    "Now",
    (
        Panel("Capacity", Look.STAT, Unit.COUNT, (_now(table.RUN_CAPACITY),), "More that can be begun now."),
        Panel("Ready, not stale", Look.STAT, Unit.COUNT, (_USABLE,)),
        Panel("Ready, about to go stale", Look.STAT, Unit.COUNT, (_now(table.RUN_EXPIRING),)),
        Panel("Ready, stale for the learner", Look.STAT, Unit.COUNT, (_now(table.RUN_STALE_FOR_LEARNER),)),
        Panel("Trained on", Look.STAT, Unit.COUNT, (_CONSUMED,), "Rows so far, also those rolled back since."),
        Panel("Workers behind", Look.STAT, Unit.COUNT, (_now(table.RUN_WORKERS_BEHIND),), bad_from=1),
        Panel("Updates in doubt", Look.STAT, Unit.COUNT, (_now(table.RUN_IN_DOUBT),), bad_from=1),
        Panel("Age of the figures", Look.STAT, Unit.AGE, (_AGE,), bad_from=SILENT_S),
    ),
)
FRESHNESS = Section(
    "Freshness",
    (
        Panel("Ready by freshness", Look.AREAS, Unit.COUNT, (_by(table.RUN_READY),), "Against the active policy."),
        Panel("Ready by lag", Look.AREAS, Unit.COUNT, (_by(table.RUN_READY_LAG),)),
        Panel(
            "Mean lag of the ready, and the limit",
            Look.LINES,
            Unit.COUNT,
            (_now(table.RUN_MEAN_LAG, "mean lag"), _now(table.RUN_MAX_LAG, "limit")),
        ),
        Panel("Live by state", Look.AREAS, Unit.COUNT, (_by(table.RUN_LIVE),)),
        Panel(
            "Capacity",
            Look.LINES,
            Unit.COUNT,
            (
                _now(table.RUN_CAPACITY, "capacity"),
                _now(table.RUN_UPDATE_ROWS, "rows of an update"),
                _now(table.RUN_UPDATES_LEFT, "updates left"),
            ),
            "How many more can be begun now and find an update that may train on them.",
        ),
        Panel(
            "Policy versions",
            Look.LINES,
            Unit.COUNT,
            (_now(table.RUN_LEARNER, "learner"), _now(table.RUN_ACTIVE, "active")),
        ),
    ),
)
TRAINING = Section(
    "What becomes of it",
    (
        Panel("Trained on, by lag", Look.AREAS, Unit.PER_SECOND, (_rate(table.RUN_CONSUMED, "{{lag}}"),)),
        Panel("Throughput by event", Look.LINES, Unit.PER_SECOND, (_rate(table.RUN_EVENTS, "{{event}}"),)),
        Panel("Refused", Look.LINES, Unit.PER_SECOND, (_rate(table.RUN_REFUSALS, "{{record}}: {{reason}}"),)),
        Panel("Failed", Look.LINES, Unit.PER_SECOND, (_rate(table.RUN_FAILURES, "{{stage}}: {{cause}}"),)),
    ),
)
DRIFT = Section(
    "Drift",
    (
        Panel(
            "Drift at the gate, and the limit",
            Look.LINES,
            Unit.NATS,
            (_drift_quantile(0.5), _drift_quantile(0.99), _now(table.RUN_DRIFT_LIMIT, "limit")),
            "Mean |current - behavior| of the rows that Admit judged, in nats.",
        ),
        Panel(
            "Drift floor",
            Look.LINES,
            Unit.NATS,
            (_by(table.RUN_FLOOR), _now(table.RUN_FLOOR_JUMP, "jump")),
            "Drift of rows at lag 0, in nats: what engine and trainer disagree in.",
        ),
        Panel("Drift of the admitted", Look.HEAT, Unit.NATS, (_drift_bins("admitted"),)),
        Panel("Drift of the refused", Look.HEAT, Unit.NATS, (_drift_bins("refused"),)),
    ),
)
WHO = Section(
    "Updates and workers",
    (
        Panel(
            "Updates",
            Look.LINES,
            Unit.COUNT,
            (_now(table.RUN_OPEN_UPDATES, "open"), _now(table.RUN_IN_DOUBT, "in doubt")),
        ),
        Panel(
            "Lease that ends first",
            Look.LINES,
            Unit.SECONDS,
            (_now(table.RUN_LEASE_LEFT, "left"), _now(table.RUN_LEASE, "lease")),
        ),
        Panel(
            "Workers",
            Look.LINES,
            Unit.COUNT,
            (
                _now(table.RUN_WORKERS, "all"),
                _now(table.RUN_WORKERS_REQUIRED, "required"),
                _now(table.RUN_WORKERS_BEHIND, "behind"),
                _now(table.RUN_WORKERS_SILENT, "never reported"),
            ),
        ),
        Panel("Version by worker", Look.LINES, Unit.COUNT, (_by(table.RUN_WORKER_VERSION),)),
        Panel("Workers without the active policy", Look.AREAS, Unit.COUNT, (_by(table.RUN_WORKER_BEHIND),)),
        Panel("Decisions", Look.LINES, Unit.PER_SECOND, (_rate(table.RUN_DECISIONS, "decisions"),)),
    ),
)
DASHBOARD = Section(
    "Dashboard",
    (
        Panel(
            "Records that the dashboard has not read",
            Look.LINES,
            Unit.COUNT,
            (Query(f"max by (instance, partition) ({selector(table.READER_LAG)})", "{{instance}} {{partition}}"),),
        ),
        Panel(
            "Connected",
            Look.LINES,
            Unit.COUNT,
            (Query(f"min by (instance) ({selector(table.READER_CONNECTED)})", "{{instance}}"),),
        ),
        Panel(
            "Records read",
            Look.LINES,
            Unit.PER_SECOND,
            (
                Query(f"sum by (instance) (rate({selector(table.READER_FOLDED)}[{_RATE}]))", "{{instance}}"),
                Query(
                    f"sum by (instance) (rate({selector(table.READER_UNREADABLE)}[{_RATE}]))",
                    "{{instance}}, unreadable",
                ),
            ),
        ),
        Panel(
            "Runs",
            Look.LINES,
            Unit.COUNT,
            (
                Query(f"max({selector(table.DASHBOARD_RUNS)})", "open"),
                Query(f"max({selector(table.DASHBOARD_RUNS_HIDDEN)})", "without metrics"),
            ),
        ),
    ),
)
PROCESSOR = Section(
    "Processor",
    (
        Panel(
            "Records behind",
            Look.LINES,
            Unit.COUNT,
            (Query(f"max by (partition) ({selector(table.LAG)})", "partition {{partition}}"),),
        ),
        Panel(
            "Decided, by outcome",
            Look.AREAS,
            Unit.PER_SECOND,
            (_processor_rate(table.RECORDS, "{{outcome}}", "outcome"),),
        ),
        Panel(
            "Time of a transaction",
            Look.LINES,
            Unit.SECONDS,
            (_of_processors(0.5, table.TRANSACTION), _of_processors(0.99, table.TRANSACTION)),
        ),
        Panel(
            "Transaction open now",
            Look.LINES,
            Unit.SECONDS,
            (Query(f"max by (instance) ({selector(table.OPEN)})", "{{instance}}"),),
        ),
        Panel(
            "What went wrong",
            Look.LINES,
            Unit.PER_SECOND,
            (
                _processor_rate(table.ABORTS, "aborted"),
                _processor_rate(table.UNKNOWN, "outcome not known"),
                _processor_rate(table.DEAD_LETTERS, "dead letters"),
            ),
        ),
        Panel(
            "Partitions",
            Look.LINES,
            Unit.COUNT,
            (
                Query(f"sum({selector(table.ASSIGNED)})", "assigned"),
                Query(f"sum({selector(table.STOPPED)})", "stopped"),
            ),
        ),
        Panel(
            "Folding time by run",
            Look.AREAS,
            Unit.SECONDS,
            (Query(f"topk(10, sum by (run) (rate({selector(table.RUN_FOLD)}[{_RATE}])))", "{{run}}"),),
            "Seconds a second: which run takes the time.",
        ),
        Panel(
            "Starts",
            Look.LINES,
            Unit.COUNT,
            (
                Query(
                    "sum by (instance) (changes(process_start_time_seconds[1h])"
                    f" and on (job, instance) {selector(table.INFO)})",
                    "{{instance}}",
                ),
            ),
            "Of the last hour.",
        ),
    ),
)

SECTIONS = (NOW, FRESHNESS, TRAINING, DRIFT, WHO, DASHBOARD, PROCESSOR)
