"""What notebooks hand over: places are texts or paths, and one text is not taken for a list of its letters."""

import os
from collections.abc import Iterable
from pathlib import Path

from rollbook.schemas.errors import BadInput
from rollbook.schemas.text import visible

Place = str | os.PathLike[str]
"""Of a file or a folder."""


def text_of(given: object, name: str) -> str:
    """Raises BadInput for what is no text and no path, or names nothing; `name`: of the argument."""
    found = os.fspath(given) if isinstance(given, str | os.PathLike) else None
    if not isinstance(found, str) or not found:
        raise BadInput(f"{name}: {_shown(given)} names nothing: give a text or a Path")
    return found


def path_of(given: object, name: str) -> Path:
    """Raises BadInput as `text_of`."""
    return Path(text_of(given, name))


def paths_of(given: Iterable[Place], name: str) -> tuple[Path, ...]:
    """Raises BadInput for one place in place of a list of them, and for what is none."""
    return tuple(path_of(one, name) for one in _each(given, name))


def texts_of(given: Iterable[str], name: str) -> tuple[str, ...]:
    """Raises BadInput for one text in place of a list of them, and for what is none."""
    found = []
    for one in _each(given, name):
        if not isinstance(one, str):
            raise BadInput(f"{name} has {_shown(one)} in it, which is no text: give a list of texts")
        found.append(one)
    return tuple(found)


def _each(given: object, name: str) -> Iterable[object]:
    if isinstance(given, str | bytes | os.PathLike):
        raise BadInput(f"{name}={_shown(given)} is one, and no list: give [...] around it")
    if not isinstance(given, Iterable):
        raise BadInput(f"{name}={_shown(given)} is no list: give one, or leave it out")
    return given


def _shown(given: object) -> str:
    return visible(repr(given))
