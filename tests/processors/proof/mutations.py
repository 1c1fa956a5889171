"""One small change of a rule at a time: rows of the tables, pairs in an order of refusals, guards, reasons, bounds."""

import importlib
import pkgutil
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from functools import partial
from types import ModuleType
from typing import TypeVar

from rollbook.processors import capacity, freshness, gates, ledger, rules
from rollbook.processors.ledger.matrix import MATRIX, StateOf
from rollbook.processors.lifecycle import TRANSITIONS
from rollbook.processors.reasons import Reason
from rollbook.schemas.records.decision import Outcome
from rollbook.schemas.records.ledger import TrajectoryStatus
from rollbook.tests.processors.proof.changes import Undo, changes, functions, recoded

_REMEMBER = {"keys", "matrix", "rebuild", "store"}
MODULES: tuple[ModuleType, ...] = (
    *(rules, gates, freshness, capacity),
    *(
        importlib.import_module(f"{ledger.__name__}.{found.name}")
        for found in pkgutil.iter_modules(ledger.__path__)
        if found.name not in _REMEMBER
    ),
)
"""Where the rules are written; the store, its keys and its restore only remember, and the matrix is a table."""

V = TypeVar("V")


@dataclass(frozen=True)
class Mutant:
    """A change with a name that says what and where; `apply` returns what takes it back."""

    name: str
    apply: Callable[[], Undo]

    @property
    def kind(self) -> str:
        """What sort of change it is."""
        return self.name.split(":")[0]


def mutants() -> list[Mutant]:
    """All of them, always in the same order."""
    return [*_transitions(), *_matrix(), *_code()]


def _transitions() -> Iterator[Mutant]:
    states = tuple(TrajectoryStatus)
    for key, target in TRANSITIONS.items():
        other = states[(states.index(target) + 1) % len(states)]
        yield Mutant(f"transition removed: {key[0]} {key[1]}", partial(_without, TRANSITIONS, key))
        yield Mutant(
            f"transition changed: {key[0]} {key[1]} to {other}",
            partial(_with, TRANSITIONS, key, other),
        )


def _matrix() -> Iterator[Mutant]:
    for of, rows in MATRIX.items():
        for key, row in rows.items():
            where = f"{of} {key[0]} {key[1]}"
            accepted = row.outcome is Outcome.ACCEPTED
            outcome = Outcome.REJECTED if accepted else Outcome.ACCEPTED
            reason = Reason.NOT_HELD if row.reason is not Reason.NOT_HELD else Reason.CONFLICT
            yield Mutant(f"row removed: {where}", partial(_without, rows, key))
            for what, changed in (
                ("reason", replace(row, reason=reason)),
                (f"outcome {outcome}", replace(row, outcome=outcome)),
            ):
                yield Mutant(f"row {what}: {where}", partial(_with, rows, key, changed))
    assert set(MATRIX) == set(StateOf)


def _without(table: dict[tuple[str, str], V], key: tuple[str, str]) -> Undo:
    order = dict(table)

    def undo() -> None:
        table.clear()
        table.update(order)

    del table[key]
    return undo


def _with(table: dict[tuple[str, str], V], key: tuple[str, str], value: V) -> Undo:
    before = table[key]
    table[key] = value
    return lambda: table.update({key: before})


def _code() -> Iterator[Mutant]:
    named: set[str] = set()
    for module in MODULES:
        for where, function, node in functions(module):
            for what, changed in changes(node):
                name = alike = f"{what} in {where}"
                times = 1
                while name in named:
                    times += 1
                    name = f"{alike} ({times})"
                named.add(name)
                yield Mutant(name, partial(recoded, function, changed))
