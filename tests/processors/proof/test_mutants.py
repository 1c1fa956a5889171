"""A few mutants of each kind die, and leave no trace; all of them are a command (`mutants.py`)."""

from rollbook.processors.ledger.matrix import MATRIX
from rollbook.processors.lifecycle import TRANSITIONS
from rollbook.tests.processors.proof import mutants
from rollbook.tests.processors.proof.explained import EXPLAINED
from rollbook.tests.processors.proof.mutations import Mutant
from rollbook.tests.processors.proof.mutations import mutants as all_mutants


def _dies(mutant: Mutant) -> bool:
    undo = mutant.apply()
    try:
        mutants.called()
    except Exception:
        return True
    finally:
        undo()
    return False


def test_one_of_each_kind_is_noticed() -> None:
    first = {mutant.kind: mutant for mutant in reversed(all_mutants()) if mutant.name not in EXPLAINED}
    assert len(first) >= 8
    assert [mutant.name for mutant in first.values() if not _dies(mutant)] == []


def test_a_mutant_is_taken_back_whole() -> None:
    before = (dict(TRANSITIONS), {of: dict(rows) for of, rows in MATRIX.items()})
    for mutant in all_mutants():
        mutant.apply()()
    assert before == (TRANSITIONS, MATRIX)
    assert [list(rows) for rows in MATRIX.values()] == [list(rows) for rows in before[1].values()]


def test_every_explained_mutant_exists() -> None:
    assert EXPLAINED.keys() <= {mutant.name for mutant in all_mutants()}
    assert all(len(why) > 20 for why in EXPLAINED.values())
