"""The one table of transitions, against the design written out again: a row that is lost, added or bent fails here."""

import ast
from collections.abc import Iterator
from pathlib import Path

import pytest

from rollbook.processors import transition_lifecycle
from rollbook.processors.ledger.fold import HANDLERS
from rollbook.processors.lifecycle import LIVE, NONE, PENDING, TRANSITIONS, Event
from rollbook.processors.reasons import MEANING, Reason
from rollbook.schemas.records.ledger import TrajectoryStatus
from rollbook.schemas.records.run import RunConfigured
from rollbook.schemas.registry import LIFECYCLE

DESIGNED = """
none            dispatched         dispatched
none            generated          generated
none            generation_failed  generation_failed
dispatched      generated          generated
dispatched      generation_failed  generation_failed
dispatched      discard            discarded
dispatched      quarantine         quarantined
dispatched      expire             offline
generated       reward_ready       rewarded
generated       reward_failed      reward_failed
generated       discard            discarded
generated       quarantine         quarantined
generated       expire             offline
reward_failed   reward_ready       rewarded
reward_failed   discard            discarded
reward_failed   quarantine         quarantined
reward_failed   expire             offline
rewarded        reserve            reserved
rewarded        discard            discarded
rewarded        quarantine         quarantined
rewarded        expire             offline
reserved        commit             consumed
reserved        abort              rewarded
reserved        drop               rewarded
reserved        quarantine         quarantined
consumed        roll_back          rewarded
"""
EXPECTED = {(state, event): after for state, event, after in map(str.split, DESIGNED.strip().splitlines())}
STATES = (NONE, *(status.value for status in TrajectoryStatus))
SOURCES = Path(__file__).parents[2] / "processors"


@pytest.mark.parametrize(("state", "event"), [(state, event.value) for state in STATES for event in Event])
def test_each_pair_is_as_designed(state: str, event: str) -> None:
    if (state, event) in EXPECTED:
        assert transition_lifecycle(state, event) == EXPECTED[state, event]
    else:
        with pytest.raises(ValueError, match=f"a trajectory that is {state} cannot take {event}"):
            transition_lifecycle(state, event)


def test_the_table_has_nothing_else() -> None:
    assert {(str(state), str(event)): str(after) for (state, event), after in TRANSITIONS.items()} == EXPECTED


@pytest.mark.parametrize("final", ["generation_failed", "discarded", "quarantined", "offline"])
def test_final_states_have_no_way_out(final: str) -> None:
    assert not [event for state, event in TRANSITIONS if state == final]


def test_live_and_pending_states() -> None:
    assert {state.value for state in LIVE} == {"dispatched", "generated", "reward_failed", "rewarded", "reserved"}
    assert {state.value for state in PENDING} == {"dispatched", "generated"}


def test_each_reason_has_a_meaning_of_its_own() -> None:
    assert set(MEANING) == set(Reason)
    assert len(set(MEANING.values())) == len(MEANING)
    assert all(meaning.endswith(".") for meaning in MEANING.values())


def test_each_reason_is_given_by_some_rule() -> None:
    used = {name for file in SOURCES.rglob("*.py") if file.name != "reasons.py" for name in _reasons_in(file)}
    assert {reason.name for reason in Reason} - used - _FROM_RECORDS == set()


_FROM_RECORDS = {"UPDATE_FAILED", "OPERATOR"}
"""An Abort's own reasons become the decision's."""


def _reasons_in(file: Path) -> Iterator[str]:
    for node in ast.walk(ast.parse(file.read_text(encoding="utf-8"))):
        if isinstance(node, ast.Attribute) and isinstance(node.value, ast.Name) and node.value.id == "Reason":
            yield node.attr


def test_each_lifecycle_record_is_handled_once() -> None:
    assert set(LIFECYCLE) == {*HANDLERS, RunConfigured}
    assert len(LIFECYCLE) == len(HANDLERS) + 1
