"""The page of the metrics."""

from collections.abc import Iterable

from rollbook.infra.reference.markdown import code, fenced, page, table
from rollbook.processors.host.health import HEALTHY_WITHIN_S, READY_LAG
from rollbook.processors.metric import Metric
from rollbook.processors.metric_table import DASHBOARD, PROCESSOR, RUN_PREFIX, TABLE


def metrics() -> str:
    """Every metric with its labels and unit."""
    buckets = ((code(one.name), ", ".join(f"{bound:,g}" for bound in one.buckets)) for one in TABLE if one.buckets)
    return page(
        "Metrics",
        "From `processors/metric_table.py`. How to scrape, the alerts and a Grafana dashboard are in "
        "`docs/monitoring.md`. Both endpoints name runs, and the dashboard's names workers.",
        "## Of the processor",
        "`rollbook processor run --http HOST:PORT` serves them at `/metrics` in Prometheus' text format, without "
        "authentication: let it listen where only those who may know can ask. What counts decisions counts committed "
        "ones only.",
        _table(PROCESSOR),
        "## Of the dashboard",
        f"The dashboard serves them at `/metrics`, `{RUN_PREFIX}*` from the newest freshness snapshot of each run. "
        "Those counters count since the run began, so that a restart of the dashboard resets none of them. A run "
        "that is closed is not shown any more.",
        _table(DASHBOARD),
        "Besides them both have `process_*` (CPU time, memory, open files) as the Prometheus client library has them.",
        "## Buckets",
        table(("histogram", "upper bounds"), buckets),
        "## Health and readiness",
        table(
            ("path", "200 when", "otherwise"),
            (
                (
                    code("/healthz"),
                    f"the loop went round within `--healthy-within-s` ({HEALTHY_WITHIN_S} by default), or a "
                    "restore went on; a transaction that changes very much is given the five minutes that it may take",
                    "503: end the process and start it again",
                ),
                (
                    code("/readyz"),
                    f"every partition of this instance is restored, at most {READY_LAG:,} records behind, and "
                    "none is stopped; an instance without partitions stands by and is ready",
                    "503 and the reason: go on with a roll-out later",
                ),
            ),
        ),
        "## Lines to begin with",
        fenced(
            "promql",
            (
                "sum(rollbook_processor_lag_records)                                   # records behind",
                "sum by (outcome) (rate(rollbook_processor_records_total[1m]))         # records a second",
                "histogram_quantile(0.99, rate(rollbook_processor_transaction_seconds_bucket[5m]))",
                "topk(5, rate(rollbook_processor_run_fold_seconds_total[5m]))          # who takes the time",
                "rollbook_processor_stopped_partitions > 0                             # wake somebody",
                "increase(rollbook_processor_unknown_outcomes_total[10m]) > 3          # a sick cluster",
            ),
        ),
    )


def _table(metrics: Iterable[Metric]) -> str:
    rows = ((code(one.name), one.kind, ", ".join(map(code, one.labels)), one.unit, one.help) for one in metrics)
    return table(("metric", "type", "labels", "unit", "meaning"), rows)
