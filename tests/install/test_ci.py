"""The public CI demands what `.ci/run` demands, and may do nothing but read."""

import re
import shutil
import subprocess
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
