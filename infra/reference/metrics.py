"""The page of the metrics."""

from rollbook.infra.reference.markdown import code, fenced, page, table
from rollbook.processors.host.health import HEALTHY_WITHIN_S, READY_LAG
from rollbook.processors.host.metrics import TABLE


def metrics() -> str:
    """Every metric with its labels and unit."""
    rows = ((code(one.name), one.kind, ", ".join(map(code, one.labels)), one.unit, one.help) for one in TABLE)
    buckets = ((code(one.name), ", ".join(f"{bound:,g}" for bound in one.buckets)) for one in TABLE if one.buckets)
    return page(
        "Metrics",
        "From `processors/host/metrics.py`. `rollbook processor run --http HOST:PORT` serves them at `/metrics` in "
        "Prometheus' text format, without authentication: let it listen where only those who may know can ask, since "
        "they name runs. What counts decisions counts committed ones only.",
        table(("metric", "type", "labels", "unit", "meaning"), rows),
        "Besides them there are `process_*` (CPU time, memory, open files) as the Prometheus client library has them.",
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
