"""Where a batch ends: at so much time, so many records, bytes and changes; later where the host is behind."""

from collections import deque
from types import SimpleNamespace
from typing import Any, cast

import pytest

from rollbook.processors.host.batch import (
    BEHIND,
    BEHIND_FOLD_S,
    MAX_BYTES,
    MAX_FOLD_S,
    MAX_RECORDS,
    MOST_CHANGES,
    fold_batch,
)
from rollbook.processors.host.loop import MANY_CHANGES

EACH_S = 1 / 1024
"""What folding a record takes here; a sum of them is exact."""


class Folding:
    """A ledger and its clock: each record takes a time and changes so many rows."""

    def __init__(self, seconds: float, changes: int) -> None:
        self.journal = self
        self._seconds, self._changes = seconds, changes
        self._now, self._mark = 0.0, 0

    def monotonic(self) -> float:
        return self._now

    def mark(self) -> int:
        return self._mark

    def fold(self, _: object) -> object:
        self._now += self._seconds
        self._mark += self._changes
        return SimpleNamespace(decision=SimpleNamespace(run_id="r"))


def taken(waiting: int, *, seconds: float = EACH_S, changes: int = 1, size: int = 100) -> int:
    """How many of the waiting records a batch takes."""
    folding = Folding(seconds, changes)
    value = bytes(size)
    messages = deque(
        SimpleNamespace(value=lambda: value, key=lambda: b"r", partition=lambda: 0, offset=lambda at=at: at)
        for at in range(waiting)
    )
    batch = fold_batch(cast(Any, messages), cast(Any, {0: folding}), cast(Any, folding))
    assert len(messages) == waiting - len(batch.folded)
    assert batch.next_offsets == {0: len(batch.folded)}
    assert batch.seconds == len(batch.folded) * seconds
    return len(batch.folded)


@pytest.mark.parametrize(("waiting", "longest_s"), [(BEHIND, MAX_FOLD_S), (BEHIND + 1, BEHIND_FOLD_S)])
def test_who_is_behind_folds_for_longer(waiting: int, longest_s: float) -> None:
    assert longest_s < taken(waiting) * EACH_S <= longest_s + EACH_S


def test_a_batch_ends_at_its_records_bytes_and_changes() -> None:
    assert taken(2 * MAX_RECORDS, seconds=0.0) == MAX_RECORDS
    assert taken(100, seconds=0.0, size=MAX_BYTES // 4) == 4
    assert taken(BEHIND + 1, seconds=0.0, changes=MOST_CHANGES // 10) == 11


def test_what_one_record_changes_or_holds_is_never_too_much() -> None:
    assert taken(3, changes=10 * MANY_CHANGES) == 1
    assert taken(3, seconds=1.0) == 1
    assert taken(3, size=2 * MAX_BYTES) == 1


def test_an_ordinary_batch_is_no_long_transaction() -> None:
    assert 2 * MOST_CHANGES <= MANY_CHANGES
