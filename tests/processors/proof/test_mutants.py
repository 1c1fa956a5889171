"""A few mutants of each kind die, and leave no trace; all of them are a command (`mutants.py`)."""

from pathlib import Path

import pytest

from rollbook.processors.ledger.matrix import MATRIX
from rollbook.processors.lifecycle import TRANSITIONS
from rollbook.tests.processors.proof.checks import checks
from rollbook.tests.processors.proof.explained import EXPLAINED, table
from rollbook.tests.processors.proof.mutations import Mutant, mutants

CHECKS = checks()
PAGE = Path(__file__).parents[3] / "docs" / "proof.md"


def _dies(mutant: Mutant) -> bool:
    undo = mutant.apply()
    try:
        for check in CHECKS:
            check.run()
    except (Exception, pytest.fail.Exception):  # the runner's own is none of the others
        return True
    finally:
        undo()
    return False


def test_one_of_each_kind_is_noticed() -> None:
    first = {mutant.kind: mutant for mutant in reversed(mutants()) if mutant.name not in EXPLAINED}
    assert len(first) >= 9
    assert [mutant.name for mutant in first.values() if not _dies(mutant)] == []


def test_a_mutant_is_taken_back_whole() -> None:
    before = (dict(TRANSITIONS), {of: dict(rows) for of, rows in MATRIX.items()})
    for mutant in mutants():
        mutant.apply()()
    assert before == (TRANSITIONS, MATRIX)
    assert [list(rows) for rows in MATRIX.values()] == [list(rows) for rows in before[1].values()]


def test_each_mutant_has_a_name_of_its_own() -> None:
    names = [mutant.name for mutant in mutants()]
    assert len(set(names)) == len(names) > 1000


def test_every_explained_mutant_exists() -> None:
    assert EXPLAINED.keys() <= {mutant.name for mutant in mutants()}
    assert all(len(why) > 20 for why in EXPLAINED.values())


def test_the_page_about_the_proof_has_the_same_explanations() -> None:
    assert table() in PAGE.read_text(encoding="utf-8"), "python -m rollbook.tests.processors.proof.explained prints it"
