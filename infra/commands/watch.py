"""`rollbook watch`: a run as it goes, in a terminal."""

import os
import sys
import time
from typing import Annotated

import typer
from rich.console import Console

from rollbook.infra.looking.show import print_json
from rollbook.infra.output import sleep_while_read
from rollbook.infra.settings import Settings
from rollbook.infra.watching.plain import as_json, line
from rollbook.infra.watching.reader import Reader
from rollbook.infra.watching.screen import drawn, show
from rollbook.infra.watching.seen import Seen
from rollbook.processors.dashboard.answers import Reading
from rollbook.schemas.errors import BadInput, EnvironmentFault
from rollbook.schemas.text import visible

app = typer.Typer(help="Watch a run.")

_PATIENCE_S = 10.0
_LOOK_S = 0.05


@app.command(epilog="Example: rollbook watch my-run")
def watch(
    named: Annotated[str | None, typer.Argument(metavar="RUN", help="The run.", show_default=False)] = None,
    run: Annotated[str | None, typer.Option("--run", metavar="RUN", help="The run, as other commands take it.")] = None,
    interval: Annotated[
        float, typer.Option(min=0.1, max=3_600.0, metavar="SECONDS", help="Between frames, or lines.")
    ] = 1.0,
    once: Annotated[bool, typer.Option("--once", help="Print one frame and end.")] = False,
    as_lines: Annotated[bool, typer.Option("--json", help="A line of JSON an interval instead of frames.")] = False,
) -> None:
    """Show how a run goes: what waits and how stale it is, what is decided and refused, open updates, workers.

    It follows what the processor has committed, begins before the run or the broker is there, and goes on when the
    broker comes back. q or Ctrl-C ends it. Where the output is no terminal it prints a line an interval.
    --once waits ten seconds at most, exits 2 when the run has no figures, and 3 when no broker answers.
    """
    if (named is None) == (run is None):
        raise BadInput("a run, and only one, is wanted: name it, as `rollbook watch RUN`")
    console = Console()
    with Reader(Settings.from_env(), named or run or "") as reader:
        if once:
            _once(console, reader, as_lines)
        elif as_lines or not sys.stdout.isatty() or console.is_dumb_terminal:  # colours may be forced into a pipe
            while True:
                _tell(reader.seen(), as_lines)
                sleep_while_read(interval)
        else:
            show(_on_a_window(), reader.seen, interval)


def _on_a_window() -> Console:
    """Of the size that the window has, whatever the environment says that it had once."""
    return Console(_environ={name: value for name, value in os.environ.items() if name not in ("COLUMNS", "LINES")})


def _tell(seen: Seen, as_lines: bool) -> None:
    if as_lines:
        print_json(as_json(seen))
    else:
        print(line(seen), flush=True)


def _once(console: Console, reader: Reader, as_lines: bool) -> None:
    """Of what there is once all was read."""
    until = time.monotonic() + _PATIENCE_S
    while (seen := reader.seen()).reading is not Reading.LIVE and time.monotonic() < until:
        time.sleep(_LOOK_S)
    if seen.snapshot is None and seen.reading is not Reading.LIVE:
        raise EnvironmentFault(seen.fault or f"{seen.servers} was not read to its end in {_PATIENCE_S:.0f} s")
    if seen.snapshot is None:
        raise BadInput(
            f"run {visible(seen.run_id)} has no freshness snapshot on {seen.servers} (prefix {seen.prefix}): check the "
            "name, and that `rollbook processor run` is up"
        )
    if as_lines:
        print_json(as_json(seen))
    else:
        console.print(drawn(console, seen, console.height))
