"""The page of the alerts."""

from rollbook.infra.monitoring.alerts import ALERTS, Source
from rollbook.infra.reference.markdown import fenced, page, table


def alerts() -> str:
    """Every alert: how urgent it is, after how long, and on what."""
    rows = (
        (f"[{one.name}](../incidents.md#{one.anchor})", one.severity, f"{one.for_s} s", one.source, one.summary)
        for one in ALERTS
    )
    blocks: list[str] = []
    for source in Source:
        blocks.append(f"## Told by the {source}")
        for one in ALERTS:
            if one.source is source:
                blocks += [f"### {one.name}", fenced("promql", one.expr)]
    return page(
        "Alerts",
        "From `infra/monitoring/alerts.py`; `rollbook monitoring rules` prints them for Prometheus. What to do about "
        "each is in [incidents](../incidents.md). `{{ $labels.run }}` and the like are what Prometheus puts in.",
        table(("alert", "severity", "after", "told by", "summary"), rows),
        *blocks,
    )
