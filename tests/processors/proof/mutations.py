"""One small change of a rule at a time: rows of the tables, pairs in an order of refusals, guards, reasons."""

import ast
import copy
import inspect
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from functools import partial
from types import FunctionType, ModuleType
from typing import TypeVar

from rollbook.processors import gates
from rollbook.processors.ledger import (
    admit,
    claim,
    ending,
    floor,
    judge,
    lag,
    learner,
    moves,
    policy,
    reserve,
    reward,
    rollout,
    run,
    update,
    verdict,
)
from rollbook.processors.ledger.matrix import MATRIX, StateOf
from rollbook.processors.lifecycle import TRANSITIONS
from rollbook.processors.reasons import Reason
from rollbook.schemas.records.decision import Outcome
from rollbook.schemas.records.ledger import TrajectoryStatus

MODULES: tuple[ModuleType, ...] = (
    *(gates, admit, claim, ending, floor, judge, lag, learner, moves, policy, reserve, reward, rollout, run),
    *(update, verdict),
)
"""Where the rules are written; the store and its indexes only remember."""

Undo = Callable[[], None]
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


# --- rows of the tables


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


# --- lines of the rules


def _code() -> Iterator[Mutant]:
    for module in MODULES:
        tree = ast.parse(inspect.getsource(module))
        for node in tree.body:
            if isinstance(node, ast.FunctionDef):
                where = f"{module.__name__.split('.')[-1]}.{node.name}"
                function = getattr(module, node.name)
                for name, changed in (*_orders(node), *_guards(node), *_reasons(node)):
                    yield Mutant(f"{name} in {where}", partial(_recoded, function, changed))


def _recoded(function: FunctionType, node: ast.FunctionDef) -> Undo:
    """Give a function other code; whoever holds the function has it, too."""
    bare = copy.deepcopy(node)
    bare.decorator_list = []
    source = ast.fix_missing_locations(ast.Module(body=[bare], type_ignores=[]))
    names: dict[str, FunctionType] = {}
    exec(compile(source, f"<{node.name} changed>", "exec"), function.__globals__, names)
    before = function.__code__
    function.__code__ = names[node.name].__code__

    def undo() -> None:
        function.__code__ = before

    return undo


Changed = tuple[str, ast.FunctionDef]


def _blocks(node: ast.FunctionDef) -> Iterator[tuple[ast.AST, list[ast.stmt]]]:
    for inner in ast.walk(node):
        body = getattr(inner, "body", None)
        if isinstance(body, list):
            yield inner, body


def _refuses(statement: ast.stmt) -> bool:
    """Whether it is a guard: an `if` that only answers."""
    answers = (ast.Return, ast.Continue)
    return isinstance(statement, ast.If) and not statement.orelse and isinstance(statement.body[-1], answers)


def _looks_through(statement: ast.stmt) -> bool:
    """Whether it is a loop that answers from within."""
    loops = isinstance(statement, ast.For | ast.While)
    return loops and any(isinstance(inner, ast.Return) for inner in ast.walk(statement))


def _short(statement: ast.stmt) -> str:
    return ast.unparse(statement).split("\n")[0].rstrip(":")[:90]


def _units(body: list[ast.stmt]) -> list[list[ast.stmt]]:
    """A body cut after each refusal: what it needs goes with it."""
    units: list[list[ast.stmt]] = [[]]
    for statement in body:
        units[-1].append(statement)
        if _refuses(statement) or _looks_through(statement):
            units.append([])
    return units


def _orders(node: ast.FunctionDef) -> Iterator[Changed]:
    """Each refusal before the one that precedes it; two reasons of one `or`, an `if` and its `elif` exchanged."""
    for place, (_, body) in enumerate(_blocks(node)):
        for at in range(len(_units(body)) - 2):
            changed = copy.deepcopy(node)
            swapped = list(_blocks(changed))[place][1]
            units = _units(swapped)
            names = f"{_short(units[at][-1])} | {_short(units[at + 1][-1])}"
            units[at], units[at + 1] = units[at + 1], units[at]
            swapped[:] = [statement for unit in units for statement in unit]
            yield f"order: {names}", changed
    choices = [inner for inner in ast.walk(node) if isinstance(inner, ast.BoolOp) and isinstance(inner.op, ast.Or)]
    for place, choice in enumerate(choices):
        if any(isinstance(value, ast.Call) for value in choice.values[:-1]):
            changed = copy.deepcopy(node)
            again = [x for x in ast.walk(changed) if isinstance(x, ast.BoolOp) and isinstance(x.op, ast.Or)][place]
            again.values[0], again.values[1] = again.values[1], again.values[0]
            yield f"order: {ast.unparse(choice)[:90]}", changed
    tests = [inner for inner in ast.walk(node) if isinstance(inner, ast.If) and inner.orelse]
    for place, test in enumerate(tests):
        if len(test.orelse) == 1 and isinstance(test.orelse[0], ast.If):
            changed = copy.deepcopy(node)
            first = [x for x in ast.walk(changed) if isinstance(x, ast.If) and x.orelse][place]
            second = first.orelse[0]
            assert isinstance(second, ast.If), "an elif"
            first.test, second.test = second.test, first.test
            first.body, second.body = second.body, first.body
            yield f"order: {_short(test)} | its elif", changed


def _guards(node: ast.FunctionDef) -> Iterator[Changed]:
    """Each refusal gone."""
    for place, (_, body) in enumerate(_blocks(node)):
        for at, statement in enumerate(body):
            if _refuses(statement) and len(body) > 1:
                changed = copy.deepcopy(node)
                del list(_blocks(changed))[place][1][at]
                yield f"guard: {_short(statement)}", changed


def _reasons(node: ast.FunctionDef) -> Iterator[Changed]:
    """Each reason another one."""
    for place, found in enumerate(_named(node)):
        changed = copy.deepcopy(node)
        _named(changed)[place].attr = "NOT_HELD" if found.attr != "NOT_HELD" else "CONFLICT"
        yield f"reason: {found.attr} #{place}", changed


def _named(node: ast.FunctionDef) -> list[ast.Attribute]:
    return [
        inner
        for inner in ast.walk(node)
        if isinstance(inner, ast.Attribute) and isinstance(inner.value, ast.Name) and inner.value.id == "Reason"
    ]
