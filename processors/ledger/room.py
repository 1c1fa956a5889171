"""How large an update may grow: its record, with all first answers, must fit one message of the ledger topic."""

from collections.abc import Iterable

from rollbook.schemas.records.ledger import UpdateState
from rollbook.schemas.types import MAX_ITEMS

ROOM_BYTES = 7 * 1024 * 1024
"""The topic takes 8 MiB; what is left is for the rest of the record."""
_ITEM_BYTES = 64
"""An item of an answer beside its trajectory's id."""
_NAME_BYTES = 4
"""A held trajectory beside its id."""


def outgrows(update: UpdateState, answered: Iterable[str], held: Iterable[str] = ()) -> bool:
    """Whether the update would outgrow its room with an answer about these trajectories, and these held as well. The
    answer to its UpdateStarted, which lists all that it holds, always has its place."""
    kept = (*update.held, *held)
    if len(kept) > MAX_ITEMS:  # a Commit could not name them
        return True
    size = sum(_size(name, _NAME_BYTES) + _size(name, _ITEM_BYTES) for name in kept)
    size += sum(_size(name, _ITEM_BYTES) for name in answered)
    size += sum(_size(item.trajectory_id, _ITEM_BYTES) for answer in update.answers for item in answer.items)
    return size > ROOM_BYTES


def _size(name: str, beside: int) -> int:
    return len(name.encode()) + beside
