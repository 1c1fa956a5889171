"""Fixtures of the demo's tests."""

import os

import pytest

from rollbook.infra.demo.learning.model import use_one_thread
from rollbook.tests.demo.finished import FinishedDemo, once
from rollbook.tests.demo.runs import run_of
from rollbook.tests.demo.simulate import SimulationResult


@pytest.fixture(autouse=True, scope="session")
def _one_thread() -> None:
    use_one_thread()


@pytest.fixture
def run() -> SimulationResult:
    """A full run of seed 0."""
    return run_of(0)


@pytest.fixture(scope="session")
def demos(broker: str, tmp_path_factory: pytest.TempPathFactory) -> tuple[FinishedDemo, ...]:
    """Demos that ran side by side: each night seed 0 on a broker of its own, which is gone; seed 1 on the session's."""
    own = tmp_path_factory.getbasetemp()
    found = once(own if "PYTEST_XDIST_WORKER" not in os.environ else own.parent, broker)
    for demo in found:
        assert (demo.code, demo.errors) == (0, "")
    return found


@pytest.fixture
def demo(demos: tuple[FinishedDemo, ...]) -> FinishedDemo:
    """The one whose topics can still be read."""
    return demos[-1]
