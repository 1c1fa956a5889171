"""The `rollbook` command: from what was typed to the part that does it. Its parts are in `infra/mounts.py`, its way in
is `infra/cli.py`.

Each part has a typer app in a module of its own, and lets its errors out: `infra/outcome.py` says how they end.
"""

import os
import sys
from importlib.metadata import version
from typing import Annotated

import typer

from rollbook.infra.lazy import lazy_group
from rollbook.infra.mounts import MOUNTS
from rollbook.infra.outcome import MEANINGS, ExitCode, abandoned, report
from rollbook.infra.output import is_abandoned
from rollbook.infra.settings import check_names
from rollbook.schemas.errors import BadInput

_OF_COMPLETION = ("--install-completion", "--show-completion")

_EPILOG = f"""
Example: rollbook broker start && rollbook topics create, then rollbook processor run.

`rollbook COMMAND --help`, or `rollbook help COMMAND`, shows an example of each; --install-completion makes the shell \
complete commands and options.

Exit codes: {"; ".join(f"{code:d} {meaning}" for code, meaning in MEANINGS.items())}.

Environment: ROLLBOOK_BOOTSTRAP_SERVERS (default 127.0.0.1:9092), ROLLBOOK_TOPIC_PREFIX (rollbook.), \
ROLLBOOK_KAFKA_CONFIG and ROLLBOOK_KAFKA_<SETTING> (librdkafka's settings, such as SASL and TLS), \
ROLLBOOK_DATA_DIR, ROLLBOOK_CACHE_DIR, ROLLBOOK_DASHBOARD_TOKEN; NO_COLOR, COLUMNS.
"""

app = typer.Typer(
    cls=lazy_group(MOUNTS),
    pretty_exceptions_enable=False,
    epilog=_EPILOG,
    rich_markup_mode="rich",
    context_settings={"help_option_names": ["--help", "-h"]},
)


def _print_version(wanted: bool) -> None:
    if wanted:
        print(f"rollbook {version('rollbook')}")
        raise typer.Exit


@app.callback(invoke_without_command=True)
def root(
    context: typer.Context,
    show_version: Annotated[
        bool, typer.Option("--version", callback=_print_version, is_eager=True, help="Print the version and exit.")
    ] = False,
) -> None:
    """The event-sourced ledger of asynchronous RL post-training, on Kafka."""
    if context.invoked_subcommand is None:
        print(context.get_help())


def run(arguments: list[str]) -> int:
    """Run a command line; the exit code. Errors end as one line on stderr."""
    try:
        _check_given(arguments)
        check_names(os.environ)
        result = typer.main.get_command(app).main(_plain(arguments), prog_name="rollbook", standalone_mode=False)
        sys.stdout.flush()
    except SystemExit as ended:  # of the shell's completion; or rich and typer, when nobody reads any more
        return int(ended.code or 0) if not ended.code or _is_completion(arguments) else abandoned()
    except Exception as error:
        if isinstance(error, BrokenPipeError) and is_abandoned():
            return abandoned()
        if os.environ.get("ROLLBOOK_TRACEBACK") == "1":
            raise
        return report(error)
    except KeyboardInterrupt:
        return ExitCode.INTERRUPTED
    return result if type(result) is int else 0  # typer returns the code of a typer.Exit


def _plain(arguments: list[str]) -> list[str]:
    """`help COMMAND` is what some type for `COMMAND --help`."""
    return [*arguments[1:], "--help"] if arguments[:1] == ["help"] else arguments


def _is_completion(arguments: list[str]) -> bool:
    return any(argument.partition("=")[0] in _OF_COMPLETION for argument in arguments)


def _check_given(arguments: list[str]) -> None:
    """Nothing may be empty here, and an empty path would mean the working directory: a variable was not set."""
    for before, argument in zip(["rollbook", *arguments], arguments, strict=False):
        option, is_set, value = argument.partition("=")
        if not argument or (option.startswith("--") and is_set and not value):
            where = option or (before if before.startswith("-") else f"what comes after '{before}'")
            raise BadInput(f"{where} is empty: is a variable of the shell not set?")
