"""Every expression, of rules and of panels, on a real Prometheus that scrapes real endpoints: each finds something."""

import json
import math
import re
from collections.abc import Iterator
from contextlib import contextmanager
from itertools import chain
from pathlib import Path
from typing import Any

from rollbook.infra.monitoring.alerts import ALERTS
from rollbook.infra.monitoring.files import File
from rollbook.infra.monitoring.panels import SECTIONS
from rollbook.infra.monitoring.promql import selector
from rollbook.processors.metric_table import DASHBOARD, RUN_DECISIONS, RUN_FLOOR_VERSION, RUN_INFO, TABLE
from rollbook.tests.infra.monitoring.promtool import promtool
from rollbook.tests.infra.monitoring.server import Prometheus, Sample, config, documented_config, prometheus, wait_until
from rollbook.tests.infra.monitoring.world import LIVING, World, served

_SCRAPES = 4
_BEFORE_ANYTHING = 1.0


@contextmanager
def watched(folder: Path) -> Iterator[Prometheus]:
    """One that has scraped everything a few times."""
    with (
        served(World()) as (processors, dashboards),
        prometheus(folder, config(processors, dashboards)) as server,
    ):
        wait_until(lambda: _scraped(server), "Prometheus does not scrape")
        yield server


def _scraped(server: Prometheus) -> bool:
    counted = server.query("count_over_time(up[1m]) and up == 1")
    return len(counted) == 4 and all(one.value >= _SCRAPES for one in counted)


def _filled(expr: str) -> str:
    return expr.replace("$run", LIVING).replace("$__rate_interval", "10s")


def _numbers(found: list[Sample]) -> list[float]:
    return [one.value for one in found if not math.isnan(one.value)]


def test_the_configuration_of_the_page_is_one(tmp_path: Path) -> None:
    (tmp_path / File.RULES).write_text(File.RULES.text(), encoding="utf-8")
    written = tmp_path / "prometheus.yml"
    written.write_text(documented_config(), encoding="utf-8")
    done = promtool("check", "config", written)
    assert done.returncode == 0, done.stdout + done.stderr
    assert f"{len(ALERTS)} rules found" in done.stdout


def test_promtool_finds_no_fault_with_the_metrics() -> None:
    """Their names, kinds and help, by Prometheus' own conventions."""
    world = World()
    for metrics in (world.well(), world.processor.exposition()):
        done = promtool("check", "metrics", given=metrics.decode())
        assert (done.returncode, done.stdout + done.stderr) == (0, "")


def test_each_expression_finds_what_there_is(tmp_path: Path) -> None:
    """One server for all of it; whatever does not hold is listed."""
    with watched(tmp_path) as server:
        problems = [*_of_metrics(server), *_of_panels(server), *_of_alerts(server), *_of_the_rules_file(server)]
        runs = server.get(f"label/run/values?match[]={RUN_DECISIONS.name}")
    assert problems == []
    assert LIVING in runs


def _of_metrics(server: Prometheus) -> Iterator[str]:
    for metric in TABLE:
        found = server.query(selector(metric))
        if not found:
            yield f"{metric.name}: nothing"
        job = "rollbook-dashboard" if metric in DASHBOARD else "rollbook-processor"
        for one in found:
            labels = set(one.labels) - {"__name__", "job", "instance", "le"}
            if labels != set(metric.labels) or one.labels["job"] != job:
                yield f"{metric.name}: {one.labels}"


def _of_panels(server: Prometheus) -> Iterator[str]:
    for section in SECTIONS:
        for panel in section.panels:
            for query in panel.queries:
                if not _numbers(server.query(_filled(query.expr))):
                    yield f"{panel.title}: nothing for {query.expr}"


def _of_alerts(server: Prometheus) -> Iterator[str]:
    """Each is told of something that is wrong in this world, or, where it is of nothing, before there was anything."""
    for alert in ALERTS:
        expr = "\n".join(alert.expr)
        is_of_nothing = expr.startswith("absent(")
        if bool(server.query(expr)) == is_of_nothing:
            yield f"{alert.name}: {expr}"
        if is_of_nothing and not server.query(expr, at=_BEFORE_ANYTHING):
            yield f"{alert.name}: it is not told when there is nothing"


def _of_the_rules_file(server: Prometheus) -> Iterator[str]:
    wait_until(lambda: all(rule["health"] != "unknown" for rule in server.rules()), "rules are not evaluated")
    rules = server.rules()
    if {rule["name"] for rule in rules} != {alert.name for alert in ALERTS}:
        yield f"it has other rules: {rules}"
    for rule in rules:
        if rule["health"] != "ok":
            yield f"{rule['name']}: {rule['lastError']}"


def test_the_runs_to_choose_from_are_those_with_decisions() -> None:
    dashboard = json.loads(File.GRAFANA.text())
    (asked,) = [one["query"] for one in dashboard["templating"]["list"] if one["name"] == "run"]
    assert asked == f"label_values({RUN_DECISIONS.name}, run)"


def _expressions(value: Any) -> Iterator[str]:
    if isinstance(value, dict):
        yield from ([value["expr"]] if "expr" in value else [])
        yield from chain.from_iterable(map(_expressions, value.values()))
    elif isinstance(value, list):
        yield from chain.from_iterable(map(_expressions, value))


def test_the_dashboard_that_is_shipped_asks_these_and_nothing_else() -> None:
    asked = list(_expressions(json.loads(File.GRAFANA.text())))
    assert asked == [query.expr for section in SECTIONS for panel in section.panels for query in panel.queries]


def test_every_figure_of_the_dashboard_is_shown_or_alerted_on() -> None:
    told = set(re.findall(r"rollbook_\w+", File.GRAFANA.text() + File.RULES.text()))
    assert {one for one in DASHBOARD if selector(one) not in told} == {RUN_INFO, RUN_FLOOR_VERSION}
