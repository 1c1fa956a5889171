"""Tables, their journal, and the keys of the ledger topic."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from rollbook.processors.ledger.fold import Ledger
from rollbook.processors.ledger.keys import key_of, parse_key, position_key, restore_row
from rollbook.schemas.codec import UndecodableRecord, encode
from rollbook.schemas.records.ledger import Position, TrajectoryStatus
from rollbook.tests.processors.history import History
from rollbook.tests.processors.state import all_rows

NAMES = st.text(st.characters(exclude_categories=["Cs"]), max_size=20)


@given(NAMES, NAMES, NAMES | st.integers(0, 2**63 - 1), NAMES, NAMES, NAMES)
def test_keys_come_back_and_never_meet(
    run: str, kind: str, name: str | int, other_run: str, other_kind: str, other_name: str
) -> None:
    assert parse_key(key_of(run, kind, name)) == (run, kind, name)
    same = (run, kind, name) == (other_run, other_kind, other_name)
    assert (key_of(run, kind, name) == key_of(other_run, other_kind, other_name)) is same


def test_a_number_and_its_digits_are_different_names() -> None:
    assert key_of("r", "policy", 7) != key_of("r", "policy", "7")
    assert position_key(3) == key_of("", "position", 3)


def test_every_row_of_a_run_has_a_key_of_its_own() -> None:
    history = History().opened()
    history.learner()
    history.ready("policy", "1").trained("1", "policy")
    history.rewarded("early")
    history.written(7)
    history.prepared(1, "1")
    history.ack("1", 1)
    keys = [key for key, _ in history.log.ledger.changes()]
    assert len(keys) == len(set(keys))
    kinds = {parse_key(key)[1] for key in keys}
    others = {"contract", "trajectory", "pending", "update", "learner", "policy", "worker", "tally"}
    assert kinds == {"run", "config"} | others


def test_changes_come_once_a_key_and_end_with_the_batch() -> None:
    history = History().opened()
    history.log.ledger.journal.keep()
    history.ready("t0")
    keys = [parse_key(key)[1:] for key, _ in history.log.ledger.changes()]
    assert keys == [("tally", "generated"), ("trajectory", "t0"), ("run", ""), ("tally", "reward_ready")]
    history.log.ledger.journal.keep()
    assert history.log.ledger.changes() == []


def test_a_fact_whose_turn_came_is_removed_by_a_tombstone() -> None:
    history = History().opened()
    history.rewarded("t0")
    history.log.ledger.journal.keep()
    history.generated("t0")
    assert (key_of("r", "pending", "trajectory t0"), None) in history.log.ledger.changes()


def test_undoing_to_a_mark_keeps_what_came_before_it() -> None:
    history = History().opened()
    journal = history.log.ledger.journal
    history.generated("t0")
    before = all_rows(history.log.ledger)
    mark = journal.mark()
    history.rewarded("t0")
    history.generated("t1")
    journal.undo(mark)
    assert all_rows(history.log.ledger) == before
    assert history.trajectory("t0").status is TrajectoryStatus.GENERATED


def test_a_tombstone_of_what_was_never_here_is_no_defect() -> None:
    run = Ledger(0, 1).run("r")
    for table in run.tables():
        restore_row(run, table.kind, "nobody", None)
    assert all(len(table) == 0 for table in run.tables())
    assert run.trajectories.claimable_groups() == []


def test_rows_of_another_package_are_refused() -> None:
    run = Ledger(0, 1).run("r")
    with pytest.raises(ValueError, match="unknown kind 'weather'"):
        restore_row(run, "weather", "today", None)
    with pytest.raises(UndecodableRecord, match="expected a TrajectoryState, found a Position"):
        restore_row(run, "trajectory", "t0", encode(Position(next_offset=1, transactional_id="p")))
