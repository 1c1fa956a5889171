"""What a condition that was awaited in vain saw last: a time-out that only says so tells nothing of a rare failure."""

import ast
import inspect
import textwrap
from collections.abc import Callable


def last_seen(condition: Callable[[], bool]) -> str:
    """The condition's text, and where it compares what its left side gives now: `decided() == 3, and is 2`."""
    try:
        tree = ast.parse(textwrap.dedent(inspect.getsource(condition)).strip())
    except (OSError, SyntaxError, TypeError):  # not written as one statement
        return getattr(condition, "__name__", "a condition")
    bodies = [node.body for node in ast.walk(tree) if isinstance(node, ast.Lambda)]
    if len(bodies) != 1:
        return getattr(condition, "__name__", "a condition")
    text = ast.unparse(bodies[0])
    return f"{text}, and is {_left(bodies[0], condition)}" if isinstance(bodies[0], ast.Compare) else text


def _left(comparison: ast.Compare, condition: Callable[[], bool]) -> str:
    around = inspect.getclosurevars(condition)
    defaults = {name: one.default for name, one in inspect.signature(condition).parameters.items()}
    try:
        return repr(
            eval(
                compile(ast.Expression(comparison.left), "<awaited>", "eval"),
                {**around.builtins, **around.globals, **around.nonlocals, **defaults},
            )
        )
    except Exception as error:  # what is compared must not hide that the wait was in vain
        return f"not to be had ({error!r})"
