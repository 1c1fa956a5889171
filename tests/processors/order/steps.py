"""One record of a small history, sent whenever its turn comes: its type, its producer, what it is about, and how to
send it.

A step's record is the same wherever it stands, but for what a trainer reads in decisions before it writes: the
revisions that it reserves at, and what its update holds.
"""

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, replace
from enum import StrEnum
from typing import TypeAlias

from rollbook.schemas.records.common import PolicyRef
from rollbook.schemas.records.decision import Decision
from rollbook.schemas.records.policy import AckFailure
from rollbook.schemas.records.rollout import Purpose
from rollbook.schemas.records.run import RewardIdentity
from rollbook.schemas.records.update import AbortDisposition, Checkpoint, Disposition, ReserveMode
from rollbook.tests.processors import parts
from rollbook.tests.processors.history import LEARNER, History
from rollbook.tests.processors.parts import policy


class Kind(StrEnum):
    """The kinds of things that two records can both be about."""

    TRAJECTORY = "trajectory"
    UPDATE = "update"
    LEARNER = "learner"
    POLICY = "policy"
    WORKER = "worker"
    CONTRACT = "contract"
    RUN = "run"
    ORDINAL = "ordinal"
    """Of a learner whose run counts lag by ordinal."""
    APART = "apart"
    """Of a group whose members may be kept apart."""
    ROOM = "room"
    """Of a run that is near max_live, max_pending or its horizon."""


Thing: TypeAlias = tuple[Kind, str]
Act: TypeAlias = Callable[[History], Decision]


@dataclass(frozen=True, slots=True)
class Step:
    """One record. Steps `by` the same producer keep their order; those by none (facts, mostly) come in any. One that
    `reads` depends on what was decided before it."""

    name: str
    record: str
    about: frozenset[Thing]
    act: Act
    by: str = ""
    reads: bool = False

    def also(self, kind: Kind, *names: str) -> "Step":
        """The step, about more than its record says."""
        return replace(self, about=self.about | {(kind, name) for name in names})

    def of(self, producer: str) -> "Step":
        """The step, in the order of its producer."""
        return replace(self, by=producer)


def _step(
    record: str, name: str, act: Act, things: Mapping[Kind, Iterable[object]], by: str = "", reads: bool = False
) -> Step:
    about = {(kind, str(one)) for kind, ones in things.items() for one in ones}
    return Step(f"{record} {name}".strip(), record, frozenset({*about, (Kind.RUN, "")}), act, by, reads)


def dispatched(name: str, version: int = 0, group: str | None = None, sample: int = 0, of: int = 1) -> Step:
    """Dispatched."""
    return _step(
        "Dispatched",
        name,
        lambda h: h.dispatched(name, version, group=group, sample=sample, of=of),
        {Kind.TRAJECTORY: [name], Kind.POLICY: [version]},
    )


def generated(
    name: str,
    *versions: int | PolicyRef,
    group: str | None = None,
    sample: int = 0,
    of: int = 1,
    contract: str = "tokenizer",
    active_tokens: int | None = None,
    purpose: Purpose = Purpose.TRAIN,
) -> Step:
    """Generated, under the contract of a tokenizer."""
    wrote = versions or (0,)
    return _step(
        "Generated",
        name,
        lambda h: h.generated(
            name,
            *wrote,
            group=group,
            sample=sample,
            of=of,
            contract=parts.contract_named(contract),
            active_tokens=active_tokens,
            purpose=purpose,
        ),
        {
            Kind.TRAJECTORY: [name],
            Kind.POLICY: [ref.version if isinstance(ref, PolicyRef) else ref for ref in wrote],
            Kind.CONTRACT: [contract],
        },
    )


def generation_failed(name: str, version: int = 0, group: str | None = None, sample: int = 0, of: int = 1) -> Step:
    """GenerationFailed."""
    return _step(
        "GenerationFailed",
        name,
        lambda h: h.failed(name, version, group=group, sample=sample, of=of),
        {Kind.TRAJECTORY: [name], Kind.POLICY: [version]},
    )


def rewarded(*names: str, reward: float = 1.0, rule: RewardIdentity = parts.RULE) -> Step:
    """RewardReady."""
    return _step(
        "RewardReady",
        " ".join(names),
        lambda h: h.rewarded(*names, reward=reward, rule=rule),
        {Kind.TRAJECTORY: names},
    )


