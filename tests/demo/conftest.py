"""Fixtures of the demo's tests."""

import pytest
from rollbook.infra.demo.model import use_one_thread
from rollbook.infra.demo.simulate import SimulationResult
from rollbook.tests.demo.runs import run_of


@pytest.fixture(autouse=True, scope="session")
def _one_thread() -> None:
    use_one_thread()


@pytest.fixture
def run() -> SimulationResult:
    """A full run of seed 0."""
    return run_of(0)
