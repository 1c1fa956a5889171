"""Random runs over all record types: several workers and learners, duplicates, late arrivals, crashes, clones, zombies.

Driven by bytes, so that hypothesis can shrink a run to what matters. `Walker` can hold a record back and deliver it
later, once or twice; commands mostly follow the state folded so far, or a run would not get beyond its first refusals.
"""

import random
from collections.abc import Callable, Sequence

from rollbook.schemas.records.common import Lifecycle, PolicyRef
from rollbook.schemas.records.decision import Decision
from rollbook.schemas.records.ledger import UpdateStatus
from rollbook.schemas.records.rollout import Purpose
from rollbook.schemas.records.run import DriftGate, Enforcement, LagUnit, RewardIdentity, Unpinned
from rollbook.schemas.records.update import AbortDisposition, Checkpoint, ClaimOrder, Disposition, ReserveMode
from rollbook.tests.processors import parts, walk
from rollbook.tests.processors.history import History
from rollbook.tests.processors.log import Log
from rollbook.tests.processors.walk import LEARNERS, WORKERS, Dice

ROLLS = 18
"""Bytes that one act may use."""
NAMES = tuple(f"t{at}" for at in range(40))
UPDATES = tuple(f"u{at}" for at in range(20))
CHECKPOINTS = ("c0", "c1", "c2", "c3", "c4", "c5")
OTHER_RULE = RewardIdentity(rule_id="other", version="1", hash="rule-hash")


class Walker(History):
    """A run whose records may be late. `limits` are what its configurations keep."""

    def __init__(self, log: Log, dice: Dice) -> None:
        super().__init__(log=log)
        self.late = False
        self.under_way: list[Lifecycle] = []
        self.epochs: dict[str, list[int]] = {name: [0] for name in LEARNERS}
        self.enforcement = dice.pick((Enforcement.GATE, Enforcement.GATE, Enforcement.OBSERVE))
        self.lag_unit = dice.pick((LagUnit.DEPTH, LagUnit.ORDINAL))
        self.gate = dice.pick((DriftGate.REQUIRED, DriftGate.OFF))
        self.unpinned = dice.pick((Unpinned.REFUSE, Unpinned.APART))
        self.max_lag = dice.pick((1, 0, 2))
        self.horizon = dice.pick((0, 2, 2, 3))

    def send(self, record: Lifecycle) -> Decision:
        """Put a record on the log, or keep it under way."""
        if self.late:
            self.under_way.append(record)
            return self.last
        decision = super().send(record)
        if decision.record_type == "LearnerStarted" and decision.outcome == "accepted" and decision.learner is not None:
            self.epochs.setdefault(decision.learner.learner_id, []).append(decision.learner.epoch)
        return decision

    def limited(self, dice: Dice, config_version: int = 1) -> Decision:
        """A configuration of this run."""
        return self.configured(
            config_version,
            max_lag=self.max_lag,
            lag_unit=self.lag_unit,
            gate=self.gate,
            workers=dice.pick(((), ("w0",), WORKERS)),
            enforcement=self.enforcement,
            unpinned=self.unpinned,
            horizon=self.horizon,
            lease_ms=dice.pick((1000, 1000, 0)),
            contracts=(parts.contract_named(),) if dice.roll(2) else (),
            rewards=(parts.RULE,) if dice.roll(2) else (),
            max_live=1000 if dice.roll(4) else 3,
            max_pending=100 if dice.roll(4) else 1,
        )


Act = Callable[[Walker, Dice], object]


def place(name: str) -> tuple[str, int]:
    """The group of a trajectory and its place there."""
    number = int(name[1:])
    return f"g{number // 2}", number % 2


def deep(seed: int, length: int = 100) -> list[bytes]:
    """The rolls of a long run."""
    source = random.Random(seed)
    return [source.randbytes(ROLLS) for _ in range(length)]


def begin(log: Log, rolls: bytes) -> Walker:
    """A configured run with two learners, a second policy and two complete groups."""
    dice = Dice(rolls)
    walker = Walker(log, dice)
    walker.limited(dice)
    walker.contract()
    for learner in LEARNERS:
        walker.learner(learner)
    walker.prepared(1)
    for worker in WORKERS:
        walker.ack(worker, 1)
    walker.activate(1)
    for name in NAMES[:4]:
        group, sample = place(name)
        walker.generated(name, dice.roll(2), group=group, sample=sample, of=2)
    walker.rewarded(*NAMES[:4])
    return walker