def reward_failed(name: str) -> Step:
    """RewardFailed."""
    return _step("RewardFailed", name, lambda h: h.reward_failed(name), {Kind.TRAJECTORY: [name]})


def discarded(*names: str) -> Step:
    """Discarded."""
    return _step("Discarded", " ".join(names), lambda h: h.discarded(*names), {Kind.TRAJECTORY: names})


def quarantined(*names: str) -> Step:
    """Quarantine."""
    return _step("Quarantine", " ".join(names), lambda h: h.quarantined(*names), {Kind.TRAJECTORY: names})


def contract(tokenizer: str = "tokenizer") -> Step:
    """GenerationContract."""
    return _step("GenerationContract", tokenizer, lambda h: h.contract(tokenizer), {Kind.CONTRACT: [tokenizer]})


def started_learner(
    learner: str, process: str, expected: int, checkpoint: Checkpoint | None = None, undoes: Iterable[str] = ()
) -> Step:
    """LearnerStarted; `undoes` names the updates that it may abort or roll back."""
    return _step(
        "LearnerStarted",
        process,
        lambda h: h.learner(learner, incarnation=process, expected=expected, checkpoint=checkpoint),
        {Kind.LEARNER: [learner], Kind.UPDATE: undoes},
    )


def reserve(
    update: str,
    *names: str,
    spans: Iterable[int] = (0,),
    part: int = 0,
    mode: ReserveMode = ReserveMode.AVAILABLE,
    by: PolicyRef | None = None,
    learner: str = LEARNER,
    epoch: int | None = None,
) -> Step:
    """Reserve by name of trajectories of these versions, at their present revisions."""
    own = by or policy(0)
    return _step(
        "Reserve",
        update,
        lambda h: h.reserve(update, *names, part=part, mode=mode, by=own, learner=learner, epoch=epoch),
        {Kind.TRAJECTORY: names, Kind.UPDATE: [update], Kind.LEARNER: [learner], Kind.POLICY: {*spans, own.version}},
        learner,
        reads=True,
    )


def claim(update: str, *members: str, spans: Iterable[int] = (0,), learner: str = LEARNER) -> Step:
    """Reserve by a claim of one group; `members` are those of all groups that it could take."""
    return _step(
        "Reserve",
        update,
        lambda h: h.claim(update, 1, by=policy(0), learner=learner),
        {Kind.TRAJECTORY: members, Kind.UPDATE: [update], Kind.LEARNER: [learner], Kind.POLICY: spans},
        learner,
    )


def admit(
    update: str, drifts: Mapping[str, float], *, spans: Iterable[int] = (0,), by: int = 0, learner: str = LEARNER
) -> Step:
    """Admit of what the update holds at that moment, or of all where it holds nothing."""

    def act(history: History) -> Decision:
        held = {name: drift for name, drift in drifts.items() if name in held_by(history, update)}
        return history.admit(update, held or drifts, by=policy(by), learner=learner)

    return _step(
        "Admit",
        update,
        act,
        {Kind.TRAJECTORY: drifts, Kind.UPDATE: [update], Kind.LEARNER: [learner], Kind.POLICY: {*spans, by}},
        learner,
        reads=True,
    )


def update_started(update: str, *names: str, learner: str = LEARNER, epoch: int | None = None) -> Step:
    """UpdateStarted."""
    return _step(
        "UpdateStarted",
        update,
        lambda h: h.started(update, learner=learner, epoch=epoch),
        {Kind.TRAJECTORY: names, Kind.UPDATE: [update], Kind.LEARNER: [learner]},
        learner,
    )


def commit(
    update: str,
    *names: str,
    dropped: Iterable[str] = (),
    disposition: Disposition = Disposition.RELEASE,
    learner: str = LEARNER,
    epoch: int | None = None,
    facts: bool = False,
) -> Step:
    """Commit of what the update holds at that moment; with `facts`, of what it names, as an observed trainer does."""
    out = tuple(dropped)

    def act(history: History) -> Decision:
        held = held_by(history, update) if not facts else (*names, *out)
        return history.commit(
            update,
            *(name for name in held if name not in out),
            dropped={name: disposition for name in held if name in out},
            learner=learner,
            epoch=epoch,
        )

    return _step(
        "Commit",
        update,
        act,
        {Kind.TRAJECTORY: (*names, *out), Kind.UPDATE: [update], Kind.LEARNER: [learner]},
        learner,
        reads=True,
    )


