"""A history for every state that the table of records and states knows, and each record that meets it there."""

from collections.abc import Callable

from rollbook.processors.ledger.matrix import OPERATORS_ABORT, UNRESERVED_COMMIT, PolicyPhase, StateOf
from rollbook.processors.lifecycle import NONE
from rollbook.schemas.records.decision import Decision
from rollbook.schemas.records.ledger import TrajectoryStatus as T
from rollbook.schemas.records.ledger import UpdateStatus as U
from rollbook.schemas.records.reward import RewardFailure
from rollbook.schemas.records.run import DriftGate
from rollbook.tests.processors.history import History
from rollbook.tests.processors.proof.compare import ProvenLog

Put = Callable[[History], object]
Send = Callable[[History], Decision]


def opened() -> History:
    """A run with a learner, other rows to fill updates with, and leases; the naive model looks on."""
    history = History(log=ProvenLog()).opened(horizon=1, max_lag=0, gate=DriftGate.OFF, lease_ms=1000)
    history.ready("filler", "more", "held")
    history.learner()
    return history


def _offline(history: History) -> None:
    history.ready("t")
    history.advanced(1).advanced(2)


def _trained(history: History) -> None:
    history.ready("t")
    history.trained("u9", "t")


def _rewarded_then(then: Put) -> Put:
    return lambda history: (history.ready("t"), then(history))


TRAJECTORIES: dict[str, Put] = {
    NONE: lambda h: None,
    T.DISPATCHED: lambda h: h.dispatched("t"),
    T.GENERATED: lambda h: h.generated("t"),
    T.GENERATION_FAILED: lambda h: h.failed("t"),
    T.REWARDED: lambda h: h.ready("t"),
    T.REWARD_FAILED: lambda h: (h.generated("t"), h.reward_failed("t")),
    T.RESERVED: _rewarded_then(lambda h: h.reserve("u9", "t")),
    T.CONSUMED: _trained,
    T.DISCARDED: _rewarded_then(lambda h: h.discarded("t")),
    T.QUARANTINED: _rewarded_then(lambda h: h.quarantined("t")),
    T.OFFLINE: _offline,
}


def _admitted(history: History) -> Decision:
    update = history.trajectory("t").update_id if history.status("t") == T.RESERVED else "u8"
    if update == "u8":
        history.ready("new", version=2 if history.status("t") == T.OFFLINE else 0)
        history.reserve("u8", "new")
    return history.admit(update, {"t": 0.0})


ON_TRAJECTORIES: dict[str, Send] = {
    "Dispatched": lambda h: h.dispatched("t", 7),
    "Generated": lambda h: h.generated("t", active_tokens=1),
    "GenerationFailed": lambda h: h.failed("t", 7),
    "RewardReady": lambda h: h.rewarded("t", reward=0.25),
    "RewardFailed": lambda h: h.reward_failed("t", RewardFailure.SERVICE_ERROR),
    "Discarded": lambda h: h.discarded("t"),
    "Quarantine": lambda h: h.quarantined("t"),
    "Reserve": lambda h: h.reserve("u8", "t"),
    "Admit": _admitted,
}


def _open(history: History) -> Decision:
    return history.reserve("u", "held")


def _started(history: History) -> None:
    _open(history)
    history.started("u")


def _committed(history: History) -> Decision:
    _started(history)
    return history.commit("u", "held")


UPDATES: dict[str, Put] = {
    NONE: lambda h: None,
    U.OPEN: _open,
    U.STARTED: _started,
    U.COMMITTED: _committed,
    U.ABORTED: lambda h: (_open(h), h.abort("u", text="first")),
    U.ROLLED_BACK: lambda h: (_committed(h), h.learner()),
}
ON_UPDATES: dict[str, Send] = {
    "Reserve": lambda h: h.reserve("u", "filler", part=5),
    "Admit": lambda h: h.admit("u", {"held": 0.0}, part=5),
    "UpdateStarted": lambda h: h.started("u"),
    "Commit": lambda h: h.commit("u", "held", rollout_id=9),
    UNRESERVED_COMMIT: lambda h: h.commit("u", "held", unreserved=True),
    "Renew": lambda h: h.renewed("u"),
    "LeaseExpired": lambda h: h.expired("u"),
    "Abort": lambda h: h.abort("u"),
    OPERATORS_ABORT: lambda h: h.abort("u", operator=True),
    "RecordingSealed": lambda h: h.sealed("u"),
}


def _orphaned(history: History) -> None:
    history.prepared(1, "u")
    history.reserve("u", "held")
    history.abort("u")


POLICIES: dict[str, Put] = {
    NONE: lambda h: None,
    PolicyPhase.PREPARED: lambda h: h.prepared(1, committed=False),
    PolicyPhase.COMMITTED: lambda h: h.prepared(1),
    PolicyPhase.ACTIVE: lambda h: h.advanced(1),
    PolicyPhase.SUPERSEDED: lambda h: h.advanced(1).advanced(2),
    PolicyPhase.ABANDONED: lambda h: (h.prepared(1), h.abandoned(1)),
    PolicyPhase.ORPHANED: _orphaned,
}
ON_POLICIES: dict[str, Send] = {
    "PolicyPrepared": lambda h: h.prepared(1, "another"),
    "PolicyCommitted": lambda h: h.written(1),
    "PolicyAbandoned": lambda h: h.abandoned(1),
    "Activate": lambda h: h.activate(1),
}

ALL = {
    StateOf.TRAJECTORY: (ON_TRAJECTORIES, TRAJECTORIES),
    StateOf.UPDATE: (ON_UPDATES, UPDATES),
    StateOf.POLICY: (ON_POLICIES, POLICIES),
}
UNREACHED = {
    (StateOf.UPDATE, "RecordingSealed", U.ROLLED_BACK): "a roll-back begins an epoch: the holder's is another, always",
}
"""Rows that other rules always come before, and why."""

CASES = [
    (of, record, str(state))
    for of, (records, states) in ALL.items()
    for record in records
    for state in states
    if (of, record, state) not in UNREACHED
]
