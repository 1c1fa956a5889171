"""`rollbook processor run`: the host as a command."""

import logging
import re
import signal
import threading
from contextlib import ExitStack, suppress
from typing import Annotated

import typer

from rollbook.infra.settings import Settings
from rollbook.infra.topics.topics import check_topics, in_one_line
from rollbook.processors.address import Address
from rollbook.processors.host.clock import SystemClock
from rollbook.processors.host.endpoint import Endpoint
from rollbook.processors.host.health import HEALTHY_WITHIN_S, Health
from rollbook.processors.host.logs import LogFormat, configure
from rollbook.processors.host.loop import DEFAULT_LIMITS, DEFAULT_SESSION_TIMEOUT_MS, Host
from rollbook.processors.host.metrics import Metrics
from rollbook.processors.host.poison import PoisonLimits
from rollbook.processors.stopping import stopping
from rollbook.schemas.errors import BadInput, RollbookError

_NAME = re.compile(r"[a-zA-Z0-9._-]{1,100}")

logger = logging.getLogger("rollbook.processor")

app = typer.Typer(help="The stream processor that folds the log into decisions.", no_args_is_help=True)


@app.callback()
def _group() -> None:
    """The stream processor that folds the log into decisions."""


@app.command()
def run(
    name: Annotated[
        str,
        typer.Option(metavar="NAME", help="Stable name of this instance; a newer process of the same name takes over."),
    ] = "processor-0",
    session_timeout_ms: Annotated[
        int,
        typer.Option(
            metavar="MS", min=1000, max=300_000, help="Milliseconds after which a silent instance loses its partitions."
        ),
    ] = DEFAULT_SESSION_TIMEOUT_MS,
    http: Annotated[
        str | None,
        typer.Option(
            metavar="HOST:PORT",
            show_default="off",
            help="Serve /metrics (Prometheus), /healthz and /readyz there; without authentication.",
        ),
    ] = None,
    healthy_within_s: Annotated[
        int,
        typer.Option(
            metavar="SECONDS",
            min=1,
            max=3_600,
            help="The endpoint /healthz says no when the loop did not turn for so many seconds.",
        ),
    ] = HEALTHY_WITHIN_S,
    poison_consecutive: Annotated[
        int,
        typer.Option(
            metavar="N",
            min=0,
            max=1_000_000_000,
            help="Stop after so many undecodable or invalid records in a row; 0 never.",
        ),
    ] = DEFAULT_LIMITS.consecutive,
    poison_ratio: Annotated[
        float,
        typer.Option(
            metavar="SHARE",
            min=0.0,
            max=1.0,
            help="Stop when more than this share of the window is such records; 0 never.",
        ),
    ] = DEFAULT_LIMITS.ratio,
    poison_window: Annotated[
        int,
        typer.Option(metavar="N", min=1, max=1_000_000, help="Records of a partition over which that share is taken."),
    ] = DEFAULT_LIMITS.window,
    log_format: Annotated[
        LogFormat, typer.Option(help="Log lines for people, or a JSON object each; both in UTC, on stderr.")
    ] = LogFormat.TEXT,
    quiet: Annotated[bool, typer.Option("--quiet", help="Warnings only.")] = False,
) -> None:
    """Decide every lifecycle record exactly once, until SIGTERM, SIGHUP or Ctrl-C.

    What cannot be decided has its dead letter (`rollbook dead-letters`) and harms no other record. Where a partition
    gets nothing else any more, the processor commits what it has decided and stops: started again it goes on behind
    that place.

    Exit codes: 0 stopped on request, 2 a topic is missing or set wrongly, 3 broker or log in the way, 5 fenced by
    a newer process.
    """
    _check_name(name)
    address = None if http is None else Address.parse(http, "--http", 9400)
    configure(log_format, logging.WARNING if quiet else logging.INFO)
    settings = Settings.from_env()
    problems = check_topics(settings)
    if problems:
        raise BadInput(in_one_line(problems))
    stop = threading.Event()
    for number in stopping():
        signal.signal(number, lambda *_: stop.set())
    clock = SystemClock()
    metrics, health = Metrics(clock, name), Health(clock, healthy_within_s)
    limits = PoisonLimits(poison_consecutive, poison_ratio, poison_window)
    watches = (metrics, health) if address is not None else ()
    host = Host(settings, name, session_timeout_ms, clock=clock, watches=watches, limits=limits)
    with ExitStack() as serving:
        if address is not None:
            endpoint = serving.enter_context(Endpoint(address, metrics, health))
            logger.info("serving http://%s/metrics, /healthz and /readyz", endpoint.address)
        try:
            host.run(stop)
        except RollbookError as error:
            if log_format is LogFormat.JSON:  # who collects the lines misses none; the last one is for people
                logger.critical("%s", error)
            raise
    with suppress(OSError):  # of a terminal that is closed
        typer.echo(f"stopped; {host.decided} records decided by this process")


def _check_name(name: str) -> None:
    """It becomes the member's and the transactions' id, which end in logs, in ACLs and in the ledger topic."""
    if not _NAME.fullmatch(name):
        raise BadInput(
            f"--name {name[:100]!a} is no name for a processor: use 1 to 100 letters of ASCII, digits, '.', '_' "
            "and '-', such as processor-0"
        )
