"""Progress of long work: a bar where a person looks, nothing elsewhere."""

import os
import signal
import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from types import FrameType

from rich.console import Console
from rich.live import Live
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TaskID, TextColumn, TimeElapsedColumn
from rich.spinner import Spinner
from rich.text import Text

Watch = Callable[[str, int, int], None]
"""Told what is being done, how much of it is done, and how much there is."""

_ENDING = (signal.SIGTERM, signal.SIGHUP, signal.SIGQUIT)
_SHOWN_CURSOR = b"\x1b[?25h\n"


def is_seen(console: Console) -> bool:
    """Whether a person looks there: colours that are forced into a pipe (`FORCE_COLOR`) make no terminal of it."""
    return console.is_terminal and console.file.isatty()


@contextmanager
def _cursor_comes_back() -> Iterator[None]:
    """What moves on a terminal hides its cursor; a signal that ends the process would leave it so."""

    def end(number: int, _: FrameType | None) -> None:
        with suppress(OSError):  # the terminal is gone
            os.write(sys.stderr.fileno(), _SHOWN_CURSOR)
        signal.signal(number, signal.SIG_DFL)
        signal.raise_signal(number)

    is_ours = threading.current_thread() is threading.main_thread()  # others may not ask for signals
    taken = [one for one in _ENDING if is_ours and signal.getsignal(one) is signal.SIG_DFL]
    for one in taken:
        signal.signal(one, end)
    try:
        yield
    finally:
        for one in taken:
            signal.signal(one, signal.SIG_DFL)


@contextmanager
def progress() -> Iterator[Watch]:
    """Bars on standard error, with counts, rate and time."""
    console = Console(stderr=True)
    if not is_seen(console):
        yield lambda *_: None
        return
    columns = (
        TextColumn("{task.description}"),
        BarColumn(),
        MofNCompleteColumn(),
        TextColumn("{task.fields[rate]}"),
        TimeElapsedColumn(),
    )
    # What is printed meanwhile goes above the bar, but into the file or pipe where there is one.
    bars = Progress(*columns, console=console, transient=True, redirect_stdout=sys.stdout.isatty())
    with _cursor_comes_back(), bars as bar:
        tasks: dict[str, TaskID] = {}

        def watch(what: str, done: int, total: int) -> None:
            if what not in tasks:
                tasks[what] = bar.add_task(what, total=total, rate="")
            task = tasks[what]
            bar.update(task, completed=done, total=total)
            speed = bar.tasks[task].finished_speed or bar.tasks[task].speed
            bar.update(task, rate="" if speed is None else f"{speed:,.0f}/s")

        yield watch


@contextmanager
def busy(what: str) -> Iterator[None]:
    """A line while something lasts that cannot say how far it is, on standard error where a person looks."""
    console = Console(stderr=True)
    if not is_seen(console):
        yield
        return
    line = Spinner("dots", Text(f"{what} ..."))
    shown = Live(line, console=console, transient=True, redirect_stdout=sys.stdout.isatty())
    with _cursor_comes_back(), shown:
        yield
