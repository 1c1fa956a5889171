"""The page of the exit codes."""

from rollbook.infra.outcome import MEANINGS
from rollbook.infra.reference.markdown import code, page, table


def exits() -> str:
    """Every code, with what it means."""
    return page(
        "Exit codes",
        "From `infra/outcome.py`: what `rollbook` exits with. An error is one line on standard error. What to do about "
        "each is in [incidents](../incidents.md).",
        "A run of which there is no record is bad input, for every command: its name, the prefix or the file is not "
        "the right one. What a known run does not have (such a trajectory, such a decision) is an answer that is no.",
        "Whom a signal ends, a shell tells with 128 and its number: 129 for SIGHUP, 131 for SIGQUIT, 137 for SIGKILL, "
        "143 for SIGTERM. A processor and a dashboard are asked to end by SIGTERM, Ctrl-C and SIGHUP, and exit with 0.",
        table(("code", "meaning"), ((code(int(one)), meaning) for one, meaning in MEANINGS.items())),
    )
