"""A random walk over lifecycle acts, driven by bytes: few ids, mostly sensible arguments, sometimes hostile ones.

Sensible ones come from the folded state (the learner's epoch, the trajectory's revision), or a walk would never get
beyond its first refusals. Every record keeps to the contract; nothing else is promised.
"""

import random
from collections.abc import Callable, Sequence
from typing import TypeAlias, TypeVar

from rollbook.schemas.records.common import PolicyRef
from rollbook.schemas.records.ledger import TrajectoryStatus, UpdateStatus
from rollbook.schemas.records.policy import AckFailure
from rollbook.schemas.records.rollout import Purpose
from rollbook.schemas.records.run import DriftGate, LagUnit
from rollbook.schemas.records.update import (
    AbortDisposition,
    Checkpoint,
    ClaimOrder,
    Disposition,
    ReserveMode,
)
from rollbook.tests.processors.history import History
from rollbook.tests.processors.parts import policy

T = TypeVar("T")
TRAJECTORIES = ("t0", "t1", "t2", "t3", "t4", "t5", "t6", "t7")
GROUPS = ("g0", "g1", "g2")
UPDATES = ("u0", "u1", "u2", "u3", "u4", "u5")
LEARNERS = ("a", "b")
WORKERS = ("w0", "w1")
VERSIONS = (0, 1, 2, 3, 4)


Act: TypeAlias = Callable[[History, "Dice"], None]


class Dice:
    """Choices made by bytes; when they run out, always the first."""

    def __init__(self, rolls: bytes) -> None:
        self._rolls = iter(rolls)

    def roll(self, sides: int) -> int:
        """A number below `sides`."""
        return next(self._rolls, 0) % sides

    def pick(self, options: Sequence[T]) -> T:
        """One of the options."""
        return options[self.roll(len(options))]

    def seldom(self) -> bool:
        """True one time in eight."""
        return self.roll(8) == 7

    def some(self, options: Sequence[T]) -> tuple[T, ...]:
        """At least one of the options, each at most once, in their order."""
        chosen = self.roll(2 ** len(options) - 1) + 1
        return tuple(option for at, option in enumerate(options) if chosen >> at & 1)

    def policy(self) -> PolicyRef:
        """A policy; seldom with another hash than the usual."""
        version = self.pick(VERSIONS)
        return policy(version, "other-weights" if self.seldom() else None)


def _prepared_one(history: History, dice: Dice) -> PolicyRef:
    """Mostly a prepared policy."""
    known = history.run.policies.values()
    if not known or dice.seldom():
        return dice.policy()
    chosen = dice.pick(known)
    return policy(chosen.version, chosen.artifact.hash)


def _open_one(history: History, dice: Dice) -> tuple[str, str]:
    """Mostly an open update and its learner."""
    known = history.run.updates.all_open()
    if not known or dice.seldom():
        return dice.pick(UPDATES), dice.pick(LEARNERS)
    chosen = dice.pick(known)
    return chosen.update_id, chosen.learner.learner_id if chosen.learner is not None else LEARNERS[0]


def warm() -> History:
    """A configured run with two learners, a second policy and two complete groups: where a walk begins."""
    history = History().opened(max_lag=1)
    for learner in LEARNERS:
        history.learner(learner)
    history.advanced(1)
    history.ready("t0", "t1", group="g0").ready("t2", "t3", group="g1")
    return history


def deep(seed: int) -> list[bytes]:
    """The rolls of a long walk."""
    source = random.Random(seed)
    return [source.randbytes(18) for _ in range(100)]


def act(history: History, rolls: bytes) -> None:
    """One act, folded."""
    dice = Dice(rolls)
    chosen = dice.pick(ACTS)
    if not dice.seldom():
        chosen = _in_time(history, chosen)
    chosen(history, dice)


def _in_time(history: History, chosen: Act) -> Act:
    """What a trainer would do first: reserve before it works on an update, start one before it commits."""
    opened = history.run.updates.all_open()
    if chosen in (_admit, _started, _commit) and not opened:
        return _claim
    return _started if chosen is _commit and all(u.status is UpdateStatus.OPEN for u in opened) else chosen


