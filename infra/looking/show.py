"""How what is looked at is shown: tables whose cells are data, figures, times, JSON."""

import json
from collections.abc import Iterable, Sequence
from datetime import UTC, datetime
from typing import Literal

from pydantic_core import to_jsonable_python
from rich.console import Console
from rich.table import Table
from rich.text import Text

from rollbook.replay.progress import is_seen
from rollbook.schemas.records.common import LearnerRef
from rollbook.schemas.text import visible

_LONGEST = 4_096
"""Of a text that a decision has; a cut id is no id."""
# Where no person looks a line is a record: nothing is folded.
_WIDTH_WITHOUT_TERMINAL = 100_000
SHOWN = 100
"""Rows of a table; the JSON has all."""


def console() -> Console:
    """Standard output."""
    found = Console()
    return found if is_seen(found) else Console(width=_WIDTH_WITHOUT_TERMINAL)


def cell(value: object) -> Text:
    """An id is data: no markup, no control characters, no line of its own."""
    return Text(shown(value))


def shown(value: object) -> str:
    """Whole, on one line."""
    return visible(value, _LONGEST)


def print_figures(figures: Iterable[tuple[str, object]]) -> None:
    """Name and value, a line each."""
    grid = Table.grid(padding=(0, 2))
    for name, value in figures:
        grid.add_row(name, cell(value))
    console().print(grid)


def print_table(
    title: str,
    header: Sequence[str],
    rows: Sequence[Sequence[object]],
    *,
    right: Sequence[str] = (),
    limit: int | None = SHOWN,
) -> None:
    """A table with the number of its rows, cut after `limit`; nothing when it is empty."""
    if not rows:
        return
    table = Table(
        title=f"{title} ({len(rows):,})", box=None, title_justify="left", header_style="bold", title_style="bold"
    )
    for name in header:
        table.add_column(name, justify="right" if name in right else "left", overflow="fold")
    for row in rows[:limit]:
        table.add_row(*map(cell, row))
    out = console()
    out.print()
    out.print(table)
    if limit is not None and len(rows) > limit:
        out.print(Text(f"... and {len(rows) - limit:,} more; --json has all"))


def print_json(value: object) -> Literal[True]:
    """One line of ASCII, at once: it may be read as it comes, and on a terminal."""
    print(json.dumps(to_jsonable_python(value), separators=(",", ":")), flush=True)
    return True


def counted(counts: Iterable[tuple[str, int]]) -> str:
    """`3 consumed, 1 discarded`; what is 0 is left out."""
    return ", ".join(f"{count:,} {name}" for name, count in counts if count) or "none"


def at(timestamp_ms: int | None) -> str:
    """A time in UTC; any number may be given for one, also such as no calendar has."""
    if timestamp_ms is None:
        return ""
    try:
        return f"{datetime.fromtimestamp(timestamp_ms / 1000, UTC):%Y-%m-%d %H:%M:%S.%f}"[:-3]
    except (ValueError, OverflowError, OSError):
        return f"{timestamp_ms} ms"


def learner_of(learner: LearnerRef | None) -> str:
    return "" if learner is None else f"{learner.learner_id} epoch {learner.epoch}"


def maybe(value: int | None) -> str:
    """A whole number, or nothing."""
    return "" if value is None else str(value)


def figure(value: float | None) -> str:
    """A number, or nothing."""
    return "" if value is None else f"{value:.6g}"