def abort(
    update: str,
    *names: str,
    operator: bool = False,
    disposition: AbortDisposition = AbortDisposition.RELEASE,
    learner: str = LEARNER,
    epoch: int | None = None,
) -> Step:
    """Abort by the learner, or by an operator."""
    return _step(
        "Abort",
        f"{update} by {'an operator' if operator else learner}",
        lambda h: h.abort(update, operator=operator, disposition=disposition, learner=learner, epoch=epoch),
        {Kind.TRAJECTORY: names, Kind.UPDATE: [update], Kind.LEARNER: [learner]},
        "" if operator else learner,
    )


def renewed(update: str, learner: str = LEARNER, epoch: int | None = None) -> Step:
    """Renew; from a thread of its own, so in no order with the trainer's other records."""
    return _step(
        "Renew",
        update,
        lambda h: h.renewed(update, learner=learner, epoch=epoch),
        {Kind.UPDATE: [update], Kind.LEARNER: [learner]},
    )


def expired(update: str, *names: str, basis: int) -> Step:
    """LeaseExpired."""
    return _step(
        "LeaseExpired",
        update,
        lambda h: h.expired(update, basis),
        {Kind.TRAJECTORY: names, Kind.UPDATE: [update], Kind.LEARNER: [LEARNER]},
    )


def sealed(update: str, rank: int = 0, learner: str = LEARNER, epoch: int | None = None) -> Step:
    """RecordingSealed; each rank writes by itself."""
    return _step(
        "RecordingSealed",
        f"{update} rank {rank}",
        lambda h: h.sealed(update, rank, learner=learner, epoch=epoch),
        {Kind.UPDATE: [update], Kind.LEARNER: [learner]},
    )


def saved(checkpoint: str, last: str, learner: str = LEARNER, epoch: int | None = None) -> Step:
    """CheckpointSaved."""
    return _step(
        "CheckpointSaved",
        checkpoint,
        lambda h: h.saved(checkpoint, last, learner=learner, epoch=epoch),
        {Kind.UPDATE: [last], Kind.LEARNER: [learner]},
        learner,
    )


def prepared(
    version: int,
    *updates: str,
    parent: int = 0,
    rollback_of: int | None = None,
    committed: bool = True,
    artifact_hash: str | None = None,
) -> Step:
    """PolicyPrepared."""
    sources = [parent] if rollback_of is None else [parent, rollback_of]
    return _step(
        "PolicyPrepared",
        str(version),
        lambda h: h.prepared(
            version,
            *updates,
            parent=parent,
            rollback_of=rollback_of,
            committed=committed,
            artifact_hash=artifact_hash,
        ),
        {Kind.POLICY: [version, *sources], Kind.UPDATE: updates},
    )


def written(version: int, artifact_hash: str | None = None) -> Step:
    """PolicyCommitted."""
    return _step("PolicyCommitted", str(version), lambda h: h.written(version, artifact_hash), {Kind.POLICY: [version]})


def abandoned(version: int) -> Step:
    """PolicyAbandoned."""
    return _step("PolicyAbandoned", str(version), lambda h: h.abandoned(version), {Kind.POLICY: [version]})


def ack(
    worker: str,
    version: int,
    *,
    incarnation: int = 0,
    seq: int = 0,
    artifact_hash: str | None = None,
    failure: AckFailure | None = None,
) -> Step:
    """ActivationAck."""
    return _step(
        "ActivationAck",
        f"{worker} {version}",
        lambda h: h.ack(worker, version, artifact_hash, incarnation=incarnation, seq=seq, failure=failure),
        {Kind.WORKER: [worker], Kind.POLICY: [version]},
    )


def activate(version: int, *updates: str, expected: int = 0, workers: Iterable[str] = ()) -> Step:
    """Activate; `updates` are those in its weights, `workers` those whose acks it needs."""
    return _step(
        "Activate",
        str(version),
        lambda h: h.activate(version, expected=expected),
        {Kind.POLICY: [version, expected], Kind.UPDATE: updates, Kind.WORKER: workers},
    )


def configured(version: int = 1, **settings: object) -> Step:
    """RunConfigured."""
    return _step("RunConfigured", str(version), lambda h: h.configured(version, **settings), {})  # type: ignore[arg-type]


def closed() -> Step:
    """RunClosed."""
    return _step("RunClosed", "", lambda h: h.closed(), {})


def held_by(history: History, update: str) -> tuple[str, ...]:
    """What an update holds at this moment."""
    found = history.run.updates.get(update)
    return () if found is None else tuple(sorted(found.held))