def step(walker: Walker, rolls: bytes) -> None:
    """One act, or the arrival of something late."""
    dice = Dice(rolls)
    if walker.under_way and dice.roll(4) == 0:
        at = dice.roll(len(walker.under_way))
        walker.late = False
        walker.send(walker.under_way[at] if dice.seldom() else walker.under_way.pop(at))
        return
    chosen = _in_time(walker, dice.pick(ACTS), dice)
    walker.late = dice.seldom()
    chosen(walker, dice)
    walker.late = False


def run(log: Log, rolls: Sequence[bytes]) -> Walker:
    """A whole run."""
    walker = begin(log, rolls[0] if rolls else b"")
    for one in rolls[1:]:
        step(walker, one)
    return walker


def _in_time(walker: Walker, chosen: Act, dice: Dice) -> Act:
    """What a trainer would do first: reserve before it works on an update, admit and start one before it commits."""
    opened = walker.run.updates.all_open()
    if dice.seldom() or chosen not in (_admit, _started, _commit):
        return chosen
    if not opened:
        return _claim
    if chosen is not _commit:
        return chosen
    if all(u.status is UpdateStatus.OPEN for u in opened):
        return _started
    needed = walker.gate is DriftGate.REQUIRED and dice.roll(3)
    waits = any(walker.trajectory(name).admitted_ratio is None for u in opened for name in u.held)
    return _admit if needed and waits else chosen


def _old_hand(walker: Walker, dice: Dice, learner: str) -> int | None:
    """Seldom an epoch that has passed."""
    return dice.pick(walker.epochs[learner]) if dice.seldom() else None


# --- workers


def _name(walker: Walker, dice: Dice) -> str:
    """Mostly a trajectory that is not known yet."""
    fresh = [name for name in NAMES if name not in walker.run.trajectories]
    return dice.pick(NAMES) if not fresh or dice.seldom() else fresh[0] if dice.roll(2) else dice.pick(fresh)


def _spans(walker: Walker, dice: Dice) -> tuple[PolicyRef, ...]:
    known = [
        known for known in walker.run.policies.values() if known.activated and known.version >= walker.run.head.floor
    ]
    if not known or dice.seldom():
        return (dice.policy(), parts.policy(dice.roll(9)))[: 1 + dice.roll(2)]
    some = [dice.pick(known[-3:]) for _ in range(1 + dice.roll(2))]
    return tuple(parts.policy(one.version, one.artifact.hash) for one in some)


def _generated(walker: Walker, dice: Dice) -> None:
    name = _name(walker, dice)
    group, sample = place(name)
    walker.generated(
        name,
        *_spans(walker, dice),
        group="g0" if dice.seldom() else group,
        sample=sample,
        of=2,
        purpose=Purpose.EVAL if dice.seldom() else Purpose.TRAIN,
        segments=1 + dice.roll(2),
        active_tokens=0 if dice.seldom() else None,
        contract=parts.contract_named("another") if dice.seldom() else None,
    )


def _dispatched(walker: Walker, dice: Dice) -> None:
    name = _name(walker, dice)
    group, sample = place(name)
    walker.dispatched(
        name, _spans(walker, dice)[0].version, group="g0" if dice.seldom() else group, sample=sample, of=2
    )


def _ready(walker: Walker, dice: Dice) -> None:
    """A whole group by the active policy, with its rewards."""
    fresh = [name for name in NAMES if name not in walker.run.trajectories and place(name)[1] == 0]
    active = walker.run.head.active
    if not fresh or active is None:
        return
    names = (fresh[0], f"t{int(fresh[0][1:]) + 1}")
    for name in names:
        group, sample = place(name)
        walker.generated(name, active, group=group, sample=sample, of=2)
    walker.rewarded(*names)


def _failed(walker: Walker, dice: Dice) -> None:
    name = _name(walker, dice)
    group, sample = place(name)
    walker.failed(name, _spans(walker, dice)[0].version, group=group, sample=sample, of=2)


def _unrewarded(walker: Walker, dice: Dice) -> str:
    waiting = [row.trajectory_id for row in walker.run.trajectories.values() if row.reward_offset is None]
    return dice.pick(NAMES) if not waiting or dice.seldom() else dice.pick(waiting)


