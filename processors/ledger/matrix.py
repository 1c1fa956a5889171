"""What each record does to each state: ONE table, that handlers look up and the reference page is generated from.

A row says what happens when a record meets a thing in a state and the checks of its own gate pass: it takes effect
(`accepted`, with the events of the lifecycle table where it changes a trajectory), it waits (`pending`), it repeats
(`duplicate`), or it is refused with a reason. A record that repeats what was accepted before, content and natural key
alike, is a duplicate in every state, before this table is asked; other content under the same key is a conflict.

Where a state alone decides a gate that the public rules have as well, its rows are what the gate says of that state.
"""

from dataclasses import dataclass
from enum import StrEnum

from rollbook.processors.gates import Held, artifact_gate, reserve_gate
from rollbook.processors.lifecycle import NONE, Event
from rollbook.processors.reasons import Reason
from rollbook.schemas.records.decision import Outcome
from rollbook.schemas.records.ledger import TrajectoryStatus as T
from rollbook.schemas.records.ledger import UpdateStatus as U


class StateOf(StrEnum):
    """The kinds of things that have states."""

    RUN = "run"
    CONTRACT = "contract"
    TRAJECTORY = "trajectory"
    LEARNER = "learner"
    UPDATE = "update"
    CHECKPOINT = "checkpoint"
    POLICY = "policy"
    WORKER = "worker"


class RunPhase(StrEnum):
    """What a run is, once it was configured."""

    OPEN = "open"
    CLOSED = "closed"


class ContractPhase(StrEnum):
    """A generation contract is registered or unknown."""

    KNOWN = "known"


class LearnerPhase(StrEnum):
    """What a learner is to a record that names an epoch (an unknown one's is 0); another epoch wins over fenced."""

    CURRENT = "current"
    FENCED = "fenced"
    OTHER_EPOCH = "another epoch"


class CheckpointPhase(StrEnum):
    """What a checkpoint is to a learner; foreign wins over orphaned."""

    STANDING = "standing"
    ORPHANED = "orphaned"
    FOREIGN = "foreign"


class PolicyPhase(StrEnum):
    """What a policy is: active wins over the others, then abandoned, then orphaned, then superseded."""

    PREPARED = "prepared"
    COMMITTED = "committed"
    ACTIVE = "active"
    SUPERSEDED = "superseded"
    ABANDONED = "abandoned"
    ORPHANED = "orphaned"


class LastReport(StrEnum):
    """A worker's last report, beside the one that comes."""

    OLDER = "older report"
    SAME = "same report"
    NEWER = "newer report"


@dataclass(frozen=True, slots=True)
class PolicyStanding:
    """What decides of a policy: its phase, whether its artifact is written, whether its version is below the active
    one. Only a trainer that observes makes active what is not written, or moves back to a lower version."""

    phase: PolicyPhase
    written: bool
    passed: bool

    def __str__(self) -> str:
        said = self.written or self.phase is PolicyPhase.PREPARED
        return f"{self.phase}{'' if said else ', unwritten'}{', passed' if self.passed else ''}"


def _policy_states() -> tuple[PolicyStanding, ...]:
    return tuple(
        PolicyStanding(phase, written, passed)
        for phase in PolicyPhase
        for written in (True, False)
        for passed in (False, True)
        if not (written and phase is PolicyPhase.PREPARED)
        and not (not written and phase is PolicyPhase.COMMITTED)
        and not (passed and phase is PolicyPhase.ACTIVE)
    )


POLICY_STATES = _policy_states()


@dataclass(frozen=True, slots=True)
class Row:
    """What becomes of a record in one state."""

    outcome: Outcome
    reason: Reason
    events: tuple[Event, ...] = ()


def _does(reason: Reason, *events: Event) -> Row:
    return Row(Outcome.ACCEPTED, reason, events)


def _no(reason: Reason) -> Row:
    return Row(Outcome.REJECTED, reason)


