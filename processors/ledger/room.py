"""How large an update may grow: its record, with all first answers, must fit one message of the ledger topic."""

from collections.abc import Iterable, Sequence

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
    listed = [*kept, *answered, *(item.trajectory_id for answer in update.answers for item in answer.items)]
    return _size(kept, _NAME_BYTES) + _size(listed, _ITEM_BYTES) > ROOM_BYTES


def _size(names: Sequence[str], beside: int) -> int:
    return sum([len(name.encode()) for name in names]) + len(names) * beside
