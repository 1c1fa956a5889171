"""The page of the commands: what each does, its arguments and options.

Taken from the commands and not from the printed help, whose frames depend on the terminal and on typer's version.
"""

import inspect
from collections.abc import Iterator
from typing import Any

from rollbook.infra.command import app
from rollbook.infra.lazy import MountKind
from rollbook.infra.mounts import MOUNTS
from rollbook.infra.reference.markdown import code, page, table


def commands() -> str:
    """Every command, in the order of the help."""
    blocks: list[str] = []
    for mount in MOUNTS:
        if mount.exists():
            command = mount.load()
            if mount.kind is MountKind.GROUP:
                blocks += [f"## rollbook {mount.name}", mount.help]
                for name, one in command.commands.items():
                    blocks += [f"### rollbook {mount.name} {name}", *_command(one)]
            else:
                blocks += [f"## rollbook {mount.name}", *_command(command)]
    return page(
        "Commands",
        "From the commands themselves (`infra/mounts.py` lists them); each also has `--help`.",
        str(app.info.epilog),
        *blocks,
    )


def _command(command: Any) -> Iterator[str]:
    yield inspect.cleandoc(command.help or "")
    rows = [_parameter(one) for one in command.params if not getattr(one, "hidden", False)]
    if rows:
        yield table(("argument or option", "default", "meaning"), rows)
    if command.epilog:
        label, _, example = command.epilog.partition(": ")
        yield f"{label}: {code(example)}"


def _parameter(one: Any) -> tuple[str, str, str]:
    name = ", ".join(one.opts) if one.param_type_name == "option" else _named(one)
    return code(name), _default(one), one.help or ""


def _default(one: Any) -> str:
    told = getattr(one, "show_default", None)
    if one.required:
        return "required"
    if isinstance(told, str):
        return told
    given = one.default
    plain = isinstance(given, str | int | float) and not isinstance(given, bool)
    return code(given) if plain and told is not False else ""


def _named(argument: Any) -> str:
    """As its usage line calls it, where that is a plain name."""
    metavar = argument.metavar or ""
    return str(metavar) if metavar.isalpha() else str(argument.name).upper()