_WAITS = Row(Outcome.PENDING, Reason.PENDING)
_ILLEGAL = _no(Reason.ILLEGAL_TRANSITION)
_KNOWN = (T.GENERATED, T.GENERATION_FAILED, T.REWARDED, T.REWARD_FAILED, T.RESERVED, T.CONSUMED)
_ENDED = (T.DISCARDED, T.QUARANTINED, T.OFFLINE)
_OVER = (U.COMMITTED, U.ABORTED, U.ROLLED_BACK)
_ASKER, _ANOTHER = "the update that asks", "another update"


def _trajectories() -> dict[tuple[str, str], Row]:
    rows: dict[tuple[str, str], Row] = {}

    def on(record: str, states: tuple[str, ...], row: Row) -> None:
        rows.update({(record, str(state)): row for state in states})

    on("Dispatched", (NONE,), _does(Reason.DISPATCHED, Event.DISPATCHED))
    on("Dispatched", (T.DISPATCHED,), _no(Reason.CONFLICT))
    on("Dispatched", (*_KNOWN, *_ENDED), _does(Reason.LATE_DISPATCH))
    on("Generated", (NONE, T.DISPATCHED), _does(Reason.GENERATED, Event.GENERATED))
    on("Generated", (T.GENERATION_FAILED,), _ILLEGAL)
    on("Generated", tuple(s for s in (*_KNOWN, *_ENDED) if s is not T.GENERATION_FAILED), _no(Reason.CONFLICT))
    on("GenerationFailed", (NONE, T.DISPATCHED), _does(Reason.GENERATION_FAILED, Event.GENERATION_FAILED))
    on("GenerationFailed", (*_KNOWN, *_ENDED), _ILLEGAL)
    on("GenerationFailed", (T.GENERATION_FAILED,), _no(Reason.CONFLICT))
    on("RewardReady", (NONE, T.DISPATCHED), _WAITS)
    on("RewardReady", (T.GENERATED, T.REWARD_FAILED), _does(Reason.REWARDED, Event.REWARD_READY))
    on("RewardReady", (T.REWARDED, T.RESERVED, T.CONSUMED), _no(Reason.CONFLICT))
    on("RewardReady", (T.GENERATION_FAILED, *_ENDED), _ILLEGAL)
    on("RewardFailed", (NONE, T.DISPATCHED), _WAITS)
    on("RewardFailed", (T.GENERATED,), _does(Reason.REWARD_FAILED, Event.REWARD_FAILED))
    on("RewardFailed", (T.REWARD_FAILED,), _does(Reason.REWARD_FAILED))
    on("RewardFailed", (T.GENERATION_FAILED, T.REWARDED, T.RESERVED, T.CONSUMED, *_ENDED), _ILLEGAL)
    for record, reason, event in (
        ("Discarded", Reason.DISCARDED, Event.DISCARD),
        ("Quarantine", Reason.QUARANTINED, Event.QUARANTINE),
    ):
        on(record, (NONE,), _no(Reason.MISSING_ROLLOUT))
        on(record, (T.DISPATCHED, T.GENERATED, T.REWARD_FAILED, T.REWARDED), _does(reason, event))
        on(record, (T.GENERATION_FAILED, T.RESERVED, T.CONSUMED, *_ENDED), _ILLEGAL)
    rows["Discarded", T.DISCARDED] = rows["Quarantine", T.QUARANTINED] = Row(Outcome.DUPLICATE, Reason.DUPLICATE)
    for state in (NONE, *T):
        refusal = reserve_gate(None if state == NONE else Held(state, 0, _ANOTHER), None, _ASKER)
        rows["Reserve", str(state)] = _does(Reason.RESERVED, Event.RESERVE) if refusal is None else _no(refusal)
    on("Admit", (NONE, T.DISPATCHED, *_KNOWN, *_ENDED), _no(Reason.NOT_RESERVED))
    on("Admit", (T.RESERVED,), _does(Reason.OK))
    return rows


