"""`rollbook processor run`: the host as a command."""

import logging
import re
import signal
import threading
from typing import Annotated

import typer

from rollbook.infra.settings import Settings
from rollbook.infra.topics import check_topics, in_one_line
from rollbook.processors.host.loop import DEFAULT_SESSION_TIMEOUT_MS, Host
from rollbook.schemas.errors import BadInput

_NAME = re.compile(r"[a-zA-Z0-9._-]{1,100}")

app = typer.Typer(help="The stream processor that folds the log into decisions.", no_args_is_help=True)


@app.callback()
def _group() -> None:
    """The stream processor that folds the log into decisions."""


@app.command()
def run(
    name: Annotated[
        str, typer.Option(help="Stable name of this instance; a newer process of the same name takes over.")
    ] = "processor-0",
    session_timeout_ms: Annotated[
        int, typer.Option(min=1000, max=300_000, help="Time after which a silent instance loses its partitions.")
    ] = DEFAULT_SESSION_TIMEOUT_MS,
    quiet: Annotated[bool, typer.Option("--quiet", help="Warnings only.")] = False,
) -> None:
    """Decide every lifecycle record exactly once, until SIGTERM or Ctrl-C.

    Exit codes: 0 stopped on request, 2 a topic is set wrongly, 3 broker or log in the way, 5 fenced by a newer process.

    Example: rollbook processor run --name processor-0
    """
    _check_name(name)
    logging.basicConfig(
        level=logging.WARNING if quiet else logging.INFO, format="%(asctime)s %(levelname)s %(name)s %(message)s"
    )
    settings = Settings.from_env()
    problems = check_topics(settings)
    if problems:
        raise BadInput(in_one_line(problems))
    stop = threading.Event()
    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, lambda *_: stop.set())
    host = Host(settings, name, session_timeout_ms)
    host.run(stop)
    typer.echo(f"stopped; {host.decided} records decided by this process")


def _check_name(name: str) -> None:
    """It becomes the member's and the transactions' id, which end in logs, in ACLs and in the ledger topic."""
    if not _NAME.fullmatch(name):
        raise BadInput(
            f"--name {name[:100]!a} is no name for a processor: use 1 to 100 letters of ASCII, digits, '.', '_' "
            "and '-', such as processor-0"
        )