def _configure(history: History, dice: Dice) -> None:
    history.configured(
        dice.pick((2, 1, 3)),
        max_lag=dice.roll(3),
        lag_unit=dice.pick((LagUnit.DEPTH, LagUnit.ORDINAL)),
        gate=dice.pick((DriftGate.REQUIRED, DriftGate.OFF)),
        workers=dice.pick(((), ("w0",), WORKERS)),
        max_live=dice.pick((1000, 3)),
        max_pending=dice.pick((100, 1)),
        initial=policy(1) if dice.seldom() else None,
        partition_count=9 if dice.seldom() else None,
    )


def _contract(history: History, dice: Dice) -> None:
    history.contract(dice.pick(("tokenizer", "another")))


def _generated(history: History, dice: Dice) -> None:
    policies = tuple(_prepared_one(history, dice) for _ in range(1 + dice.roll(2)))
    history.generated(
        dice.pick(TRAJECTORIES),
        *policies,
        group=dice.pick(GROUPS),
        sample=dice.roll(2),
        of=2,
        purpose=Purpose.EVAL if dice.seldom() else Purpose.TRAIN,
        segments=1 + dice.roll(2),
        active_tokens=0 if dice.seldom() else None,
    )


def _failed(history: History, dice: Dice) -> None:
    history.failed(dice.pick(TRAJECTORIES), dice.pick(VERSIONS), group=dice.pick(GROUPS), sample=dice.roll(2), of=2)


def _rewarded(history: History, dice: Dice) -> None:
    names = (*dice.some(TRAJECTORIES), *(dice.some(TRAJECTORIES) if dice.seldom() else ()))
    history.rewarded(*names, reward=0.5 if dice.seldom() else 1.0)


def _reward_failed(history: History, dice: Dice) -> None:
    history.reward_failed(dice.pick(TRAJECTORIES))


def _discarded(history: History, dice: Dice) -> None:
    name = dice.pick(TRAJECTORIES)
    history.discarded(*((name, name) if dice.seldom() else (name,)))


def _learner(history: History, dice: Dice) -> None:
    history.learner(
        dice.pick(LEARNERS),
        incarnation=dice.pick((None, None, "p0")),
        expected=dice.roll(4) if dice.seldom() else None,
        checkpoint=Checkpoint(id="c0", digest="d") if dice.seldom() else None,
    )


def _epoch(dice: Dice) -> int | None:
    return dice.roll(12) if dice.seldom() else None


def _reserve(history: History, dice: Dice) -> None:
    known = history.run.trajectories.values()
    rewarded = [found.trajectory_id for found in known if found.status is TrajectoryStatus.REWARDED]
    names = dice.some(rewarded if rewarded and not dice.seldom() else TRAJECTORIES)
    history.reserve(
        dice.pick(UPDATES),
        *names,
        learner=dice.pick(LEARNERS),
        epoch=_epoch(dice),
        part=dice.roll(3),
        mode=dice.pick((ReserveMode.AVAILABLE, ReserveMode.ALL)),
        by=dice.policy() if dice.roll(2) else None,
        revisions={names[0]: dice.roll(6)} if dice.seldom() else None,
    )


def _claim(history: History, dice: Dice) -> None:
    history.claim(
        dice.pick(UPDATES),
        1 + dice.roll(3),
        learner=dice.pick(LEARNERS),
        epoch=_epoch(dice),
        part=dice.roll(3),
        order=dice.pick((ClaimOrder.OLDEST, ClaimOrder.FRESHEST)),
        mode=dice.pick((ReserveMode.AVAILABLE, ReserveMode.ALL)),
        by=dice.policy() if dice.seldom() else None,
    )


def _named(history: History, dice: Dice, update_id: str) -> tuple[str, ...]:
    update = history.run.updates.get(update_id)
    return dice.some(TRAJECTORIES) if update is None or not update.held or dice.seldom() else update.held


def _admit(history: History, dice: Dice) -> None:
    update_id, learner = _open_one(history, dice)
    history.admit(
        update_id,
        {name: dice.pick((0.0, 0.1, 0.1, 5.0)) for name in _named(history, dice, update_id)},
        learner=learner,
        epoch=_epoch(dice),
        part=dice.roll(3),
        own_updates=dice.roll(4) if dice.seldom() else 0,
        active_tokens=dice.roll(3) if dice.seldom() else None,
        by=dice.policy() if dice.seldom() else None,
    )


