"""Hundreds of small histories fold to the same bytes for ever, in every row of the table of records and states."""

from itertools import groupby
from operator import itemgetter

import pytest

from rollbook.processors.ledger.fold import Ledger, SourceRecord
from rollbook.processors.ledger.matrix import MATRIX, Row, StateOf
from rollbook.processors.lifecycle import NONE
from rollbook.schemas.records.ledger import UpdateStatus
from rollbook.tests.frozen.situations import SITUATIONS, read
from rollbook.tests.frozen.test_histories import HOW, NEW

BEFORE_THE_TABLE = {
    (StateOf.UPDATE, "RecordingSealed", NONE),
    (StateOf.UPDATE, "RecordingSealed", UpdateStatus.ROLLED_BACK.value),
}
"""Rows whose records have their answer from who sent them, before the update's state is asked."""


@pytest.mark.parametrize("name", SITUATIONS.names())
def test_each_history_of_a_source_comes_out_as_it_was_frozen(name: str) -> None:
    kept, today = SITUATIONS.kept().get(name), SITUATIONS.of_today(name)
    assert kept is not None, NEW
    assert today is not None, f"{name} is gone"
    differing = {number for number, one in kept["histories"].items() if today["histories"].get(number) != one}
    assert not differing, HOW
    assert today == kept


class Noting(dict[tuple[str, str], Row]):
    """Rows of the table, and which were looked up."""

    def __init__(self, rows: dict[tuple[str, str], Row]) -> None:
        super().__init__(rows)
        self.met: set[tuple[str, str]] = set()

    def __getitem__(self, key: tuple[str, str]) -> Row:
        self.met.add(key)
        return super().__getitem__(key)


def test_every_row_of_the_table_of_records_and_states_is_met_in_them(monkeypatch: pytest.MonkeyPatch) -> None:
    noting = {of: Noting(rows) for of, rows in MATRIX.items()}
    for of, rows in noting.items():
        monkeypatch.setitem(MATRIX, of, rows)
    told = (row for row in read("the-folds-tests") if row["source"] == "proof.test_table")
    for _, history in groupby(told, key=itemgetter("number")):
        first, *_ = rows_of_one = list(history)
        ledger = Ledger(first["partition"], first["topic_partitions"])
        for row in rows_of_one:
            ledger.fold(SourceRecord(first["partition"], row["offset"], row["key"], row["lifecycle"]))
    assert {(of, *key) for of, rows in noting.items() for key in rows.keys() - rows.met} == BEFORE_THE_TABLE
