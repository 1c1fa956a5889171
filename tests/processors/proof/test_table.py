"""Every row of the table of records and states: the fold, driven into the state, does what the row says."""

from typing import Any

import pytest

from rollbook.processors.ledger.fold import HANDLERS
from rollbook.processors.ledger.matrix import ANY_OTHER, MATRIX, STATES, RunPhase, StateOf, row, row_of_run
from rollbook.processors.ledger.policy import standing_of
from rollbook.processors.lifecycle import NONE, next_state
from rollbook.processors.reasons import Reason
from rollbook.schemas.records.common import Lifecycle
from rollbook.schemas.records.decision import Decision, Outcome
from rollbook.schemas.records.run import RunConfigured
from rollbook.tests.processors.history import History
from rollbook.tests.processors.proof.situations import ALL, CASES, UNREACHED, Send, driven

REGISTERED: tuple[type[Lifecycle], ...] = (*HANDLERS, RunConfigured)
BY_FIELD = {
    "contract_hash": StateOf.CONTRACT,
    "identity": StateOf.TRAJECTORY,
    "trajectory_id": StateOf.TRAJECTORY,
    "trajectory_ids": StateOf.TRAJECTORY,
    "learner": StateOf.LEARNER,
    "learner_id": StateOf.LEARNER,
    "update_id": StateOf.UPDATE,
    "last_update_id": StateOf.UPDATE,
    "checkpoint": StateOf.CHECKPOINT,
    "version": StateOf.POLICY,
    "worker_id": StateOf.WORKER,
    "serves": StateOf.POLICY,
}
"""What a record with a field is about; what is not named here it only cites."""
CITES = {("Generated", "contract_hash"), ("Dispatched", "worker_id")}
WHOLE = {StateOf.RUN, StateOf.LEARNER}
"""A record passes these on its way to what else it is about."""


@pytest.mark.parametrize(("of", "record", "state"), CASES)
def test_what_a_record_does_to_a_state(of: StateOf, record: str, state: str) -> None:
    history = driven(of, state)
    decision = ALL[of][0][record](history)
    expected = row(of, record, state)
    if of is StateOf.TRAJECTORY:
        _check_trajectory(history, decision, record, state)
    elif of in WHOLE and expected.outcome is Outcome.ACCEPTED:
        assert (decision.outcome, expected.reason) == (Outcome.ACCEPTED, Reason.OK)
    elif history.run.observes and record == "Activate":
        assert (decision.outcome, decision.reason) == (Outcome.ACCEPTED, expected.reason)
        assert decision.violation == (expected.outcome is not Outcome.ACCEPTED)
    else:
        assert (decision.outcome, decision.reason) == (expected.outcome, expected.reason)


def _check_trajectory(history: History, decision: Decision, record: str, state: str) -> None:
    expected = row(StateOf.TRAJECTORY, record, state)
    (item,) = [one for one in decision.items if one.trajectory_id == "t"]
    assert item.reason == expected.reason
    if record == "Admit":  # it is accepted whatever becomes of its rows
        assert (item.reason == Reason.OK) == (expected.outcome is Outcome.ACCEPTED)
    else:
        assert decision.outcome is expected.outcome
    after = state
    for event in expected.events:
        after = next_state(after, event)
    assert history.status("t") == after


@pytest.mark.parametrize("state", STATES[StateOf.TRAJECTORY])
def test_a_trajectory_is_driven_into_its_state(state: str) -> None:
    assert driven(StateOf.TRAJECTORY, state).status("t") == state


@pytest.mark.parametrize("state", STATES[StateOf.UPDATE])
def test_an_update_is_driven_into_its_state(state: str) -> None:
    assert driven(StateOf.UPDATE, state).update_status("u") == state


@pytest.mark.parametrize("state", STATES[StateOf.POLICY])
def test_a_policy_is_driven_into_its_state(state: str) -> None:
    run = driven(StateOf.POLICY, state).run
    assert str(standing_of(run, run.policies.get(1)) or NONE) == state


SENT: dict[str, Send] = {record: send for records, _ in ALL.values() for record, send in records.items()}


@pytest.mark.parametrize("state", [NONE, RunPhase.CLOSED])
@pytest.mark.parametrize("record", [name for name in SENT if name not in ("RunConfigured", ANY_OTHER)])
def test_outside_its_life_a_run_refuses_every_record(record: str, state: str) -> None:
    decision = SENT[record](driven(StateOf.RUN, state))
    expected = row_of_run(record, None if state == NONE else RunPhase.CLOSED)
    assert (decision.outcome, decision.reason) == (expected.outcome, expected.reason)


def test_the_table_has_a_row_for_every_record_in_every_state_and_no_other() -> None:
    for of, rows in MATRIX.items():
        records, states = ALL[of]
        assert rows.keys() == {(record, state) for record in records for state in STATES[of]}
        assert [str(state) for state in states] == [str(state) for state in STATES[of]]
    assert UNREACHED.keys() <= {(of, *key) for of, rows in MATRIX.items() for key in rows}


@pytest.mark.parametrize("model", REGISTERED)
def test_every_record_type_has_rows_for_the_kinds_that_it_is_about(model: type[Any]) -> None:
    name = model.__name__
    within = {of for of, rows in MATRIX.items() if any(record == name for record, _ in rows)}
    assert within, f"{name} is decided without a row"
    wanted = {BY_FIELD[field] for field in model.model_fields if field in BY_FIELD and (name, field) not in CITES}
    assert wanted <= within


def test_the_table_names_no_record_that_nobody_decides() -> None:
    names = {model.__name__ for model in REGISTERED}
    named = {record.split(",")[0].split(" by ")[0] for rows in MATRIX.values() for record, _ in rows}
    assert named - {ANY_OTHER} == names


def test_a_row_that_takes_effect_on_a_trajectory_says_how() -> None:
    for (record, state), found in MATRIX[StateOf.TRAJECTORY].items():
        silent = record == "Admit" or (record == "Dispatched" and state != NONE)
        silent = silent or (record, state) == ("RewardFailed", "reward_failed")
        assert bool(found.events) == (found.outcome is Outcome.ACCEPTED and not silent)