def _started(history: History, dice: Dice) -> None:
    update_id, learner = _open_one(history, dice)
    history.started(update_id, learner=learner, epoch=_epoch(dice))


def _commit(history: History, dice: Dice) -> None:
    update_id, learner = _open_one(history, dice)
    named = _named(history, dice, update_id)
    cut = dice.roll(len(named) + 1) if dice.roll(2) else 0
    trained, dropped = named[cut:], named[:cut]
    steps = (trained, trained) if dice.roll(2) else (trained,)
    disposition = dice.pick((Disposition.RELEASE, Disposition.DISCARD))
    drops = [(name, disposition) for name in dropped] * (2 if dice.seldom() else 1)
    history.commit(
        update_id,
        *steps,
        dropped=drops,
        learner=learner,
        epoch=_epoch(dice),
        rollout_id=dice.roll(2),
        unreserved=dice.seldom(),
    )


def _abort(history: History, dice: Dice) -> None:
    update_id, learner = _open_one(history, dice)
    history.abort(
        update_id,
        operator=dice.roll(3) == 2,
        disposition=dice.pick((AbortDisposition.RELEASE, AbortDisposition.QUARANTINE)),
        learner=learner,
        epoch=_epoch(dice),
        text="x" * 4096 if dice.seldom() else "",
    )


def _sealed(history: History, dice: Dice) -> None:
    known = history.run.updates.values()
    chosen = dice.pick(known) if known else None
    learner = chosen.learner.learner_id if chosen is not None and chosen.learner is not None else dice.pick(LEARNERS)
    history.sealed(
        chosen.update_id if chosen is not None else "u0",
        dice.roll(2),
        name=dice.pick(("r0", "r1")),
        learner=learner,
        epoch=_epoch(dice),
    )


def _prepared(history: History, dice: Dice) -> None:
    version = dice.pick(VERSIONS[1:])
    rollback = dice.roll(version) if dice.seldom() else None
    history.prepared(
        version,
        *((dice.pick(UPDATES),) if rollback is None and dice.roll(2) else ()),
        parent=dice.roll(version),
        rollback_of=rollback,
        committed=dice.roll(4) != 3,
        artifact_hash="other-weights" if dice.seldom() else None,
    )


def _written(history: History, dice: Dice) -> None:
    ref = dice.policy()
    history.written(ref.version, ref.artifact_hash)


def _ack(history: History, dice: Dice) -> None:
    ref = _prepared_one(history, dice)
    history.ack(
        dice.pick(WORKERS),
        ref.version,
        ref.artifact_hash,
        incarnation=dice.roll(2),
        seq=dice.roll(4) if dice.roll(2) else None,
        failure=AckFailure.LOAD_FAILED if dice.seldom() else None,
    )


def _activate(history: History, dice: Dice) -> None:
    active = history.run.head.active
    newer = [known.version for known in history.run.policies.values() if active and known.version > active.version]
    ref = policy(dice.pick(newer)) if newer and not dice.seldom() else _prepared_one(history, dice)
    history.activate(ref.version, ref.artifact_hash, expected=dice.roll(3) if dice.seldom() else None)


def _again(history: History, dice: Dice) -> None:
    history.again(1 + dice.roll(min(len(history.log.records), 32)))


def _rubbish(history: History, dice: Dice) -> None:
    old = history.log.records[-1]
    value = old.value or b""
    key = dice.pick((old.key, b"another", None))
    history.log.append(key, dice.pick((None, b"", value[:-1], value + b"\0", b"\xc3\x01rubbish!", value)))


ACTS: tuple[Act, ...] = (
    *(_generated,) * 4,
    *(_rewarded,) * 4,
    *(_reserve,) * 4,
    *(_claim,) * 3,
    *(_admit,) * 5,
    *(_started,) * 3,
    *(_commit,) * 5,
    *(_prepared,) * 2,
    *(_activate,) * 2,
    _learner,
    _configure,
    _contract,
    _failed,
    _reward_failed,
    _discarded,
    _abort,
    _sealed,
    _written,
    _ack,
    _again,
    _rubbish,
)
