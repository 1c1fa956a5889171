"""Pages of the states: the lifecycle of a trajectory, and what each record does in each state."""

from rollbook.infra.reference.markdown import code, fenced, page, table
from rollbook.processors.ledger.matrix import MATRIX, PolicyPhase, Row, StateOf
from rollbook.processors.lifecycle import LIVE, NONE, PENDING, TRANSITIONS, next_state
from rollbook.schemas.records.decision import Outcome
from rollbook.schemas.records.ledger import TrajectoryStatus, UpdateStatus

_STATES: dict[StateOf, tuple[str, ...]] = {
    StateOf.TRAJECTORY: (NONE, *TrajectoryStatus),
    StateOf.UPDATE: (NONE, *UpdateStatus),
    StateOf.POLICY: (NONE, *PolicyPhase),
}


def lifecycle() -> str:
    """The states of a trajectory: diagram and table."""
    return page(
        "The lifecycle of a trajectory",
        "From `processors/lifecycle.py`. A pair of state and event that is not listed is an illegal transition. A "
        "record changes a trajectory at most once, to its final state, and raises its revision by one. A failure is a "
        "state of its own, never a reward of 0.",
        fenced("mermaid", ("stateDiagram-v2", *(f"    {line}" for line in _arrows()))),
        table(
            ("state", "event", "next state"),
            ((code(state), code(event), code(after)) for (state, event), after in TRANSITIONS.items()),
        ),
        f"`{NONE}` is the state of a trajectory that nobody has reported. A group waits for members that are "
        f"{_listed(PENDING)}. {_listed(LIVE)} count against `max_live`.",
    )


def _arrows() -> list[str]:
    events: dict[tuple[str, str], list[str]] = {}
    for (state, event), after in TRANSITIONS.items():
        events.setdefault((state, after), []).append(str(event))
    return [
        f"{'[*]' if state == NONE else state} --> {after}: {', '.join(names)}"
        for (state, after), names in events.items()
    ]


def _listed(states: frozenset[TrajectoryStatus]) -> str:
    return ", ".join(code(state) for state in TrajectoryStatus if state in states)


def records_and_states() -> str:
    """What becomes of each record in each state of what it is about."""
    blocks = []
    for of in StateOf:
        records = list(dict.fromkeys(record for record, _ in MATRIX[of]))
        rows = (
            (code(state), *(_told(MATRIX[of].get((record, state)), state) for record in records))
            for state in _STATES[of]
        )
        blocks += [f"## By the state of the {of}", table(("state", *records), rows)]
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
