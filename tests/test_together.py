"""Tests that share something come to one worker."""

import os

import pytest


@pytest.mark.skipif("PYTEST_XDIST_WORKER" not in os.environ, reason="there are no workers")
def test_what_runs_the_tests_knows_which_belong_together(request: pytest.FixtureRequest) -> None:
    """A pytest that pytest-xdist does not know yet spreads them over all workers, and says nothing."""
    assert request.node.nodeid.rpartition("@")[2] == "tests/test_together.py"
