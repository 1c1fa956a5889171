"""A history for every state that the table of records and states knows, and each record that meets it there."""

from collections.abc import Callable

from rollbook.processors.ledger.matrix import (
    ANY_OTHER,
    OPERATORS_ABORT,
    POLICY_STATES,
    UNRESERVED_COMMIT,
    CheckpointPhase,
    ContractPhase,
    LastReport,
    LearnerPhase,
    PolicyPhase,
    PolicyStanding,
    RunPhase,
    StateOf,
)
from rollbook.processors.lifecycle import NONE
from rollbook.schemas.records.decision import Decision
from rollbook.schemas.records.ledger import TrajectoryStatus as T
from rollbook.schemas.records.ledger import UpdateStatus as U
from rollbook.schemas.records.policy import AckFailure
from rollbook.schemas.records.reward import RewardFailure
from rollbook.schemas.records.run import DriftGate, Enforcement
from rollbook.schemas.records.update import Checkpoint
from rollbook.tests.processors.history import History
from rollbook.tests.processors.proof.compare import ProvenLog

Put = Callable[[History], object]
Send = Callable[[History], Decision]


def opened(enforcement: Enforcement = Enforcement.GATE) -> History:
    """A run with a learner, other rows to fill updates with, and leases; the naive model looks on."""
    history = History(log=ProvenLog())
    history.opened(horizon=1, max_lag=0, gate=DriftGate.OFF, lease_ms=1000, enforcement=enforcement)
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
    "CheckpointSaved": lambda h: h.saved("c", "u"),
}


def _standing(standing: PolicyStanding) -> Put:
    def put(history: History) -> None:
        history.prepared(1, *(("u",) if standing.phase is PolicyPhase.ORPHANED else ()), committed=standing.written)
        history.prepared(2, parent=0)
        active: tuple[int, ...] = (2,) if standing.passed else ()
        if standing.phase is PolicyPhase.ACTIVE:
            active = (1,)
        elif standing.phase is PolicyPhase.SUPERSEDED:
            active = (1, 2) if standing.passed else (2, 1, 0)
        elif standing.phase is PolicyPhase.ABANDONED:
            history.abandoned(1)
        elif standing.phase is PolicyPhase.ORPHANED:
            history.reserve("u", "held")
            history.abort("u")
        for version in active:
            history.activate(version)

    return put


POLICIES: dict[str, Put] = {NONE: lambda h: None, **{str(one): _standing(one) for one in POLICY_STATES}}
ON_POLICIES: dict[str, Send] = {
    "PolicyPrepared": lambda h: h.prepared(1, "another"),
    "PolicyCommitted": lambda h: h.written(1),
    "PolicyAbandoned": lambda h: h.abandoned(1),
    "Activate": lambda h: h.activate(1),
    "ActivationAck": lambda h: h.ack("w", 1),
}

RUNS: dict[str, Put] = {NONE: lambda h: None, RunPhase.OPEN: lambda h: None, RunPhase.CLOSED: lambda h: h.closed()}
ON_RUNS: dict[str, Send] = {
    "RunConfigured": lambda h: h.configured(2),
    "RunClosed": lambda h: h.closed("again"),
    ANY_OTHER: lambda h: h.dispatched("t"),
}

CONTRACTS: dict[str, Put] = {NONE: lambda h: None, ContractPhase.KNOWN: lambda h: h.contract("another")}
ON_CONTRACTS: dict[str, Send] = {"GenerationContract": lambda h: h.contract("another")}


def _current(history: History) -> None:
    history.learner("l")
    history.reserve("w", "more", learner="l")


def _fenced(history: History) -> None:
    _current(history)
    history.started("w", learner="l")
    history.abort("w", operator=True)


def _first_epoch(history: History) -> int:
    """What all records of the learner name, whatever became of it since."""
    starts = (found.decision for found in history.log.folded if found.decision.record_type == "LearnerStarted")
    of_it = (one.sequence for one in starts if one.learner is not None and one.learner.learner_id == "l")
    return next(of_it, 0)


def _by(send: Callable[[History, int], Decision]) -> Send:
    return lambda history: send(history, _first_epoch(history))


def _once_started(send: Callable[[History, int], Decision]) -> Send:
    return _by(lambda h, epoch: (h.started("w", learner="l", epoch=epoch), send(h, epoch))[1])


