"""Where an update stands."""

from enum import StrEnum


class Phase(StrEnum):
    """Where an update stands, as far as decisions have been read."""

    NEW = "new"
    OPEN = "open"
    STARTED = "started"
    UNRESERVED = "unreserved"
    COMMITTED = "committed"
    ABORTED = "aborted"
    HANDED_OVER = "handed over"


OVER = frozenset({Phase.COMMITTED, Phase.ABORTED, Phase.HANDED_OVER})
"""Nothing is left to be done with it in this process."""


def remedy(is_now: Phase, wanted: Phase) -> str:
    """What to do about an update that does not stand where a call needs it."""
    if is_now in OVER:
        return "it is over, take another one with trainer.update(...)"
    if wanted is Phase.STARTED:
        return "call update.start() first" if is_now is Phase.OPEN else "claim or reserve rows first, then start"
    return (
        "call update.claim(...) or update.reserve(...) first"
        if is_now is Phase.NEW
        else "call it before update.start()"
    )
