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
        table(("code", "meaning"), ((code(int(one)), meaning) for one, meaning in MEANINGS.items())),
    )