LEARNERS: dict[str, Put] = {
    NONE: lambda h: None,
    LearnerPhase.CURRENT: _current,
    LearnerPhase.FENCED: _fenced,
    LearnerPhase.OTHER_EPOCH: lambda h: (h.learner("l"), h.learner("l")),
}
ON_LEARNERS: dict[str, Send] = {
    "LearnerStarted": _by(lambda h, epoch: h.learner("l", expected=epoch)),
    "Reserve": _by(lambda h, epoch: h.reserve("w", "filler", part=5, learner="l", epoch=epoch)),
    "Admit": _by(lambda h, epoch: h.admit("w", {"more": 0.0}, learner="l", epoch=epoch)),
    "UpdateStarted": _by(lambda h, epoch: h.started("w", learner="l", epoch=epoch)),
    "Commit": _once_started(lambda h, epoch: h.commit("w", "more", learner="l", epoch=epoch)),
    "Renew": _by(lambda h, epoch: h.renewed("w", learner="l", epoch=epoch)),
    "Abort": _by(lambda h, epoch: h.abort("w", learner="l", epoch=epoch)),
    "RecordingSealed": _once_started(lambda h, epoch: h.sealed("w", learner="l", epoch=epoch)),
    "CheckpointSaved": _by(lambda h, epoch: h.saved("c", learner="l", epoch=epoch)),
}


def _lost(history: History) -> None:
    history.trained("u9", "filler")
    history.saved("c", "u9")
    history.learner()


CHECKPOINTS: dict[str, Put] = {
    NONE: lambda h: None,
    CheckpointPhase.STANDING: lambda h: h.saved("c"),
    CheckpointPhase.ORPHANED: _lost,
    CheckpointPhase.FOREIGN: lambda h: (h.learner("l"), h.saved("c", learner="l")),
}
ON_CHECKPOINTS: dict[str, Send] = {
    "CheckpointSaved": lambda h: h.saved("c", digest="another"),
    "LearnerStarted": lambda h: h.learner(checkpoint=Checkpoint(id="c", digest="digest of c")),
}

WORKERS: dict[str, Put] = {
    NONE: lambda h: None,
    LastReport.OLDER: lambda h: h.ack("w", 0, seq=1),
    LastReport.SAME: lambda h: h.ack("w", 0, seq=2, failure=AckFailure.LOAD_FAILED),
    LastReport.NEWER: lambda h: h.ack("w", 0, seq=3),
}
ON_WORKERS: dict[str, Send] = {"ActivationAck": lambda h: h.ack("w", 0, seq=2)}

ALL = {
    StateOf.RUN: (ON_RUNS, RUNS),
    StateOf.CONTRACT: (ON_CONTRACTS, CONTRACTS),
    StateOf.TRAJECTORY: (ON_TRAJECTORIES, TRAJECTORIES),
    StateOf.LEARNER: (ON_LEARNERS, LEARNERS),
    StateOf.UPDATE: (ON_UPDATES, UPDATES),
    StateOf.CHECKPOINT: (ON_CHECKPOINTS, CHECKPOINTS),
    StateOf.POLICY: (ON_POLICIES, POLICIES),
    StateOf.WORKER: (ON_WORKERS, WORKERS),
}
UNREACHED = {
    (StateOf.UPDATE, "RecordingSealed", U.ROLLED_BACK): "a roll-back begins an epoch: the holder's is another, always",
}
"""Rows that other rules always come before, and why."""
_OF_OBSERVED_RUNS = {
    str(one)
    for one in POLICY_STATES
    if one.phase in (PolicyPhase.ACTIVE, PolicyPhase.SUPERSEDED)
    and not (one.written and (one.passed or one.phase is PolicyPhase.ACTIVE))
}


def driven(of: StateOf, state: str) -> History:
    """A history that ends in the state."""
    if (of, state) == (StateOf.RUN, NONE):
        return History(log=ProvenLog())
    observed = of is StateOf.POLICY and state in _OF_OBSERVED_RUNS
    history = opened(Enforcement.OBSERVE if observed else Enforcement.GATE)
    ALL[of][1][state](history)
    return history


CASES = [
    (of, record, str(state))
    for of, (records, states) in ALL.items()
    for record in records
    for state in states
    if (of, record, state) not in UNREACHED
]
