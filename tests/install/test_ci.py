"""The public CI demands what `.ci/run` demands, and may do nothing but read."""

import re
import runpy
import shutil
import subprocess
from pathlib import Path
from typing import Any

import pytest
import yaml

from rollbook.tests.install.distributions import ROOT

FILE = ROOT / ".github" / "workflows" / "ci.yml"


@pytest.fixture(scope="module")
def workflow() -> dict[str, Any]:
    read: dict[str, Any] = yaml.safe_load(FILE.read_text(encoding="utf-8"))
    return read


def steps_of(workflow: dict[str, Any]) -> list[dict[str, Any]]:
    return [step for job in workflow["jobs"].values() for step in job["steps"]]


def test_the_tests_are_those_of_the_other_ci(workflow: dict[str, Any]) -> None:
    assert "bash .ci/run" in [step.get("run") for step in workflow["jobs"]["test"]["steps"]]
    assert (ROOT / ".ci" / "run").read_text(encoding="utf-8").rstrip().endswith("exec make test")


def test_it_installs_on_every_python_that_the_project_names(workflow: dict[str, Any]) -> None:
    named = re.findall(r"Python :: (3\.\d+)", (ROOT / "pyproject.toml").read_text(encoding="utf-8"))
    tried = re.search(r"^PYTHONS = \((.*)\)$", (ROOT / "noxfile.py").read_text(encoding="utf-8"), re.MULTILINE)
    assert tried is not None
    assert workflow["jobs"]["install"]["strategy"]["matrix"]["python"] == named == re.findall(r"3\.\d+", tried[1])


def test_what_both_ends_of_the_ranges_are_tried_with_is_there() -> None:
    text = (ROOT / "noxfile.py").read_text(encoding="utf-8")
    told = re.findall(r"^(?:SHARE|LEFT_OUT) = \((.*)\)$", text, re.MULTILINE)
    paths = [path for one in told for path in re.findall(r'"(tests/[^"]*)"', one)]
    assert len(told) == 2
    assert {f"tests/{part}" for part in ("schemas", "processors", "replay", "producers")} <= {*paths}
    assert [path for path in paths if not (ROOT / path).exists()] == []


def test_what_is_built_is_named_by_its_whole_path(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """nox names its folders from where it runs, and `rollbook[extra] @ URI` cannot."""

    class Session:
        cache_dir = Path(".cache")

        def run(self, *command: str, external: bool) -> None:
            into = Path(command[command.index("--out-dir") + 1])
            into.mkdir(parents=True)
            (into / "rollbook.whl").touch()

    monkeypatch.chdir(tmp_path)
    built = runpy.run_path(str(ROOT / "noxfile.py"))["built"]
    assert built(Session()) == tmp_path / ".cache" / "dist" / "rollbook.whl"


def test_what_each_run_takes_a_share_of_is_run_whole_each_night(workflow: dict[str, Any]) -> None:
    """The variables that tests ask for, and the programmes that are nothing but long."""
    asking = re.compile(r'environ\.get\("(ROLLBOOK_(?:NIGHTLY|\w+_ALL))"\)')
    texts = [path.read_text(encoding="utf-8") for path in (ROOT / "tests").rglob("*.py")]
    asked = {variable for text in texts for variable in asking.findall(text)}
    whole, night = workflow["jobs"]["whole"], workflow["jobs"]["night"]
    assert whole["if"] == night["if"] == "github.event_name == 'schedule' || github.event_name == 'workflow_dispatch'"
    [tests] = [step for step in whole["steps"] if step.get("run") == "bash .ci/run"]
    assert tests["env"] == dict.fromkeys(asked, "1")
    assert asked == {"ROLLBOOK_NIGHTLY", "ROLLBOOK_TRL_ALL"}
    runs = " ".join(night["strategy"]["matrix"]["run"])
    long = ("fuzz", "processors.proof.run", "simulation.run")
    assert [name for name in long if f"-m rollbook.tests.{name}" not in runs] == []
    contributing = (ROOT / "CONTRIBUTING.md").read_text(encoding="utf-8")
    assert [name for name in (*asked, "rollbook.tests.fuzz") if name not in contributing] == []


def test_it_may_only_read_and_every_action_is_pinned(workflow: dict[str, Any]) -> None:
    assert workflow["permissions"] == {"contents": "read"}
    assert all("permissions" not in job for job in workflow["jobs"].values())
    used = [step["uses"] for step in steps_of(workflow) if "uses" in step]
    assert [action for action in used if not re.fullmatch(r"actions/[a-z-]+@v\d+", action)] == []
    checkouts = [step for step in steps_of(workflow) if str(step.get("uses")).startswith("actions/checkout")]
    assert all(step["with"] == {"persist-credentials": False} for step in checkouts)


def test_every_job_ends(workflow: dict[str, Any]) -> None:
    assert all(0 < job["timeout-minutes"] <= 360 for job in workflow["jobs"].values())


@pytest.mark.skipif(shutil.which("actionlint") is None, reason="actionlint is not installed: go install it")
def test_actionlint_finds_nothing() -> None:
    done = subprocess.run(["actionlint", FILE], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout
