"""What the page's scripts know of the fold's tables is what the fold has."""

import json
import re

from rollbook.processors.dashboard.fold.counting import STAGES, TOOK_S
from rollbook.processors.ledger.figures import BOUNDS
from rollbook.tests.processors.dashboard.page_server import STATIC


def constant(path: str, name: str) -> list[object]:
    """A list that a script begins with."""
    found = re.search(rf"const {name} = (\[.*?\]);", (STATIC / path).read_text(), re.DOTALL)
    assert found is not None
    listed: list[object] = json.loads(found[1])
    return listed


def test_the_bins_of_the_histograms_are_those_that_are_counted() -> None:
    assert constant("charts/bins.js", "DRIFT_NATS") == list(BOUNDS)
    assert constant("charts/bins.js", "TOOK_S") == list(TOOK_S)


def test_the_stages_are_those_that_are_counted() -> None:
    assert constant("charts/throughput.js", "STAGES") == list(STAGES)
