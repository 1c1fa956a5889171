"""A text file that is there whole or not at all: a page is kept in place of an older one, and of nothing else."""

import os
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path

from rollbook.schemas.errors import BadInput, EnvironmentFault
from rollbook.schemas.text import visible


def check_place(path: Path, starts: Mapping[str, str], what: str) -> None:
    """Before the work that a page tells of, which may take long. `starts`: how a page begins, by the suffix that its
    name may have; `what`: it is of. Raises BadInput for another name and for a place where something else than an
    older page would be lost, EnvironmentFault where it cannot be looked at."""
    start = starts.get(path.suffix)
    if start is None:
        raise BadInput(f"{visible(path)}: a report is a page: name it {' or '.join(starts)}")
    try:
        if path.is_dir() or not path.parent.is_dir():
            raise BadInput(f"{visible(path)} is a folder, or lies in none: name a file in a folder that there is")
        if path.is_file() and path.stat().st_size:
            with path.open("rb") as file:
                if file.read(len(start)) != start.encode():
                    raise BadInput(
                        f"{visible(path)} is there already and is no page of {what}: name another file, or remove it"
                    )
    except OSError as fault:
        raise _cannot_write(path, fault) from None


def keep_page(path: Path, text: str) -> None:
    """Replaces the page at `path`. Raises EnvironmentFault; what was there stays then."""
    try:
        replace_file(path, text)
    except OSError as fault:
        raise _cannot_write(path, fault) from None


def replace_file(path: Path, text: str) -> None:
    """Replaces the file at `path` as a whole, the one that a link there names. Raises OSError, and leaves then what was
    there."""
    if path.exists() and not path.is_file():
        # A device or a pipe is written to: one of root's, /dev/null, would otherwise become a file for everybody.
        path.write_text(text, encoding="utf-8")
        return
    target = path.resolve()
    partial = target.with_name(f".{target.name}.writing-{os.getpid():x}")
    try:
        partial.write_text(text, encoding="utf-8")
        partial.replace(target)
    except BaseException:  # Ctrl-C, too
        with suppress(OSError):
            partial.unlink(missing_ok=True)
        raise


def _cannot_write(path: Path, fault: OSError) -> EnvironmentFault:
    return EnvironmentFault(f"{visible(path)} cannot be written ({fault.strerror}): give another place")
