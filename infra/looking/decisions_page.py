"""Decisions for people: a table, or a line each as they come."""

from collections import Counter
from collections.abc import Sequence

from rich.table import Table

from rollbook.infra.looking.show import cell, console, figure, shown
from rollbook.replay.history.decisions import Decided
from rollbook.schemas.records.decision import Decision, ItemDecision
from rollbook.schemas.text import plural

_REASONS_SHOWN = 4
_COLUMNS = ("sequence", "offset", "record", "outcome", "reason", "subject", "update", "items")
_WIDTHS = (8, 8, 18, 9, 18)
"""Of the first columns where lines come one by one; what is longer pushes the rest."""


def print_decisions(found: Sequence[Decided], total: int, trajectory: str | None, filtered: bool) -> None:
    """A table. `total` counts the run's decisions; `trajectory` is the one asked for."""
    many = len(found)
    if many == total:
        title = plural(total, "decision")
    else:
        title = f"{'' if filtered else 'the last '}{many:,} of {plural(total, 'decision')}"
    table = Table(title=title, box=None, title_justify="left", header_style="bold")
    for name in _COLUMNS:
        table.add_column(name, justify="right" if name in ("sequence", "offset") else "left", overflow="fold")
    for decided in found:
        table.add_row(*(cell(value) for value in _values(decided.decision, trajectory)))
    console().print(table)


def header_line() -> str:
    """The names of the columns where lines come one by one."""
    return _line(_COLUMNS)


def decision_line(decided: Decided, trajectory: str | None) -> str:
    """A decision on one line."""
    return _line([shown(value) for value in _values(decided.decision, trajectory)])


def _line(values: Sequence[str]) -> str:
    padded = [value.ljust(width) for value, width in zip(values, _WIDTHS, strict=False)]
    return "  ".join((*padded, *values[len(_WIDTHS) :])).rstrip()


def _values(decision: Decision, trajectory: str | None) -> tuple[object, ...]:
    subject = "" if decision.subject is None else f"{decision.subject.kind} {decision.subject.id}"
    marked = f"{decision.reason} ({decision.detail})" if decision.detail else decision.reason
    return (
        decision.sequence,
        decision.source.offset,
        decision.record_type,
        decision.outcome.value,
        f"{marked}, violation" if decision.violation else marked,
        subject,
        decision.update_id or "",
        _items(decision, trajectory),
    )


def _items(decision: Decision, trajectory: str | None) -> str:
    """How many trajectories came out how: `3 reserved, 1 stale_policy`; or how the one asked for did."""
    mine = [item for item in decision.items if item.trajectory_id == trajectory]
    if mine:
        return ", ".join(map(_item, mine))
    counts = Counter(item.reason for item in decision.items).most_common()
    shown = [f"{count} {reason}" for reason, count in counts[:_REASONS_SHOWN]]
    shown += [f"{change.count} {change.predicate}" for change in decision.mass_changes]
    shown += [f"{len(decision.released)} released"] if decision.released else []
    return ", ".join(shown) + (", ..." if len(counts) > _REASONS_SHOWN else "")


def _item(item: ItemDecision) -> str:
    """`stale_policy, rewarded, revision 2, lag 3`."""
    moved = item.state_before != item.state_after
    parts = [item.reason, f"{item.state_before} -> {item.state_after}" if moved else item.state_after or ""]
    parts += [f"revision {item.revision_after}"] if item.revision_after is not None else []
    parts += [f"lag {item.lag}"] if item.lag is not None else []
    parts += [f"drift {figure(item.mean_abs_log_ratio)}"] if item.mean_abs_log_ratio is not None else []
    return ", ".join(part for part in parts if part)
