"""Cases beside the goldens, computed by the installed libraries' own code: rewards that nearly agree, ratios far out,
options that a library refuses. Their versions and functions are in tests/data/goldens-more/meta.json."""

from pathlib import Path

import pytest

from rollbook.tests.replay.goldens import tally

MORE = Path(__file__).parents[1] / "data" / "goldens-more"


@pytest.mark.parametrize("path", tally.files(MORE), ids=lambda path: path.name.removesuffix(".json.gz"))
def test_each_case_is_recomputed(path: Path) -> None:
    rows = list(tally.rows(path))
    assert sum(row.passed for row in rows) > 2
    assert [line for row in rows for line in row.failures] == []
    assert not any(row.unsupported for row in rows)
