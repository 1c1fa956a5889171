"""What other frameworks' own code computed, recomputed: every case of every function that format 1.1.0 names.

The folder is ROLLBOOK_GOLDENS, by default the copy in tests/data. What is not supported is fixed beforehand, by
function and with its reason; a function or a library that nobody knows fails.
"""

from pathlib import Path

import pytest

from rollbook.tests.replay.goldens import compare, tally
from rollbook.tests.replay.goldens.case import read


@pytest.mark.parametrize("path", tally.files(), ids=lambda path: path.name.removesuffix(".json.gz"))
def test_each_case_is_recomputed(path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    rows = list(tally.rows(path))
    with capsys.disabled():
        print("", *rows, sep="\n")
    assert rows
    assert [line for row in rows for line in row.failures] == []


def test_gradients_are_held_where_the_locked_libraries_are() -> None:
    (path,) = (path for path in tally.files(tally.OURS) if path.name.startswith("verl-"))
    raw = next(raw for raw in read(path) if raw["function"] == "agg_loss" and "raises" not in raw)
    raw["outputs"]["grad_loss_mat"][0][0] += 1e-3
    row = tally.row("verl", "agg_loss", [raw], tally.LIBRARIES["verl"])
    assert [line for line in row.failures if "grad_loss_mat" in line] or not compare.GRADIENTS


def test_there_are_cases() -> None:
    assert tally.files(), f"no *.json.gz in {tally.FOLDER}"


def test_a_function_that_nobody_knows_fails() -> None:
    raw = {"id": "verl/no.such/1", "function": "no.such", "params": {}, "inputs": {}, "outputs": {}}
    row = tally.row("verl", "no.such", [raw], tally.LIBRARIES["verl"])
    assert (row.passed, row.unsupported, len(row.failures)) == (0, 0, 1)


def test_a_case_whose_numbers_are_others_fails() -> None:
    (path,) = (path for path in tally.files(tally.OURS) if path.name.startswith("verl-"))
    raw = next(raw for raw in read(path) if raw["function"] == "agg_loss" and "raises" not in raw)
    raw["outputs"]["loss"] += 1e-3
    row = tally.row("verl", "agg_loss", [raw], tally.LIBRARIES["verl"])
    assert (row.passed, len(row.failures)) == (0, 1)
