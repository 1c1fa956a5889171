"""A text file that is there whole or not at all: a page is kept in place of an older one."""

import os
from contextlib import suppress
from pathlib import Path


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
    except OSError:
        with suppress(OSError):
            partial.unlink(missing_ok=True)
        raise
