"""Every row of the table of records and states: the fold, driven into the state, does what the row says."""

import pytest

from rollbook.processors.ledger.matrix import MATRIX, StateOf, row
from rollbook.processors.lifecycle import NONE, next_state
from rollbook.processors.reasons import Reason
from rollbook.schemas.records.decision import Outcome
from rollbook.tests.processors.proof.situations import ALL, CASES, UNREACHED, opened


@pytest.mark.parametrize(("of", "record", "state"), CASES)
def test_what_a_record_does_to_a_state(of: StateOf, record: str, state: str) -> None:
    records, states = ALL[of]
    history = opened()
    states[state](history)
    decision = records[record](history)
    expected = row(of, record, state)
    if of is not StateOf.TRAJECTORY:
        assert (decision.outcome, decision.reason) == (expected.outcome, expected.reason)
        return
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


def test_the_table_has_a_row_for_every_record_in_every_state_and_no_other() -> None:
    wanted = {
        (of, record, str(state)) for of, (records, states) in ALL.items() for record in records for state in states
    }
    assert {(of, *key) for of, rows in MATRIX.items() for key in rows} == wanted
    assert all(key in wanted for key in UNREACHED)


def test_a_row_that_takes_effect_on_a_trajectory_says_how() -> None:
    for (record, state), found in MATRIX[StateOf.TRAJECTORY].items():
        silent = record == "Admit" or (record == "Dispatched" and state != NONE)
        silent = silent or (record, state) == ("RewardFailed", "reward_failed")
        assert bool(found.events) == (found.outcome is Outcome.ACCEPTED and not silent)
