"""The alert rules, by promtool: each tells when it should, is silent when it should be, and no part of one is idle."""

import json
import re
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from rollbook.infra.monitoring.alerts import ALERTS, Alert
from rollbook.infra.monitoring.files import File
from rollbook.infra.monitoring.rules import RUNBOOK, rules
from rollbook.processors.metric_table import TABLE
from rollbook.tests.infra.monitoring.cases import AT, CASES, HEALTHY, MINUTES, Case, Fired
from rollbook.tests.infra.monitoring.promtool import promtool

BY_NAME = {alert.name: alert for alert in ALERTS}
WELL = Case("", "all is well", {})


def _series(case: Case) -> list[dict[str, str]]:
    values = {**HEALTHY, **case.changed}
    return [
        {"series": series, "values": value if isinstance(value, str) else f"{value}+0x{MINUTES}"}
        for series, value in values.items()
        if value is not None
    ]


def _labels(text: str) -> dict[str, str]:
    return dict(re.findall(r'(\w+)="([^"]*)"', text))


def _told(alert: Alert, fired: Fired) -> dict[str, Any]:
    labels = _labels(fired.labels)

    def filled(template: str) -> str:
        text = re.sub(r"{{ \$value[^}]*}}", fired.value, template)
        return re.sub(r"{{ \$labels\.(\w+) }}", lambda found: labels[found[1]], text)

    return {
        "exp_labels": {**labels, "severity": alert.severity.value},
        "exp_annotations": {
            "summary": filled(alert.summary),
            "description": filled(alert.description),
            "runbook": f"{RUNBOOK}#{alert.anchor}",
        },
    }


def _test(case: Case, alerts: tuple[Alert, ...]) -> dict[str, Any]:
    return {
        "name": f"{case.alert}: {case.title}",
        "interval": "1m",
        "input_series": _series(case),
        "alert_rule_test": [
            {
                "eval_time": f"{AT}m",
                "alertname": alert.name,
                "exp_alerts": [_told(alert, fired) for fired in case.fires if alert.name == case.alert],
            }
            for alert in alerts
        ],
    }


def _tests(alert: Alert) -> list[dict[str, Any]]:
    """All cases of an alert: in one test, each on a cluster of its own, unless it is told of what is nowhere."""
    cases = [WELL, *(case for case in CASES if case.alert == alert.name)]
    if alert.expr[0].startswith("absent("):
        return [_test(case, (alert,)) for case in cases]
    apart = [_test(_elsewhere(case, at), (alert,)) for at, case in enumerate(cases)]
    (first, *others) = apart
    for other in others:
        first["input_series"] += other["input_series"]
        first["alert_rule_test"][0]["exp_alerts"] += other["alert_rule_test"][0]["exp_alerts"]
    return [first]


def _elsewhere(case: Case, cluster: int) -> Case:
    def moved(text: str) -> str:
        return re.sub(r'job="(\w+)"', rf'job="\1 of {cluster}"', text)

    series = {moved(name): value for name, value in {**HEALTHY, **case.changed}.items()}
    away = dict.fromkeys(HEALTHY)
    fires = tuple(replace(fired, labels=moved(fired.labels)) for fired in case.fires)
    return replace(case, changed={**away, **series}, fires=fires)


def _write(path: Path, rule_file: Path, tests: list[dict[str, Any]]) -> Path:
    whole = {"rule_files": [str(rule_file)], "evaluation_interval": "1m", "tests": tests}
    path.write_text(json.dumps(whole), encoding="utf-8")  # JSON is YAML
    return path


def _rule_file(path: Path, alert: Alert) -> Path:
    rule = {
        "alert": alert.name,
        "expr": "\n".join(alert.expr),
        **({"for": f"{alert.for_s}s"} if alert.for_s else {}),
        "labels": {"severity": alert.severity.value},
        "annotations": {
            "summary": alert.summary,
            "description": alert.description,
            "runbook": f"{RUNBOOK}#{alert.anchor}",
        },
    }
    path.write_text(json.dumps({"groups": [{"name": "g", "rules": [rule]}]}), encoding="utf-8")
    return path


def test_the_file_is_what_the_table_says() -> None:
    assert File.RULES.text() == rules(), "run `python -m rollbook.infra.monitoring` and commit what it writes"


def test_promtool_takes_it() -> None:
    done = promtool("check", "rules", File.RULES.path)
    assert done.returncode == 0, done.stdout + done.stderr
    assert f"{len(ALERTS)} rules found" in done.stdout


def test_each_name_is_of_the_table() -> None:
    known = {one.name for one in TABLE} | {"process_start_time_seconds"}
    for alert in ALERTS:
        named = set(re.findall(r"\b(?:rollbook|process)_\w+", "\n".join(alert.expr)))
        assert named
        assert named <= known, alert.name


@pytest.mark.parametrize("alert", ALERTS, ids=lambda alert: alert.name)
def test_each_alert_is_tested_both_ways(alert: Alert) -> None:
    fires = {bool(case.fires) for case in CASES if case.alert == alert.name}
    assert fires == {True, False}


def test_each_tells_from_the_file_that_is_shipped_and_none_does_while_all_is_well(tmp_path: Path) -> None:
    first = {case.alert: case for case in reversed(CASES) if case.fires}
    cases = [_test(case, (BY_NAME[case.alert],)) for case in first.values()]
    done = promtool("test", "rules", _write(tmp_path / "tests.json", File.RULES.path, [*cases, _test(WELL, ALERTS)]))
    assert done.returncode == 0, done.stdout + done.stderr


def _mutants(alert: Alert) -> Iterator[tuple[str, Alert]]:
    """The alert with one thing of it otherwise, each of which some case must notice."""
    whole = "\n".join(alert.expr)
    yield "never", replace(alert, expr=("vector(0) > 1",))
    yield "always", replace(alert, expr=("vector(1)",))
    if alert.for_s:
        yield "at once", replace(alert, for_s=0)
    first, *clauses = re.split(r"\n(?=and )", whole)
    for at, clause in enumerate(clauses):
        kept = [one for other, one in enumerate(clauses) if other != at]
        yield f"without {clause[:70]}", replace(alert, expr=tuple("\n".join((first, *kept)).split("\n")))
    for found in re.finditer(r"(?<=[<>=] )(\d+(?:\.\d+)?)", whole):
        for factor in (0.5, 2.0):
            number = float(found[1]) * factor
            if number != float(found[1]):
                mutated = f"{whole[: found.start()]}{number:g}{whole[found.end() :]}"
                yield f"{found[1]} is {number:g}", replace(alert, expr=tuple(mutated.split("\n")))


def test_each_passes_all_of_its_cases_and_fails_one_when_anything_of_it_is_otherwise(tmp_path: Path) -> None:
    files: dict[Path, str] = {}
    for alert in ALERTS:
        cases = _tests(alert)
        for at, (what, mutant) in enumerate([("as it is", alert), *_mutants(alert)]):
            rule_file = _rule_file(tmp_path / f"{alert.name}-{at}.rules.json", mutant)
            files[_write(tmp_path / f"{alert.name}-{at}.json", rule_file, cases)] = f"{alert.name}: {what}"
    done = promtool("test", "rules", *files)
    tested = re.findall(r"^Unit Testing:\s+(\S+)(\n\s+SUCCESS)?", done.stdout, flags=re.MULTILINE)
    assert {Path(path) for path, _ in tested} == files.keys()
    passed = {files[Path(path)] for path, success in tested if success}
    assert passed == {f"{alert.name}: as it is" for alert in ALERTS}
