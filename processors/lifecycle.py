"""The lifecycle of a trajectory: one table from (state, event) to state. A missing key is an illegal transition."""

from enum import StrEnum

from rollbook.schemas.records.ledger import TrajectoryStatus as S

NONE = "none"
"""The state of a trajectory that nobody has reported."""


class Event(StrEnum):
    """What can happen to a trajectory."""

    DISPATCHED = "dispatched"
    GENERATED = "generated"
    GENERATION_FAILED = "generation_failed"
    REWARD_READY = "reward_ready"
    REWARD_FAILED = "reward_failed"
    RESERVE = "reserve"
    COMMIT = "commit"
    ABORT = "abort"
    DROP = "drop"
    ROLL_BACK = "roll_back"
    DISCARD = "discard"
    QUARANTINE = "quarantine"
    EXPIRE = "expire"


TRANSITIONS: dict[tuple[str, str], S] = {
    (NONE, Event.DISPATCHED): S.DISPATCHED,
    (NONE, Event.GENERATED): S.GENERATED,
    (NONE, Event.GENERATION_FAILED): S.GENERATION_FAILED,
    (S.DISPATCHED, Event.GENERATED): S.GENERATED,
    (S.DISPATCHED, Event.GENERATION_FAILED): S.GENERATION_FAILED,
    (S.GENERATED, Event.REWARD_READY): S.REWARDED,
    (S.GENERATED, Event.REWARD_FAILED): S.REWARD_FAILED,
    (S.REWARD_FAILED, Event.REWARD_READY): S.REWARDED,
    (S.REWARDED, Event.RESERVE): S.RESERVED,
    (S.RESERVED, Event.COMMIT): S.CONSUMED,
    (S.RESERVED, Event.ABORT): S.REWARDED,
    (S.RESERVED, Event.DROP): S.REWARDED,
    (S.RESERVED, Event.QUARANTINE): S.QUARANTINED,
    (S.CONSUMED, Event.ROLL_BACK): S.REWARDED,
    (S.DISPATCHED, Event.DISCARD): S.DISCARDED,
    (S.GENERATED, Event.DISCARD): S.DISCARDED,
    (S.REWARD_FAILED, Event.DISCARD): S.DISCARDED,
    (S.REWARDED, Event.DISCARD): S.DISCARDED,
    (S.DISPATCHED, Event.QUARANTINE): S.QUARANTINED,
    (S.GENERATED, Event.QUARANTINE): S.QUARANTINED,
    (S.REWARD_FAILED, Event.QUARANTINE): S.QUARANTINED,
    (S.REWARDED, Event.QUARANTINE): S.QUARANTINED,
    (S.DISPATCHED, Event.EXPIRE): S.OFFLINE,
    (S.GENERATED, Event.EXPIRE): S.OFFLINE,
    (S.REWARD_FAILED, Event.EXPIRE): S.OFFLINE,
    (S.REWARDED, Event.EXPIRE): S.OFFLINE,
}
"""A record that takes a trajectory through several (released, then quarantined) changes it once, to the last."""

PENDING: frozenset[S] = frozenset({S.DISPATCHED, S.GENERATED})
"""States in which a group still waits for the trajectory."""

LIVE: frozenset[S] = frozenset({S.DISPATCHED, S.GENERATED, S.REWARD_FAILED, S.REWARDED, S.RESERVED})
"""States that count against `max_live`."""


def allowed(state: str, event: str) -> bool:
    """Whether the table lists the pair."""
    return (state, event) in TRANSITIONS


def next_state(state: str, event: str) -> S:
    """The state after the event. ValueError for a pair that the table does not list."""
    found = TRANSITIONS.get((state, event))
    if found is None:
        raise ValueError(f"illegal transition: a trajectory that is {state} cannot take {event}")
    return found
