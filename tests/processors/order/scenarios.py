"""Small histories of several producers, each to be sent in every order that the producers allow."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from rollbook.schemas.records.policy import AckFailure
from rollbook.schemas.records.run import DriftGate, Enforcement, LagUnit, RewardIdentity, Unpinned
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
from rollbook.tests.processors.parts import RULE, policy

OTHER_RULE = RewardIdentity(rule_id="other", version="1", hash="other-hash")


@dataclass(frozen=True, slots=True)
class Scenario:
    """What has happened, what comes in any order, and what follows in the end."""

    name: str
    begun: Callable[[], History]
    steps: Sequence[Step]
    then: Sequence[Step] = ()


def open_run(**settings: object) -> History:
    """A configured run with a learner."""
    history = History().opened(**settings)  # type: ignore[arg-type]
    history.learner(incarnation="first process")
    return history


def _two_rewarded() -> History:
    return open_run().ready("t0", "t1")


def _two_learners() -> History:
    history = _two_rewarded()
    history.learner("other", incarnation="another process")
    return history


def _holding(*, started: bool) -> History:
    """An update that holds t0, with a lease; the clerk saw its Reserve."""
    history = open_run(lease_ms=1000, gate=DriftGate.OFF).ready("t0", "t1")
    history.reserve("u0", "t0")
    if started:
        history.started("u0")
    return history


def _after_a_checkpoint(*others: str) -> History:
    """One update in a checkpoint, one committed after it, one started; a policy of the first two is prepared."""
    history = History().opened(gate=DriftGate.OFF, max_lag=4, lease_ms=1000)
    for other in others:
        history.learner(other, incarnation="another process")
    history.learner(incarnation="first process")
    history.ready("t0", "t1", "t2")
    history.reserve("u0", "t0")
    history.started("u0")
    history.commit("u0", "t0")
    history.saved("c0", "u0")
    history.reserve("u1", "t1")
    history.started("u1")
    history.commit("u1", "t1")
    history.prepared(1, "u0", "u1")
    history.reserve("u2", "t2")
    history.started("u2")
    return history


C0 = Checkpoint(id="c0", digest="digest of c0")
FACTS: tuple[Scenario, ...] = (
    Scenario(
        "all that is said of one trajectory, some of it twice",
        open_run,
        (
            dispatched("t0"),
            generated("t0"),
            reward_failed("t0"),
            rewarded("t0"),
            generated("t0"),
            rewarded("t0"),
        ),
    ),
    Scenario(
        "a group with a member that failed, and a reward for that one",
        open_run,
        (
            dispatched("a", group="g", sample=0, of=2),
            dispatched("b", group="g", sample=1, of=2),
            generated("a", group="g", sample=0, of=2),
            generation_failed("b", group="g", sample=1, of=2),
            rewarded("a"),
            rewarded("b", reward=0.0),
        ),
        (claim("u0", "a", "b"),),
    ),
    Scenario(
        "a policy and its trajectories, acks and rewards before it is prepared, prepared before the commit",
        lambda: _holding_with_workers("w0"),
        (
            prepared(1, "u0", committed=False),
            written(1),
            ack("w0", 1),
            commit("u0", "t0"),
            generated("t9", 1),
            rewarded("t9"),
        ),
        (activate(1), reserve("u1", "t9", by=policy(1), mode=ReserveMode.ALL)),
    ),
    Scenario(
        "trajectories by other weights than those prepared",
        open_run,
        (
            prepared(1, committed=False),
            written(1, "other-weights"),
            generated("t8", policy(1, "other-weights")),
            rewarded("t8"),
            generated("t9", 0, 1),
            rewarded("t9"),
        ),
    ),
    Scenario(
        "reports of one worker",
        lambda: History().opened(workers=("w0",)),
        (
            ack("w0", 0),
            ack("w0", 1, seq=1),
            ack("w0", 0, incarnation=1, failure=AckFailure.LOAD_FAILED),
            ack("w0", 1, incarnation=1, seq=1),
            prepared(1),
            written(1),
        ),
        (activate(1),),
    ),
    Scenario(
        "a roll-back and what knows of it, acks, recordings and trajectories of the policy it undoes",
        _after_a_checkpoint,
        (
            started_learner(LEARNER, "second process", 3, C0, undoes=("u1", "u2")),
            prepared(2, "u2", parent=1),
            generated("t8", 1),
            generated("t9", 2),
            rewarded("t9"),
            ack("w0", 2),
        ),
    ),
)
"""Of these every order ends alike: no two of their records need an order."""


def _holding_with_workers(*workers: str) -> History:
    history = open_run(workers=workers, gate=DriftGate.OFF).ready("t0")
    history.reserve("u0", "t0")
    history.started("u0")
    return history


MIXED: tuple[Scenario, ...] = (
    Scenario(
        "accounts of one trajectory that contradict each other",
        open_run,
        (
            generated("t0"),
            generated("t0", active_tokens=1),
            generation_failed("t0"),
            rewarded("t0", reward=0.0),
            rewarded("t0", reward=1.0),
        ),
    ),
    Scenario(
        "a trajectory taken out of use while it is made",
        open_run,
        (
            dispatched("t0"),
            generated("t0"),
            generation_failed("t0"),
            rewarded("t0"),
            discarded("t0"),
            quarantined("t0"),
        ),
    ),
    Scenario(
        "a trainer at work, and what it could have had",
        lambda: open_run().ready("t0"),
        (
            reserve("u0", "t0", "t1"),
            admit("u0", {"t0": 0.1, "t1": 0.1}),
            update_started("u0"),
            commit("u0", "t0", "t1"),
            generated("t1"),
            rewarded("t1"),
            discarded("t0"),
        ),
    ),
    Scenario(
        "a trainer at work whose rows leave it",
        _two_learners,
        (
            reserve("u0", "t0", "t1"),
            admit("u0", {"t0": 0.9, "t1": 0.1}),
            update_started("u0"),
            commit("u0", "t0", dropped=["t1"], disposition=Disposition.RELEASE),
            quarantined("t0"),
            discarded("t1"),
            reserve("u1", "t1", learner="other"),
        ),
    ),
    Scenario(
        "two learners for the same trajectories",
        _two_learners,
        (
            reserve("u0", "t0", "t1", mode=ReserveMode.ALL),
            update_started("u0"),
            abort("u0", "t0", "t1", operator=True),
            reserve("u1", "t1", learner="other"),
            claim("u2", "t0", "t1", learner="other"),
            abort("u1", "t1", learner="other"),
        ),
    ),
    Scenario(
        "claims of a group that is being made",
        lambda: _two_learners_and("a"),
        (
            generated("b", group="g", sample=1, of=3),
            generation_failed("c", group="g", sample=2, of=3),
            rewarded("a"),
            reward_failed("b"),
            claim("u0", "a", "b", "c"),
        ),
    ),
    Scenario(
        "claims that take from each other",
        _two_learners,
        (
            claim("u0", "t0", "t1"),
            claim("u1", "t0", "t1", learner="other"),
            discarded("t0"),
            quarantined("t1"),
            reserve("u2", "t0", learner=LEARNER),
        ),
    ),
    Scenario(
        "rows that leave an update when they are admitted",
        lambda: _stale_by_now(),
        (
            admit("u0", {"t0": 0.1}, by=2),
            reserve("u1", "t0", learner="other"),
            discarded("t0"),
            quarantined("t0"),
            expired("u0", "t0", basis=7),
        ),
    ),
    Scenario(
        "a learner ahead of the activation, even of the preparation, of its policy",
        lambda: open_run(gate=DriftGate.REQUIRED).ready("t0", "t1"),
        (
            reserve("u0", "t0"),
            admit("u0", {"t0": 0.1}, by=1),
            prepared(1),
            reserve("u1", "t1", by=policy(1)).of("another process of it"),
            activate(1),
        ),
    ),
    Scenario(
        "lag by ordinal, when an update before it ends otherwise",
        lambda: _ordinals(),
        (
            reserve("u1", "t1").also(Kind.ORDINAL, LEARNER),
            abort("u0", "t0", operator=True).also(Kind.ORDINAL, LEARNER),
            expired("u0", "t0", basis=6).also(Kind.ORDINAL, LEARNER),
            renewed("u0"),
            update_started("u1", "t1"),
        ),
    ),
    Scenario(
        "how an update that has begun to train can end",
        lambda: _holding(started=True),
        (
            commit("u0", "t0"),
            abort("u0", "t0", operator=True),
            expired("u0", "t0", basis=6),
            renewed("u0"),
            sealed("u0"),
            prepared(1, "u0"),
        ),
    ),
    Scenario(
        "how an update that holds can end",
        lambda: _holding(started=False),
        (
            update_started("u0", "t0"),
            abort("u0", "t0"),
            abort("u0", "t0", operator=True),
            expired("u0", "t0", basis=6),
            renewed("u0"),
            sealed("u0"),
        ),
    ),
    Scenario(
        "an update that grows while it could end",
        lambda: _holding(started=False),
        (
            reserve("u0", "t1", part=1),
            admit("u0", {"t0": 0.0, "t1": 0.0}),
            abort("u0", "t0", "t1", operator=True, disposition=AbortDisposition.QUARANTINE),
            abort("u0", "t0", "t1", operator=True),
            expired("u0", "t0", basis=6),
            discarded("t1"),
        ),
    ),
    Scenario(
        "an update that ends while its rows are judged",
        lambda: _judging(),
        (
            admit("u0", {"t0": 0.9, "t1": 0.1}),
            abort("u0", "t0", "t1", operator=True),
            expired("u0", "t0", "t1", basis=6),
            renewed("u0"),
            update_started("u0", "t0", "t1"),
        ),
    ),
    Scenario(
        "a learner that starts anew while its old process goes on",
        _after_a_checkpoint,
        (
            started_learner(LEARNER, "second process", 3, C0, undoes=("u1", "u2")),
            started_learner(LEARNER, "a clone", 3, C0, undoes=("u1", "u2")),
            commit("u2", "t2", epoch=3),
            saved("c1", "u2", epoch=3),
            sealed("u1", epoch=3),
            activate(1, "u0", "u1"),
        ),
    ),
    Scenario(
        "a learner that starts anew, and others who want what it gives back",
        lambda: _after_a_checkpoint("other"),
        (
            started_learner(LEARNER, "second process", 4, C0, undoes=("u1", "u2")).also(Kind.TRAJECTORY, "t1", "t2"),
            reserve("u3", "t1", "t2", learner="other"),
            discarded("t1"),
            expired("u2", "t2", basis=0),
            abort("u2", "t2", operator=True),
        ),
    ),
    Scenario(
        "policies that are made of each other",
        open_run,
        (
            prepared(1),
            prepared(2, parent=1),
            abandoned(1),
            prepared(3, rollback_of=1),
            generated("t8", 1),
        ),
    ),
    Scenario(
        "an activation, and what it waits for",
        lambda: _prepared_for(("w0",)),
        (
            activate(1, workers=("w0",)),
            ack("w0", 1),
            written(1),
            abandoned(1),
            reserve("u1", "t9", spans=(1,), by=policy(1)),
            rewarded("t9"),
        ),
    ),
    Scenario(
        "activations of two policies, one of them told of in two ways",
        lambda: _prepared_for(()),
        (
            activate(1),
            activate(2),
            prepared(2, parent=1, committed=True),
            written(1),
            prepared(2, parent=0, artifact_hash="other-weights"),
        ),
    ),
    Scenario(
        "two accounts of what is written",
        open_run,
        (
            prepared(1, committed=False),
            written(1),
            written(1, "other-weights"),
            ack("w0", 1),
            generated("t8", policy(1, "other-weights")),
        ),
    ),
    Scenario(
        "an activation, and the commit of what is in it",
        lambda: _prepared_in("u0"),
        (
            activate(1, "u0"),
            commit("u0", "t0"),
            abort("u0", "t0", operator=True),
            generated("t9", 1),
            reserve("u1", "t9", spans=(1,), by=policy(1)).of("another trainer"),
            rewarded("t9"),
        ),
    ),
    Scenario(
        "a generation that began by a policy that is given up",
        lambda: _prepared_for(()),
        (
            dispatched("t5", 1),
            abandoned(1),
            generated("t5", 0).also(Kind.POLICY, "1"),
            generation_failed("t6", 1),
            dispatched("t6", 1),
        ),
    ),
    Scenario(
        "more trajectories than there is room for",
        lambda: open_run(max_live=1),
        tuple(
            step.also(Kind.ROOM, "live")
            for step in (generated("t0"), generated("t1"), dispatched("t2"), dispatched("t3"), discarded("t0"))
        ),
    ),
    Scenario(
        "more facts of one kind than there is room for",
        lambda: open_run(max_pending=1),
        tuple(
            step.also(Kind.ROOM, "pending")
            for step in (rewarded("t0"), rewarded("t1"), written(1), written(2), prepared(1, committed=False))
        ),
    ),
    Scenario(
        "more facts that wait than there is room for",
        lambda: open_run(max_pending=1),
        tuple(
            step.also(Kind.ROOM, "pending")
            for step in (
                rewarded("t0"),
                reward_failed("t1"),
                reward_failed("t2"),
                generated("t0"),
                prepared(1, committed=False),
                written(1),
            )
        ),
    ),
    Scenario(
        "an activation that raises the floor",
        lambda: _floor_at_hand(),
        tuple(
            step.also(Kind.ROOM, "horizon")
            for step in (
                activate(2, expected=1),
                generated("t3", 0),
                rewarded("t3"),
                reserve("u1", "t1"),
                dispatched("t5", 0),
            )
        ),
    ),
    Scenario(
        "a floor that rises over facts that wait",
        lambda: _floor_over_facts(),
        tuple(
            step.also(Kind.ROOM, "horizon")
            for step in (
                activate(1),
                activate(2, expected=1),
                rewarded("t3"),
                reward_failed("t4"),
                dispatched("t3", 0),
            )
        ),
        (activate(3, expected=2),),
    ),
    Scenario(
        "a floor that rises over what an update gives back",
        lambda: _floor_over_a_hold(),
        (
            activate(2, expected=1),
            commit("u0", "t0", dropped=["t0"], disposition=Disposition.RELEASE),
            abort("u1", "t1"),
            expired("u2", "t2", basis=10),
            generation_failed("t3", 0),
        ),
    ),
    Scenario(
        "a floor that rises over a group that lives on",
        lambda: _floor_over_a_group(),
        (
            activate(2, expected=1).also(Kind.ROOM, "horizon"),
            generation_failed("t1", 0, group="g", sample=1, of=2),
            generated("t2", 1, group="g2", sample=1, of=2).also(Kind.ROOM, "horizon"),
            rewarded("t2"),
        ),
    ),
    Scenario(
        "a floor that rises over what is undone, aborted or taken out",
        lambda: _floor_over_an_update(),
        tuple(
            step.also(Kind.ROOM, "horizon")
            for step in (
                activate(2, expected=1),
                started_learner(LEARNER, "second process", 3, undoes=("u0", "u1")),
                commit("u1", "t1", epoch=3),
                discarded("t2"),
                generation_failed("t3", 0),
            )
        ),
    ),
    Scenario(
        "a run that is being opened",
        History,
        (
            configured(),
            contract().of("worker"),
            generated("t0").of("worker"),
            rewarded("t0"),
            started_learner(LEARNER, "first process", 0),
            prepared(1),
        ),
    ),
    Scenario(
        "a run that is being opened, and its failures",
        History,
        (
            configured(),
            dispatched("t0").of("worker"),
            generation_failed("t1").of("worker"),
            reward_failed("t2"),
            written(1),
            ack("w0", 0),
        ),
    ),
    Scenario(
        "a run whose limits change",
        lambda: _limits_at_hand(),
        (
            configured(2, max_lag=0, workers=("w0",), contracts=(), rewards=(OTHER_RULE,), gate=DriftGate.OFF),
            generated("t2"),
            rewarded("t2"),
            reserve("u1", "t1", by=policy(1)),
            admit("u0", {"t0": 0.9}),
            activate(2, expected=1),
        ),
    ),
    Scenario(
        "a run whose limits change, told in two ways",
        open_run,
        (
            configured(2, max_live=1),
            configured(2, max_live=1, max_lag=2),
            generated("t0").also(Kind.ROOM, "live"),
            dispatched("t1").also(Kind.ROOM, "live"),
        ),
    ),
    Scenario(
        "a run that ends",
        lambda: _holding(started=True),
        (
            closed(),
            generated("t5"),
            started_learner(LEARNER, "second process", 3, undoes=("u0",)),
            configured(2, max_lag=2),
            configured(3, max_lag=3),
        ),
    ),
    Scenario(
        "a run that ends while a policy is activated and undone",
        lambda: _after_a_checkpoint(),
        (
            closed(),
            activate(1, "u0", "u1"),
            started_learner(LEARNER, "second process", 3, C0, undoes=("u1", "u2")),
            generated("t8", 1),
            rewarded("t8"),
        ),
    ),
    Scenario(
        "what is not registered or pinned, kept apart",
        lambda: History().opened(unpinned=Unpinned.APART),
        (
            contract("other tokenizer"),
            generated("t0", contract="other tokenizer"),
            rewarded("t0", rule=OTHER_RULE),
            generated("t1", contract="a third one"),
            rewarded("t1"),
        ),
    ),
    *(
        Scenario(
            f"a group of which one is kept apart, and taken out of use: {taken_out.record}",
            lambda: _pinned_rule(),
            (
                generated("t0", group="g", sample=0, of=2).also(Kind.APART, "g"),
                generated("t1", group="g", sample=1, of=2).also(Kind.APART, "g"),
                rewarded("t0", rule=OTHER_RULE).also(Kind.APART, "g"),
                rewarded("t1").also(Kind.APART, "g"),
                taken_out.also(Kind.APART, "g"),
            ),
        )
        for taken_out in (discarded("t0"), quarantined("t0"))
    ),
    Scenario(
        "what is not registered, refused",
        open_run,
        (
            contract("other tokenizer"),
            generated("t0", contract="other tokenizer"),
            rewarded("t0"),
            dispatched("t0"),
            generation_failed("t1"),
        ),
    ),
    *(
        Scenario(
            f"an observed trainer, which asks nobody: {taken_out.name}",
            lambda: open_run(enforcement=Enforcement.OBSERVE),
            (
                reserve("u0", "t0"),
                update_started("u0"),
                commit("u0", "t0", facts=True),
                generated("t0"),
                rewarded("t0").also(Kind.UPDATE, "u0"),
                taken_out.also(Kind.UPDATE, "u0"),
            ),
        )
        for taken_out in (discarded("t0"), quarantined("t0"))
    ),
)


def _pinned_rule() -> History:
    history = History()
    history.configured(rewards=(RULE,), unpinned=Unpinned.APART)
    history.contract()
    return history


def _two_learners_and(name: str) -> History:
    history = open_run()
    history.generated(name, group="g", sample=0, of=3)
    return history


def _stale_by_now() -> History:
    """An update that holds a trajectory two versions behind the policy that it will be admitted by."""
    history = open_run(max_lag=1, lease_ms=1000)
    history.learner("other", incarnation="another process")
    history.ready("t0")
    history.reserve("u0", "t0")
    history.prepared(1)
    history.prepared(2)
    return history


def _judging() -> History:
    history = open_run(lease_ms=1000).ready("t0", "t1")
    history.reserve("u0", "t0", "t1")
    return history


def _ordinals() -> History:
    history = open_run(lag_unit=LagUnit.ORDINAL, max_lag=0, gate=DriftGate.OFF, lease_ms=1000).ready("t0", "t1")
    history.reserve("u0", "t0")
    return history


def _prepared_for(workers: tuple[str, ...]) -> History:
    history = open_run(workers=workers)
    history.prepared(1, committed=False)
    history.generated("t9", 1)
    return history


def _prepared_in(update: str) -> History:
    history = open_run(gate=DriftGate.OFF).ready("t0")
    history.reserve(update, "t0")
    history.started(update)
    history.prepared(1, update)
    return history


def _floor_at_hand() -> History:
    history = open_run(horizon=1, gate=DriftGate.OFF).ready("t0", "t1")
    history.advanced(1)
    history.discarded("t0")
    history.prepared(2)
    return history


def _floor_over_facts() -> History:
    history = open_run(horizon=1)
    history.prepared(1)
    history.prepared(2)
    history.prepared(3)
    return history


def _floor_over_a_hold() -> History:
    history = open_run(horizon=1, gate=DriftGate.OFF, lease_ms=1000).ready("t0", "t1", "t2")
    history.reserve("u0", "t0")
    history.started("u0")
    history.reserve("u1", "t1")
    history.reserve("u2", "t2")
    history.advanced(1)
    history.prepared(2)
    return history


def _floor_over_a_group() -> History:
    history = open_run(horizon=1, gate=DriftGate.OFF)
    history.advanced(1)
    history.prepared(2)
    history.generated("t0", 1, group="g", sample=0, of=2)
    history.rewarded("t0")
    history.failed("t3", 0, group="g2", sample=0, of=2)
    return history


def _floor_over_an_update() -> History:
    history = open_run(horizon=1, gate=DriftGate.OFF).ready("t0", "t1", "t2")
    history.reserve("u0", "t0")
    history.started("u0")
    history.commit("u0", "t0")
    history.reserve("u1", "t1")
    history.started("u1")
    history.advanced(1)
    history.prepared(2)
    return history


def _limits_at_hand() -> History:
    history = open_run(max_lag=1).ready("t0", "t1")
    history.advanced(1)
    history.reserve("u0", "t0")
    history.prepared(2, parent=1)
    return history
