"""Commands that are imported only when they are called, so that `rollbook --help` is quick and needs no extra."""

import os
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from enum import StrEnum
from functools import wraps
from importlib import import_module
from pathlib import Path
from typing import Any

import typer
from typer.core import TyperCommand, TyperGroup

from rollbook.schemas.errors import BadInput

_ROOT = Path(__file__).resolve().parents[1]


class Task(StrEnum):
    """What a command is for: the panels of `rollbook --help`, in their order."""

    BEGIN = "Begin"
    LOOK = "Look at a run"
    OPERATE = "Operate"
    KEEP = "Keep, audit and prove what happened"
    REPLAY = "Replay optimizer steps"


class MountKind(StrEnum):
    """What a part's typer app becomes."""

    GROUP = "group"  # rollbook NAME COMMAND
    COMMAND = "command"  # rollbook NAME: the app's command of that name, or its only one


@dataclass(frozen=True, slots=True)
class Mount:
    """One line of the command's table of contents. The module, named below `rollbook`, has an `app: typer.Typer`.

    A command without an example of its own in its help gets this one.
    """

    task: Task
    name: str
    module: str
    kind: MountKind
    help: str
    example: str

    def exists(self) -> bool:
        """Whether the module's file is there, found without importing anything."""
        path = _ROOT.joinpath(*self.module.split("."))
        return path.with_suffix(".py").exists() or (path / "__init__.py").exists()

    def load(self) -> Any:
        app: typer.Typer = import_module(f"rollbook.{self.module}").app
        group = typer.main.get_group(app)
        group.name = self.name
        for command in (group, *group.commands.values()):
            command.epilog = command.epilog or f"Example: rollbook {self.example}"
            command.help = _in_paragraphs(command.help)
            _show_flags_as_such(command)
            if command.callback is not None:
                command.callback = _with_text(command.callback)
        if self.kind is MountKind.GROUP:
            group.no_args_is_help = True
            return group
        named: Mapping[str, Any] = group.commands
        command = next(iter(named.values())) if len(named) == 1 else named[self.name]
        command.name = self.name
        return command


def _in_paragraphs(text: str | None) -> str:
    """Lines are the source code's: the terminal breaks paragraphs anew, to its own width."""
    return "\n\n".join(" ".join(paragraph.split()) for paragraph in (text or "").split("\n\n"))


def _show_flags_as_such(command: Any) -> None:
    """A flag takes no value, and typer shows it with the type of one."""
    for parameter in command.params:
        _without_type(parameter)
    get_help_option = command.get_help_option
    command.get_help_option = lambda context: _without_type(get_help_option(context))


def _without_type(parameter: Any) -> Any:
    if getattr(parameter, "is_flag", False) and parameter.metavar is None:
        parameter.metavar = ""
    return parameter


def _with_text(callback: Callable[..., Any]) -> Callable[..., Any]:
    """The command, refusing a name that is no text: neither a record nor a page can hold one. A path may be any bytes.

    Python hands over bytes that are not UTF-8 as lone surrogates.
    """

    @wraps(callback)
    def checked(**values: Any) -> Any:
        for name, value in values.items():
            for text in value if isinstance(value, list | tuple) else (value,):
                if isinstance(text, str) and not _is_text(text):
                    if os.path.lexists(text):
                        raise BadInput(
                            f"the name of file {ascii(text)[:100]} is not UTF-8, and no report could name it: rename it"
                        )
                    raise BadInput(f"{name.replace('_', '-')} {ascii(text)[:100]} is not UTF-8: give it as UTF-8 text")
        return callback(**values)

    return checked


def _is_text(value: str) -> bool:
    try:
        value.encode()
    except UnicodeEncodeError:
        return False
    return True


class LazyGroup(TyperGroup):
    """A group that lists its mounts from the table and imports one only to run it.

    `mounts` is set by `lazy_group`: typer builds the group itself and has no place to pass it through.
    """

    mounts: Mapping[str, Mount]

    def list_commands(self, ctx: Any) -> list[str]:
        return [*self.mounts, *(name for name in super().list_commands(ctx) if name not in self.mounts)]

    def get_command(self, ctx: Any, cmd_name: str) -> Any:
        """For listings: a stand-in with the help line."""
        mount = self.mounts.get(cmd_name)
        if mount is None:
            return super().get_command(ctx, cmd_name)
        return TyperCommand(mount.name, help=mount.help, rich_help_panel=mount.task)

    def get_params(self, ctx: Any) -> list[Any]:
        return [_without_type(parameter) for parameter in super().get_params(ctx)]

    def resolve_command(self, ctx: Any, args: list[str]) -> Any:
        """For running, and for completing what comes after the name: the real command."""
        self.commands = {**self.commands, **{name: self.get_command(ctx, name) for name in self.mounts}}  # suggestions
        name, command, rest = super().resolve_command(ctx, args)
        mount = self.mounts.get(name or "")
        return name, command if mount is None else mount.load(), rest


def lazy_group(mounts: tuple[Mount, ...]) -> type[LazyGroup]:
    """A group class with these mounts; those whose module does not exist are left out."""
    present = {mount.name: mount for mount in mounts if mount.exists()}
    return type("MountedGroup", (LazyGroup,), {"mounts": present})
