"""Pages of the states: the lifecycle of a trajectory, and what each record does in each state."""

from rollbook.infra.reference.markdown import code, page, table
from rollbook.processors.ledger.matrix import MATRIX, STATES, Row, StateOf
from rollbook.processors.lifecycle import LIVE, NONE, PENDING, TRANSITIONS, next_state
from rollbook.schemas.records.decision import Outcome
from rollbook.schemas.records.ledger import TrajectoryStatus

_SAID = {
    StateOf.RUN: "Before its first `RunConfigured`, which is `none` here, a run refuses everything, and after its end "
    "too. What it accepts is judged by the tables below.",
    StateOf.CONTRACT: "A contract is registered once, under its hash.",
    StateOf.TRAJECTORY: "A record with several items is judged item by item. The states are those of the "
    "[lifecycle](lifecycle.md).",
    StateOf.LEARNER: "For a record that names one of the learner's epochs; that of an unknown learner is 0. "
    "`fenced` is what an operator's abort of a started update leaves. What passes is judged by the update or the "
    "checkpoint that it is about.",
    StateOf.UPDATE: "For the records of its own learner, in its epoch; `CheckpointSaved` by the last update that it "
    "contains.",
    StateOf.CHECKPOINT: "A checkpoint is `foreign` to every learner but its own, and `orphaned` when an update that it "
    "contains is undone.",
    StateOf.POLICY: "A policy is `active` before all else, then `abandoned`, `orphaned`, `superseded`; its artifact is "
    "`unwritten` before `PolicyCommitted`, of a `prepared` one always; it is `passed` when its version is below the "
    "active one. Only where a run observes does a policy become active unwritten, or a lower version after a higher.",
    StateOf.WORKER: "By the worker's last report: its incarnation and number beside those of the one that comes.",
}


def lifecycle() -> str:
    """The states of a trajectory: diagram and table."""
    return page(
        "The lifecycle of a trajectory",
        "From `processors/lifecycle.py`. A pair of state and event that is not listed is an illegal transition. A "
        "record changes a trajectory at most once, to its final state, and raises its revision by one. A failure is a "
        "state of its own, never a reward of 0.",
        "![The states of a trajectory and what leads from one to another](../images/lifecycle.svg)",
        table(
            ("state", "event", "next state"),
            ((code(state), code(event), code(after)) for (state, event), after in TRANSITIONS.items()),
        ),
        f"`{NONE}` is the state of a trajectory that nobody has reported. A group waits for members that are "
        f"{_listed(PENDING)}. {_listed(LIVE)} count against `max_live`.",
    )


def _listed(states: frozenset[TrajectoryStatus]) -> str:
    return ", ".join(code(state) for state in TrajectoryStatus if state in states)


def records_and_states() -> str:
    """What becomes of each record in each state of what it is about."""
    blocks = []
    for of in StateOf:
        records = list(dict.fromkeys(record for record, _ in MATRIX[of]))
        rows = (
            (code(state), *(_told(MATRIX[of].get((record, state)), state) for record in records))
            for state in STATES[of]
        )
        blocks += [f"## By the state of the {of}", _SAID[of], table(("state", *records), rows)]
    return page(
        "Records and states",
        "From `processors/ledger/matrix.py`: what becomes of a record that meets a thing in a state, once its own "
        "gates pass. In bold: it takes effect, with the state that follows. A record that repeats what was accepted "
        "before, content and natural key alike, is a duplicate in every state; other content under the same key is a "
        f"conflict. `{NONE}` is the unknown id. The reasons are explained in [reasons](reasons.md).",
        *blocks,
    )


def _told(row: Row | None, state: str) -> str:
    if row is None:
        return ""
    if row.outcome is not Outcome.ACCEPTED:
        same = row.outcome.value == row.reason.value
        return row.outcome.value if same else f"{row.outcome} {code(row.reason)}"
    after = state
    for event in row.events:
        after = next_state(after, event)
    return f"**accepted** {code(row.reason)}" + (f" → {after}" if row.events else "")
