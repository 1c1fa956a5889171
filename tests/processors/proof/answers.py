"""What the naive model says of a record."""

from typing import Any, NamedTuple

from rollbook.tests.processors.proof.book import Item


class Answer(NamedTuple):
    """What a decision must say. `released` has (offset, type, subject, reason) of facts whose turn came."""

    outcome: str
    reason: str
    items: tuple[Item, ...] = ()
    released: tuple[tuple[int, str, str, str], ...] = ()
    missing: tuple[str, ...] = ()
    mismatched: tuple[str, ...] = ()
    violation: bool = False


def yes(reason: str = "ok", items: tuple[Item, ...] = (), **more: Any) -> Answer:
    """Accepted."""
    return Answer("accepted", reason, items, **more)


def no(reason: str, items: tuple[Item, ...] = (), **more: Any) -> Answer:
    """Rejected."""
    return Answer("rejected", reason, items, **more)


def again(items: tuple[Item, ...] = ()) -> Answer:
    """A duplicate."""
    return Answer("duplicate", "duplicate", items)