def _rewarded(walker: Walker, dice: Dice) -> None:
    names = [_unrewarded(walker, dice) for _ in range(1 + dice.roll(3))]
    walker.rewarded(*names, reward=0.5 if dice.seldom() else 1.0, rule=OTHER_RULE if dice.seldom() else parts.RULE)


def _reward_failed(walker: Walker, dice: Dice) -> None:
    walker.reward_failed(_unrewarded(walker, dice))


def _known(walker: Walker, dice: Dice) -> str:
    known = walker.run.trajectories.values()
    return dice.pick(NAMES) if not known or dice.seldom() else dice.pick(known).trajectory_id


def _discarded(walker: Walker, dice: Dice) -> None:
    name = _known(walker, dice)
    walker.discarded(*((name, name) if dice.seldom() else (name, _known(walker, dice))))


def _quarantined(walker: Walker, dice: Dice) -> None:
    walker.quarantined(_known(walker, dice))


# --- learners


def _learner(walker: Walker, dice: Dice) -> None:
    name = dice.pick(LEARNERS)
    saved = [one for one in walker.run.checkpoints.values() if one.learner_id == name or dice.seldom()]
    from_one = dice.pick(saved) if saved and dice.roll(4) else None
    walker.learner(
        name,
        incarnation=dice.pick((None, None, "p0")),
        expected=dice.pick(walker.epochs[name]) if dice.seldom() else None,
        checkpoint=None
        if from_one is None
        else Checkpoint(id=from_one.checkpoint_id, digest="other" if dice.seldom() else from_one.digest),
    )


def _saved(walker: Walker, dice: Dice) -> None:
    name = dice.pick(LEARNERS)
    mine = [u for u in walker.run.updates.values() if u.learner is not None and u.learner.learner_id == name]
    done = [u.update_id for u in mine if u.status is UpdateStatus.COMMITTED or dice.seldom()]
    free = [one for one in CHECKPOINTS if one not in walker.run.checkpoints]
    walker.saved(
        dice.pick(CHECKPOINTS) if not free or dice.seldom() else free[0],
        dice.pick(done) if done and dice.roll(4) else None,
        learner=name,
        epoch=_old_hand(walker, dice, name),
    )


def _fresh_update(walker: Walker, dice: Dice) -> str:
    fresh = [name for name in UPDATES if name not in walker.run.updates]
    return dice.pick(UPDATES) if not fresh or dice.roll(3) == 0 else fresh[0]


def _claim(walker: Walker, dice: Dice) -> None:
    learner = dice.pick(LEARNERS)
    walker.claim(
        _fresh_update(walker, dice),
        1 + dice.roll(2),
        learner=learner,
        epoch=_old_hand(walker, dice, learner),
        part=dice.roll(3),
        order=dice.pick(tuple(ClaimOrder)),
        mode=dice.pick((ReserveMode.AVAILABLE, ReserveMode.ALL)),
        by=dice.policy() if dice.seldom() else None,
    )


_admit, _started, _commit = walk._admit, walk._started, walk._commit


def _trained(walker: Walker, dice: Dice) -> None:
    """A whole update, as a trainer with luck makes it."""
    learner, update_id = dice.pick(LEARNERS), _fresh_update(walker, dice)
    walker.claim(update_id, 2, learner=learner)
    update = walker.run.updates.get(update_id)
    if (
        update is None
        or not update.held
        or walker.late
        or update.learner is None
        or update.learner.learner_id != learner
    ):
        return
    held = update.held
    walker.admit(update_id, {name: dice.pick((0.0, 0.1, 0.1, 5.0)) for name in held}, part=7, learner=learner)
    walker.started(update_id, learner=learner)
    rows = [row for row in map(walker.trajectory, held) if row.update_id == update_id]
    fit = [row.trajectory_id for row in rows if row.admitted_ratio is not None or walker.gate is DriftGate.OFF]
    drops = {row.trajectory_id: dice.pick(tuple(Disposition)) for row in rows if row.trajectory_id not in fit}
    walker.commit(update_id, *fit, dropped=drops, learner=learner)
    if dice.roll(2):
        free = [one for one in CHECKPOINTS if one not in walker.run.checkpoints]
        walker.saved(free[0] if free else CHECKPOINTS[0], update_id, learner=learner)


