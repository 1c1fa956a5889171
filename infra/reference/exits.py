"""The page of the exit codes."""

from rollbook.infra.outcome import MEANINGS
from rollbook.infra.reference.markdown import code, page, table


def exits() -> str:
    """Every code, with what it means."""
    return page(
        "Exit codes",
        "From `infra/outcome.py`: what `rollbook` exits with. An error is one line on standard error. What to do about "
        "each is in [incidents](../incidents.md).",
        table(("code", "meaning"), ((code(int(one)), meaning) for one, meaning in MEANINGS.items())),
    )
