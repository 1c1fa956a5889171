"""What each record does to each state: ONE table, that handlers look up and the reference page is generated from.

A row says what happens when a record meets a thing in a state and the checks of its own gate pass: it takes effect
(`accepted`, with the events of the lifecycle table where it changes a trajectory), it waits (`pending`), it repeats
(`duplicate`), or it is refused with a reason. A record that repeats what was accepted before, content and natural key
alike, is a duplicate in every state, before this table is asked; other content under the same key is a conflict.
"""

from dataclasses import dataclass
from enum import StrEnum

from rollbook.processors.lifecycle import NONE, Event
from rollbook.processors.reasons import Reason
from rollbook.schemas.records.decision import Outcome
from rollbook.schemas.records.ledger import TrajectoryStatus as T
from rollbook.schemas.records.ledger import UpdateStatus as U


class StateOf(StrEnum):
    """The kinds of things that have states."""

    TRAJECTORY = "trajectory"
    UPDATE = "update"
    POLICY = "policy"


class PolicyPhase(StrEnum):
    """What a policy is, for this table; orphaned and abandoned win over the others."""

    PREPARED = "prepared"
    COMMITTED = "committed"
    ACTIVE = "active"
    SUPERSEDED = "superseded"
    ABANDONED = "abandoned"
    ORPHANED = "orphaned"


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
    on("Reserve", (NONE,), _no(Reason.MISSING_ROLLOUT))
    on("Reserve", (T.DISPATCHED, *_KNOWN, *_ENDED), _no(Reason.NOT_REWARDED))
    on("Reserve", (T.REWARDED,), _does(Reason.RESERVED, Event.RESERVE))
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
    on("Renew", no_holder, fine, fine)
    on("LeaseExpired", _no(Reason.UNKNOWN_UPDATE), _does(Reason.LEASE_EXPIRED), _does(Reason.IN_DOUBT))
    on("Abort", _does(Reason.UPDATE_FAILED), _does(Reason.UPDATE_FAILED), _no(Reason.UPDATE_IN_DOUBT))
    on(OPERATORS_ABORT, _no(Reason.UNKNOWN_UPDATE), _does(Reason.OPERATOR), _does(Reason.OPERATOR))
    on("RecordingSealed", no_holder, _no(Reason.NOT_STARTED), fine)
    rows["RecordingSealed", U.COMMITTED] = fine
    return rows


def _policies() -> dict[tuple[str, str], Row]:
    P = PolicyPhase  # noqa: N806  a short name for a table
    fine, again = _does(Reason.OK), Row(Outcome.DUPLICATE, Reason.DUPLICATE)
    known = tuple(P)
    rows: dict[tuple[str, str], Row] = {("PolicyPrepared", NONE): fine, ("PolicyCommitted", NONE): _WAITS}
    rows.update({("PolicyPrepared", phase): _no(Reason.CONFLICT) for phase in known})
    rows.update({("PolicyCommitted", phase): again for phase in known})
    rows["PolicyCommitted", P.PREPARED] = fine
    rows.update({("PolicyAbandoned", phase): fine for phase in known})
    rows["PolicyAbandoned", NONE] = _no(Reason.UNKNOWN_VERSION)
    rows["PolicyAbandoned", P.ACTIVE] = _no(Reason.POLICY_ACTIVE)
    rows["PolicyAbandoned", P.ABANDONED] = again
    rows["Activate", NONE] = _no(Reason.UNKNOWN_VERSION)
    rows["Activate", P.PREPARED] = _no(Reason.ARTIFACT_NOT_COMMITTED)
    rows["Activate", P.COMMITTED] = _does(Reason.ACTIVATED)
    rows["Activate", P.ACTIVE] = rows["Activate", P.SUPERSEDED] = _no(Reason.NON_MONOTONIC_VERSION)
    rows["Activate", P.ABANDONED] = _no(Reason.POLICY_ABANDONED)
    rows["Activate", P.ORPHANED] = _no(Reason.POLICY_ORPHANED)
    return rows


OPERATORS_ABORT = "Abort by an operator"
UNRESERVED_COMMIT = "Commit, unreserved"

MATRIX: dict[StateOf, dict[tuple[str, str], Row]] = {
    StateOf.TRAJECTORY: _trajectories(),
    StateOf.UPDATE: _updates(),
    StateOf.POLICY: _policies(),
}
"""(record, state) to row, by what the state is of; `none` is the unknown id."""


def row(of: StateOf, record: str, state: str | None) -> Row:
    """The row of a record in a state (None: unknown). KeyError is a defect: every pair has one."""
    return MATRIX[of][record, state or NONE]
