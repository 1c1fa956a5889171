"""The command's own output: any text can be written, and an output that takes no more ends the command in order."""

import errno
import io
import os
import select
import sys
import time
from contextlib import suppress
from pathlib import Path

_NARROWEST = 20
_NOWHERE = Path(os.devnull)


def open_output() -> None:
    """Make standard output and error take any text, in any locale, and be there even where they were closed."""
    for name in ("stdout", "stderr"):
        stream = getattr(sys, name)
        if stream is None:
            setattr(sys, name, _NOWHERE.open("w", encoding="utf-8"))
        elif isinstance(stream, io.TextIOWrapper):
            stream.reconfigure(errors="backslashreplace")
    columns = os.environ.get("COLUMNS", "")
    if columns.isdecimal() and int(columns) < _NARROWEST:  # 0 stands for unknown; nothing can be read in one column
        os.environ["COLUMNS"] = str(_NARROWEST) if int(columns) else ""


def is_abandoned() -> bool:
    """Whether who read our output has gone: `rollbook decisions | head -1`."""
    return any(_has_no_reader(number) for number in _numbers())


def sleep_while_read(seconds: float) -> None:
    """Sleep. Raises BrokenPipeError when nobody reads our output: who waits for more to write would never notice."""
    if is_abandoned():
        raise BrokenPipeError(errno.EPIPE, os.strerror(errno.EPIPE))
    time.sleep(seconds)


def discard() -> None:
    """Let go of what is still buffered for an output that takes no more; the interpreter would try again, and complain.

    Where the output can be written it is.
    """
    for stream in (sys.stdout, sys.stderr):
        with suppress(OSError, ValueError):
            stream.flush()
            continue
        with suppress(OSError, ValueError), _NOWHERE.open("wb") as nowhere:
            os.dup2(nowhere.fileno(), stream.fileno())


def _has_no_reader(number: int) -> bool:
    poll = select.poll()
    poll.register(number, 0)  # errors and hang-ups are reported whatever is asked for
    return any(events & (select.POLLERR | select.POLLHUP) for _, events in poll.poll(0))


def _numbers() -> list[int]:
    found = []
    for stream in (sys.stdout, sys.stderr):
        with suppress(OSError, ValueError, AttributeError):
            found.append(stream.fileno())
    return found
