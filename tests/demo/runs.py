"""One full simulated run a seed, made once for all the tests that look at it."""

from functools import cache

from rollbook.infra.demo.config import DemoConfig
from rollbook.tests.demo.simulate import SimulationResult, simulate


@cache
def run_of(seed: int) -> SimulationResult:
    """The run that the demo's own constants give."""
    return simulate(DemoConfig(seed=seed))
