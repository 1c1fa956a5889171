"""`rollbook dashboard`: the dashboard as a command."""

import asyncio
import logging
import os
from pathlib import Path
from typing import Annotated

import typer

from rollbook.infra.settings import TOKEN_VARIABLE, Settings
from rollbook.processors.address import Address
from rollbook.processors.dashboard.web.access import Access
from rollbook.processors.dashboard.web.listening import DEFAULT_PORT, open_socket
from rollbook.processors.host.logs import LogFormat, configure
from rollbook.schemas.errors import BadInput, EnvironmentFault

_LONGEST_FILE = 4_096
_OF_OTHER_APPS = ("FAUST_LOOP", "F_LOOP")
"""Faust would import the event loop that another app of it in this environment wants."""

app = typer.Typer(help="A page that shows what is committed.")


@app.command()
def dashboard(
    listen: Annotated[
        str, typer.Option(metavar="HOST:PORT", help="Where to listen; elsewhere than on loopback only with a token.")
    ] = f"127.0.0.1:{DEFAULT_PORT}",
    token_file: Annotated[
        Path | None,
        typer.Option(
            metavar="FILE",
            show_default=f"the environment's {TOKEN_VARIABLE}, else none",
            help="A file with the token that whoever asks must have.",
        ),
    ] = None,
    public_name: Annotated[
        list[str] | None,
        typer.Option(metavar="NAME", help="A host's name under which a proxy serves it; may be given several times."),
    ] = None,
    log_format: Annotated[
        LogFormat, typer.Option(help="Log lines for people, or a JSON object each; both in UTC, on stderr.")
    ] = LogFormat.TEXT,
    quiet: Annotated[bool, typer.Option("--quiet", help="Warnings only.")] = False,
) -> None:
    """Serve the page, its JSON API and metrics, until SIGTERM, SIGHUP or Ctrl-C.

    It reads the decisions and freshness topics from their beginning into memory, and writes nothing; any number can
    run side by side, and one may start before the broker does.

    Exit codes: 0 stopped on request, 2 an argument or the environment is wrong, 3 it cannot listen there.
    """
    address = Address.parse(listen, "--listen", DEFAULT_PORT)
    access = Access(address, _token(token_file), tuple(public_name or ()))
    settings = Settings.from_env()
    for variable in _OF_OTHER_APPS:
        os.environ.pop(variable, None)
    try:
        from rollbook.processors.dashboard.app import serve
    except ModuleNotFoundError as missing:
        raise EnvironmentFault(
            f"the dashboard needs what is not installed ({missing.name}): pip install 'rollbook[dashboard]'"
        ) from None
    configure(log_format, logging.WARNING if quiet else logging.INFO)
    for noisy in ("faust", "mode", "asyncio", "aiohttp", "rollbook.processors.dashboard"):
        logging.getLogger(noisy).setLevel(logging.WARNING)
    listening = open_socket(address)
    at = Address(address.host, int(listening.getsockname()[1]))
    typer.echo(f"http://{at}/ (Ctrl-C ends it)", err=True)
    asyncio.run(serve(settings, listening, Access(at, access.token, access.public_names)))


def _token(path: Path | None) -> str | None:
    if path is None:
        return os.environ.get(TOKEN_VARIABLE)
    try:
        with path.open(encoding="utf-8") as file:
            return file.read(_LONGEST_FILE).strip()
    except (OSError, ValueError) as fault:
        why = fault.strerror if isinstance(fault, OSError) else "it is not UTF-8"
        raise BadInput(
            f"--token-file {str(path)!a} cannot be read ({why}): give a file with the token, such as "
            "`openssl rand -hex 32 > FILE` makes"
        ) from None