def _updates() -> dict[tuple[str, str], Row]:
    rows: dict[tuple[str, str], Row] = {}

    def on(record: str, unknown: Row, opened: Row, started: Row, ended: Row | None = None) -> None:
        rows.update({(record, NONE): unknown, (record, U.OPEN): opened, (record, U.STARTED): started})
        rows.update({(record, state): ended or _no(Reason.UPDATE_ENDED) for state in _OVER})

    no_holder, fine = _no(Reason.NOT_HOLDER), _does(Reason.OK)
    on("Reserve", fine, fine, _no(Reason.UPDATE_STARTED))
    on("Admit", no_holder, fine, fine)
    on("UpdateStarted", no_holder, fine, Row(Outcome.DUPLICATE, Reason.DUPLICATE))
    on("Commit", no_holder, _no(Reason.NOT_STARTED), fine)
    on(UNRESERVED_COMMIT, *(_does(Reason.UNRESERVED),) * 3)
    rows[UNRESERVED_COMMIT, U.ABORTED] = _does(Reason.UNRESERVED)
    on("Renew", no_holder, fine, fine)
    on("LeaseExpired", _no(Reason.UNKNOWN_UPDATE), _does(Reason.LEASE_EXPIRED), _does(Reason.IN_DOUBT))
    on("Abort", _does(Reason.UPDATE_FAILED), _does(Reason.UPDATE_FAILED), _no(Reason.UPDATE_IN_DOUBT))
    on(OPERATORS_ABORT, _no(Reason.UNKNOWN_UPDATE), _does(Reason.OPERATOR), _does(Reason.OPERATOR))
    on("RecordingSealed", no_holder, _no(Reason.NOT_STARTED), fine)
    rows["RecordingSealed", U.COMMITTED] = fine
    rows.update({("CheckpointSaved", state): _no(Reason.NOT_COMMITTED) for state in (NONE, *U)})
    rows["CheckpointSaved", U.COMMITTED] = fine
    return rows


def _policies() -> dict[tuple[str, str], Row]:
    fine, again = _does(Reason.OK), Row(Outcome.DUPLICATE, Reason.DUPLICATE)
    rows: dict[tuple[str, str], Row] = {
        ("PolicyPrepared", NONE): fine,
        ("PolicyCommitted", NONE): _WAITS,
        ("PolicyAbandoned", NONE): _no(Reason.UNKNOWN_VERSION),
        ("Activate", NONE): _no(Reason.UNKNOWN_VERSION),
        ("ActivationAck", NONE): _WAITS,
    }
    abandons = {PolicyPhase.ACTIVE: _no(Reason.POLICY_ACTIVE), PolicyPhase.ABANDONED: again}
    for state in POLICY_STATES:
        rows["PolicyPrepared", str(state)] = _no(Reason.CONFLICT)
        rows["PolicyCommitted", str(state)] = again if state.written else fine
        rows["PolicyAbandoned", str(state)] = abandons.get(state.phase, fine)
        rows["Activate", str(state)] = _activates(state)
        rows["ActivationAck", str(state)] = fine
    return rows


def _activates(state: PolicyStanding) -> Row:
    version, active = (1, 1) if state.phase is PolicyPhase.ACTIVE else (1, 2) if state.passed else (1, 0)
    spoilt = {PolicyPhase.ABANDONED: Reason.POLICY_ABANDONED, PolicyPhase.ORPHANED: Reason.POLICY_ORPHANED}
    refusal = artifact_gate(state.written, version, active) or spoilt.get(state.phase)
    return _does(Reason.ACTIVATED) if refusal is None else _no(refusal)


def _runs() -> dict[tuple[str, str], Row]:
    rows = {(record, str(state)): _does(Reason.OK) for record in _BY_THE_RUN for state in (NONE, RunPhase.OPEN)}
    rows |= {(record, NONE): _no(Reason.RUN_NOT_CONFIGURED) for record in _BY_THE_RUN if record != "RunConfigured"}
    return rows | {(record, RunPhase.CLOSED): _no(Reason.RUN_CLOSED) for record in _BY_THE_RUN}


