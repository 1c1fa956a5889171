"""docs/incidents.md has a place for all that can wake somebody: each alert, exit code and stop of the processor."""

import ast
import re
from collections.abc import Iterator
from pathlib import Path

import pytest

from rollbook.infra.monitoring.alerts import ALERTS, Alert, Severity
from rollbook.infra.monitoring.rules import RUNBOOK
from rollbook.infra.outcome import ExitCode
from rollbook.infra.reference.markdown import anchor

ROOT = Path(__file__).resolve().parents[1]
PAGE = (ROOT / RUNBOOK).read_text(encoding="utf-8")
HOST = ROOT / "processors" / "host"
SHARED = ROOT / "infra" / "settings.py"
ADDRESS = ROOT / "processors" / "address.py"
STOPS = ("HostStopped", "PartitionUnusable", "Fenced", "EnvironmentFault")
FIRST_OTHER = 64
"""From here on the codes are those that other programs have, too."""
WORDS = ("**Look**", "**Do**", "**Over**")


def _sections(of: str) -> dict[str, str]:
    """The sections below a heading of the page, by their own headings."""
    (part,) = re.findall(rf"^## {of}\n(.*?)(?=^## |\Z)", PAGE, flags=re.MULTILINE | re.DOTALL)
    found = re.split(r"^### (.*)\n", part, flags=re.MULTILINE)
    return dict(zip(found[1::2], found[2::2], strict=True))


def test_each_alert_has_its_section_in_the_order_of_the_table() -> None:
    assert list(_sections("Alerts")) == [alert.name for alert in ALERTS]


@pytest.mark.parametrize("alert", ALERTS, ids=lambda alert: alert.name)
def test_a_section_says_what_to_look_at_what_to_do_and_when_it_is_over(alert: Alert) -> None:
    section = _sections("Alerts")[alert.name]
    assert anchor(alert.name) == f"#{alert.anchor}", "the rule's annotation leads there"
    assert section.strip().startswith("*Critical.*" if alert.severity is Severity.CRITICAL else "*Warning.*")
    places = [section.find(word) for word in WORDS]
    assert -1 not in places
    assert places == sorted(places)


def test_each_exit_code_has_its_section() -> None:
    sections = _sections("Exit codes")
    ours = [code for code in ExitCode if code < FIRST_OTHER]
    assert list(sections) == [*(f"Exit code {code:d}" for code in ours), "Other codes"]
    others = re.findall(r"^\| (\d+) \|", sections["Other codes"], flags=re.MULTILINE)
    assert {code for code in ExitCode if code >= FIRST_OTHER} <= set(map(int, others))


def test_each_stop_of_the_processor_is_explained_and_nothing_else() -> None:
    rows = "".join(_sections("When the processor stops").values())
    phrases = re.findall(r"^\| `([^`|]+)` \|", rows, flags=re.MULTILINE)
    stops = list(_stops())
    assert len(stops) > 15
    assert [text for text in stops if not any(phrase in text for phrase in phrases)] == [], "these have no row"
    assert [phrase for phrase in phrases if not any(phrase in text for text in stops)] == [], "nothing says so any more"
    assert "reference/errors.md" in rows, "where Kafka's own errors are explained"


def _stops() -> Iterator[str]:
    """What is said where the host or one of its partitions stops, without what is computed; what tells an error of
    Kafka and its remedy is of the table of those."""
    shared = ast.parse(SHARED.read_text(encoding="utf-8")).body
    for path in (*sorted(HOST.glob("*.py")), ADDRESS):
        module = ast.parse(path.read_text(encoding="utf-8"))
        known = ast.Module([*module.body, *shared], [])
        for node in ast.walk(module):
            if isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and node.func.id in STOPS and node.args:
                said = node.args[0]
                if not _is_of_kafka(said):
                    yield _literal(said) + "".join(map(_literal, _made_before(_names(said), known)))


def _is_of_kafka(node: ast.expr) -> bool:
    """Whether it ends with the remedy of an error of Kafka."""
    calls = (one.func for one in ast.walk(node) if isinstance(one, ast.Call))
    return any(isinstance(function, ast.Name) and function.id == "remedy" for function in calls)


def _made_before(names: set[str], module: ast.Module) -> Iterator[ast.AST]:
    """What a message was put together from: variables, and what a method returns."""
    for node in ast.walk(module):
        if isinstance(node, ast.Assign) and isinstance(node.targets[0], ast.Name) and node.targets[0].id in names:
            yield node.value
        elif isinstance(node, ast.FunctionDef) and node.name in names:
            yield from (one for one in ast.walk(node) if isinstance(one, ast.Return))


def _names(node: ast.expr) -> set[str]:
    plain = {one.id for one in ast.walk(node) if isinstance(one, ast.Name)}
    return plain | {one.attr for one in ast.walk(node) if isinstance(one, ast.Attribute)}


def _literal(node: ast.AST) -> str:
    return "".join(one.value for one in ast.walk(node) if isinstance(one, ast.Constant) and isinstance(one.value, str))
