"""What the naive model says of a record."""

from typing import Any, NamedTuple, TypeAlias

from rollbook.tests.processors.proof.book import Item

Released: TypeAlias = tuple[int, str, str, str]
"""Offset, type and subject of a fact whose turn came, and what became of it."""


class Answer(NamedTuple):
    """What a decision must say."""

    outcome: str
    reason: str
    items: tuple[Item, ...] = ()
    released: tuple[Released, ...] = ()
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
