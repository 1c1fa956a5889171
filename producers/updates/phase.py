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