def _contracts() -> dict[tuple[str, str], Row]:
    return {
        ("GenerationContract", NONE): _does(Reason.OK),
        ("GenerationContract", ContractPhase.KNOWN): Row(Outcome.DUPLICATE, Reason.DUPLICATE),
    }


def _learners() -> dict[tuple[str, str], Row]:
    states = (NONE, *LearnerPhase)
    rows = {(record, str(state)): _no(Reason.LEARNER_FENCED) for record in _OF_A_LEARNER for state in states}
    rows |= {(record, LearnerPhase.CURRENT): _does(Reason.OK) for record in _OF_A_LEARNER}
    rows |= {("LearnerStarted", str(state)): _does(Reason.OK) for state in states}
    rows["LearnerStarted", LearnerPhase.OTHER_EPOCH] = _no(Reason.EPOCH_CONFLICT)
    return rows


def _checkpoints() -> dict[tuple[str, str], Row]:
    rows = {("CheckpointSaved", str(phase)): _no(Reason.CONFLICT) for phase in CheckpointPhase}
    rows["CheckpointSaved", NONE] = _does(Reason.OK)
    rows["LearnerStarted", NONE] = _no(Reason.UNKNOWN_CHECKPOINT)
    rows["LearnerStarted", CheckpointPhase.STANDING] = _does(Reason.OK)
    rows["LearnerStarted", CheckpointPhase.ORPHANED] = _no(Reason.CHECKPOINT_ORPHANED)
    rows["LearnerStarted", CheckpointPhase.FOREIGN] = _no(Reason.FOREIGN_CHECKPOINT)
    return rows


def _workers() -> dict[tuple[str, str], Row]:
    return {
        ("ActivationAck", NONE): _does(Reason.OK),
        ("ActivationAck", LastReport.OLDER): _does(Reason.OK),
        ("ActivationAck", LastReport.SAME): _no(Reason.CONFLICT),
        ("ActivationAck", LastReport.NEWER): _no(Reason.STALE_ACK),
    }


OPERATORS_ABORT = "Abort by an operator"
UNRESERVED_COMMIT = "Commit, unreserved"
ANY_OTHER = "any other record"
_BY_THE_RUN = ("RunConfigured", "RunClosed", ANY_OTHER)
_OF_A_LEARNER = (
    *("Reserve", "Admit", "UpdateStarted", "Commit", "Renew", "Abort", "RecordingSealed"),
    "CheckpointSaved",
)

STATES: dict[StateOf, tuple[str, ...]] = {
    StateOf.RUN: (NONE, *RunPhase),
    StateOf.CONTRACT: (NONE, *ContractPhase),
    StateOf.TRAJECTORY: (NONE, *T),
    StateOf.LEARNER: (NONE, *LearnerPhase),
    StateOf.UPDATE: (NONE, *U),
    StateOf.CHECKPOINT: (NONE, *CheckpointPhase),
    StateOf.POLICY: (NONE, *map(str, POLICY_STATES)),
    StateOf.WORKER: (NONE, *LastReport),
}
"""Every state that a thing of each kind can be in; `none` is the unknown id."""

MATRIX: dict[StateOf, dict[tuple[str, str], Row]] = {
    StateOf.RUN: _runs(),
    StateOf.CONTRACT: _contracts(),
    StateOf.TRAJECTORY: _trajectories(),
    StateOf.LEARNER: _learners(),
    StateOf.UPDATE: _updates(),
    StateOf.CHECKPOINT: _checkpoints(),
    StateOf.POLICY: _policies(),
    StateOf.WORKER: _workers(),
}
"""(record, state) to row, by what the state is of."""


def row(of: StateOf, record: str, state: object | None) -> Row:
    """The row of a record in a state (None: unknown). KeyError is a defect: every pair has one."""
    return MATRIX[of][record, NONE if state is None else str(state)]


def row_of_run(record: str, state: RunPhase | None) -> Row:
    """The row of a record that meets its run: one for all that is not about the run itself."""
    return row(StateOf.RUN, record if (record, NONE) in MATRIX[StateOf.RUN] else ANY_OTHER, state)