def _abort(walker: Walker, dice: Dice) -> None:
    update_id, learner = walk._open_one(walker, dice)
    walker.abort(
        update_id,
        operator=dice.roll(2) == 1,
        disposition=dice.pick((AbortDisposition.RELEASE, AbortDisposition.QUARANTINE)),
        learner=learner,
        epoch=_old_hand(walker, dice, learner),
    )


def _renewed(walker: Walker, dice: Dice) -> None:
    update_id, learner = walk._open_one(walker, dice)
    walker.renewed(update_id, learner=learner, epoch=_old_hand(walker, dice, learner))


def _expired(walker: Walker, dice: Dice) -> None:
    update_id, _ = walk._open_one(walker, dice)
    walker.expired(update_id, basis=dice.roll(walker.log.next_offset) if dice.roll(3) == 2 else None)


# --- weights


def _prepared(walker: Walker, dice: Dice) -> None:
    known = walker.run.policies.values()
    contained = {name for policy in known for name in policy.update_ids}
    done = [u.update_id for u in walker.run.updates.values() if u.status is UpdateStatus.COMMITTED]
    new = tuple(name for name in done if name not in contained)
    version = 1 + dice.roll(12) if dice.seldom() or not known else known[-1].version + 1 + dice.seldom()
    parent = dice.pick(known) if known and dice.seldom() else known[-1] if known else None
    rollback = dice.pick(known).version if known and dice.seldom() else None
    wanted = new if dice.roll(4) else (dice.pick(UPDATES),)
    parent_version = 0 if parent is None else parent.version
    if version in (parent_version, rollback):
        version += 20
    walker.prepared(
        version,
        *(() if rollback is not None else wanted),
        parent=parent_version,
        rollback_of=rollback,
        committed=dice.roll(4) != 3,
        artifact_hash="other-weights" if dice.seldom() else None,
    )


def _advanced(walker: Walker, dice: Dice) -> None:
    """The next policy, as a coordinator with luck makes it."""
    _prepared(walker, dice)
    newest = walker.run.policies.values()[-1:]
    for known in newest:
        for worker in WORKERS:
            walker.ack(worker, known.version, known.artifact.hash)
        walker.activate(known.version, known.artifact.hash)


def _written(walker: Walker, dice: Dice) -> None:
    waiting = [one for one in walker.run.policies.values() if not one.committed]
    ref = dice.policy() if not waiting or dice.seldom() else parts.policy(waiting[0].version, waiting[0].artifact.hash)
    walker.written(ref.version, ref.artifact_hash)


def _ack(walker: Walker, dice: Dice) -> None:
    newest = walker.run.policies.values()[-1:]
    if not newest or dice.seldom():
        walk._ack(walker, dice)
        return
    for worker in WORKERS:
        walker.ack(worker, newest[0].version, newest[0].artifact.hash)


def _abandoned(walker: Walker, dice: Dice) -> None:
    walker.abandoned(
        dice.pick(walker.run.policies.values()).version if dice.roll(4) and len(walker.run.policies) else 9
    )


# --- the run


def _configure(walker: Walker, dice: Dice) -> None:
    if dice.seldom():
        walk._configure(walker, dice)
    else:
        walker.max_lag = dice.roll(3)
        walker.limited(dice, walker.run.head.config_version + dice.roll(2))


def _closed(walker: Walker, dice: Dice) -> None:
    if dice.roll(16) == 15:
        walker.closed()


ACTS: tuple[Act, ...] = (
    *(_generated,) * 4,
    *(_rewarded,) * 6,
    *(_ready,) * 4,
    *(_trained,) * 8,
    *(_advanced,) * 2,
    walk._reserve,
    *(_claim,) * 2,
    *(_admit,) * 5,
    *(_started,) * 3,
    *(_commit,) * 6,
    *(_prepared,) * 4,
    *(walk._activate,) * 4,
    *(_ack,) * 2,
    _dispatched,
    _dispatched,
    _failed,
    _reward_failed,
    _discarded,
    _quarantined,
    _learner,
    _learner,
    _saved,
    _saved,
    _abort,
    _renewed,
    _expired,
    _expired,
    _written,
    _abandoned,
    walk._sealed,
    walk._contract,
    _configure,
    _closed,
    walk._again,
    walk._again,
    walk._rubbish,
)
