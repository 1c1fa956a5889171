"""Records of every type about the same few things, to be sent in pairs from several points of a run's life."""

from collections.abc import Callable

from rollbook.schemas.records.run import DriftGate, Enforcement
from rollbook.schemas.records.update import AbortDisposition, Checkpoint, Disposition, ReserveMode
from rollbook.tests.processors.history import LEARNER, History
from rollbook.tests.processors.order.steps import (
    Kind,
    Step,
    abandoned,
    abort,
    ack,
    activate,
    admit,
    claim,
    closed,
    commit,
    configured,
    contract,
    discarded,
    dispatched,
    expired,
    generated,
    generation_failed,
    prepared,
    quarantined,
    renewed,
    reserve,
    reward_failed,
    rewarded,
    saved,
    sealed,
    started_learner,
    update_started,
    written,
)
from rollbook.tests.processors.parts import policy


def begun(enforcement: Enforcement = Enforcement.GATE) -> History:
    """An open run with two learners and no trajectory."""
    history = History().opened(
        max_lag=1, workers=("w0",), lease_ms=1000, gate=DriftGate.REQUIRED, enforcement=enforcement
    )
    history.learner(incarnation="first process")
    history.learner("other", incarnation="another process")
    return history


def ready(enforcement: Enforcement = Enforcement.GATE) -> History:
    """t0 generated, t1 rewarded, v1 prepared."""
    history = begun(enforcement)
    history.generated("t0")
    history.ready("t1")
    history.prepared(1, "u0", committed=False)
    return history


def held() -> History:
    """u0 holds t1."""
    history = ready()
    history.reserve("u0", "t1")
    return history


def started() -> History:
    """u0 trains on t1, v1 is written."""
    history = held()
    history.admit("u0", {"t1": 0.1})
    history.started("u0")
    history.written(1)
    return history


def trained() -> History:
    """u0 is committed, v1 served and active; the other learner holds t0."""
    history = started()
    history.rewarded("t0")
    history.commit("u0", "t1")
    history.ack("w0", 1)
    history.activate(1)
    history.reserve("u1", "t0", learner="other", by=policy(0))
    return history


STARTS: dict[str, Callable[[], History]] = {
    "ready": ready,
    "observed": lambda: ready(Enforcement.OBSERVE),
    "held": held,
    "started": started,
    "trained": trained,
}

_ALL = ("t0", "t1", "t2")
ALPHABET: tuple[Step, ...] = (
    contract("other tokenizer"),
    dispatched("t0"),
    dispatched("t2", 1),
    generated("t0"),
    generated("t0", active_tokens=1),
    generated("t1", contract="other tokenizer"),
    generated("t2", 1),
    generation_failed("t0"),
    generation_failed("t2", 1),
    rewarded("t0"),
    rewarded("t0", "t1", "t2", reward=0.0),
    reward_failed("t0"),
    reward_failed("t2"),
    discarded("t0"),
    discarded("t1", "t2"),
    quarantined("t0", "t1", "t2"),
    started_learner(LEARNER, "second process", 3, undoes=("u0",)).also(Kind.TRAJECTORY, *_ALL),
    started_learner(LEARNER, "a clone", 3, Checkpoint(id="c0", digest="digest of c0"), undoes=("u0",)).also(
        Kind.TRAJECTORY, *_ALL
    ),
    reserve("u0", "t0", epoch=3, part=1),
    reserve("u0", "t1", epoch=3),
    reserve("u1", "t0", "t1", "t2", spans=(0, 1), learner="other"),
    reserve("u2", "t0", "t1", spans=(0,), learner="other", mode=ReserveMode.ALL),
    claim("u2", *_ALL, spans=(0, 1), learner="other"),
    admit("u0", {"t1": 0.1}),
    admit("u0", {"t1": 0.9, "t0": 0.1}, by=1),
    update_started("u0", "t1", epoch=3),
    commit("u0", "t1", epoch=3),
    commit("u0", dropped=("t1",), disposition=Disposition.RELEASE, epoch=3),
    commit("u0", "t0", "t1", epoch=3, facts=True),
    abort("u0", "t1", epoch=3),
    abort("u0", "t0", "t1", operator=True),
    abort("u1", "t0", "t1", operator=True, disposition=AbortDisposition.QUARANTINE),
    renewed("u0", epoch=3),
    expired("u0", "t1", basis=100),
    sealed("u0", epoch=3),
    saved("c0", "u0", epoch=3),
    prepared(1, "u0", committed=False),
    prepared(2, "u1", parent=1),
    prepared(2, parent=1, rollback_of=0),
    prepared(1, artifact_hash="other-weights"),
    written(1),
    written(2),
    written(2, "other-weights"),
    written(1, "other-weights"),
    abandoned(1),
    abandoned(0),
    ack("w0", 1),
    ack("w0", 0, seq=1),
    ack("w0", 2, seq=2),
    activate(1, "u0", workers=("w0",)),
    activate(2, "u0", "u1", expected=1, workers=("w0",)),
    activate(2, "u0", "u1", expected=0, workers=("w0",)),
    configured(2, max_lag=0, workers=("w0",), lease_ms=1000),
    configured(2, max_lag=2, workers=("w0",), lease_ms=1000),
    closed(),
)
