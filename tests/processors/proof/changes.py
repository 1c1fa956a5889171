"""Changes of a function's code: a refusal gone or before the one that precedes it, another reason, another bound."""

import ast
import copy
import inspect
from collections.abc import Callable, Iterator
from types import FunctionType, ModuleType

Undo = Callable[[], None]
Changed = tuple[str, ast.FunctionDef]


def functions(module: ModuleType) -> Iterator[tuple[str, FunctionType, ast.FunctionDef]]:
    """A module's functions, and the methods of its classes, each with its name and syntax tree."""
    tree = ast.parse(inspect.getsource(module))
    here = module.__name__.split(".")[-1]
    for node in tree.body:
        if isinstance(node, ast.FunctionDef):
            yield f"{here}.{node.name}", getattr(module, node.name), node
        elif isinstance(node, ast.ClassDef):
            for method in node.body:
                if isinstance(method, ast.FunctionDef):
                    found = vars(getattr(module, node.name))[method.name]
                    yield f"{here}.{node.name}.{method.name}", getattr(found, "fget", found), method


def changes(node: ast.FunctionDef) -> Iterator[Changed]:
    """Each change of a function, with a name."""
    yield from _orders(node)
    yield from _guards(node)
    yield from _reasons(node)
    yield from _bounds(node)


def recoded(function: FunctionType, node: ast.FunctionDef) -> Undo:
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


def _blocks(node: ast.FunctionDef) -> Iterator[tuple[ast.AST, list[ast.stmt]]]:
    for inner in ast.walk(node):
        body = getattr(inner, "body", None)
        if isinstance(body, list):
            yield inner, body


def _refuses(statement: ast.stmt) -> bool:
    """Whether it is a guard: an `if` that only answers."""
    answers = (ast.Return, ast.Continue, ast.Raise, ast.Break)
    return isinstance(statement, ast.If) and not statement.orelse and isinstance(statement.body[-1], answers)


def _looks_through(statement: ast.stmt) -> bool:
    """Whether it is a loop that answers from within."""
    loops = isinstance(statement, ast.For | ast.While)
    return loops and any(isinstance(inner, ast.Return | ast.Raise) for inner in ast.walk(statement))


def _short(statement: ast.AST) -> str:
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
    yield from _orders_of_or(node)
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


def _orders_of_or(node: ast.FunctionDef) -> Iterator[Changed]:
    """A truth value is the same in either order; a reason is not."""
    for place, choice in enumerate(_choices(node)):
        for at in range(len(choice.values) - 1):
            if not any(isinstance(value, ast.Compare | ast.UnaryOp | ast.BoolOp) for value in choice.values):
                changed = copy.deepcopy(node)
                values = _choices(changed)[place].values
                values[at], values[at + 1] = values[at + 1], values[at]
                yield f"order: {ast.unparse(choice)[:90]} at {at}", changed


def _choices(node: ast.FunctionDef) -> list[ast.BoolOp]:
    return [inner for inner in ast.walk(node) if isinstance(inner, ast.BoolOp) and isinstance(inner.op, ast.Or)]


def _guards(node: ast.FunctionDef) -> Iterator[Changed]:
    """Each refusal gone."""
    for place, (_, body) in enumerate(_blocks(node)):
        for at, statement in enumerate(body):
            if _refuses(statement):
                changed = copy.deepcopy(node)
                list(_blocks(changed))[place][1][at] = ast.Pass()
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


_NEIGHBOURS: dict[type[ast.cmpop], type[ast.cmpop]] = {
    ast.Lt: ast.LtE,
    ast.LtE: ast.Lt,
    ast.Gt: ast.GtE,
    ast.GtE: ast.Gt,
}


def _bounds(node: ast.FunctionDef) -> Iterator[Changed]:
    """Each bound one further, or one less far."""
    for place, found in enumerate(_compared(node)):
        changed = copy.deepcopy(node)
        other = _compared(changed)[place]
        other.ops = [_NEIGHBOURS[type(other.ops[0])]()]
        yield f"bound: {ast.unparse(found)[:90]}", changed


def _compared(node: ast.FunctionDef) -> list[ast.Compare]:
    return [
        inner
        for inner in ast.walk(node)
        if isinstance(inner, ast.Compare) and len(inner.ops) == 1 and type(inner.ops[0]) in _NEIGHBOURS
    ]
