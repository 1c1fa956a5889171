"""Opening a partition: its places agree, or stand still and do not, or move since another is at work there."""

import logging
from collections.abc import Iterable, Iterator

import pytest
from confluent_kafka import Consumer

from rollbook.infra.settings import Settings
from rollbook.processors.host import restore
from rollbook.processors.host.clock import SystemClock
from rollbook.processors.host.errors import PartitionUnusable
from rollbook.processors.host.kafka import Cluster
from rollbook.processors.host.restore import MOST_READINGS, Opening, Restored
from rollbook.processors.host.transaction import Transactions
from rollbook.processors.ledger.fold import Ledger
from rollbook.tests.benchmarks import processor

Places = tuple[int, int, int]
"""Of the group, of the ledger, of the decisions."""


class Reading(Opening):
    """Finds the places that it is given, one after the other."""

    def __init__(self, places: Iterable[Places]) -> None:
        own = Transactions.__new__(Transactions)  # nothing is asked of it
        super().__init__(Settings(), Cluster(Settings()), SystemClock(), own, 0, 1, lambda: False)
        self.left: Iterator[Places] = iter(places)

    def _read(self, group: Consumer) -> tuple[int | None, Restored, int]:
        committed, ledger, decided = next(self.left)
        return committed, Restored(Ledger(0, 1), ledger, 0), decided


def opened(*places: Places) -> int:
    reading = Reading(places)
    found = reading.open(Consumer.__new__(Consumer))
    assert next(reading.left, None) is None, "not all was read"
    return found.next_offset


def test_what_agrees_is_opened_at_once() -> None:
    assert opened((7, 7, 7)) == 7
    assert opened((-1001, 7, 7)) == 7


def test_a_predecessor_that_commits_meanwhile_is_waited_for() -> None:
    assert opened((5, 7, 9), (9, 9, 9)) == 9
    assert opened((5, 7, 9), (8, 9, 11), (11, 11, 11)) == 11


def test_a_group_that_stands_elsewhere_is_not_believed() -> None:
    assert opened((5, 7, 7), (5, 7, 7)) == 7
    assert opened((5, 6, 7), (5, 7, 7), (5, 7, 7)) == 7


def test_a_contradiction_is_one_only_where_it_stands_still() -> None:
    with pytest.raises(PartitionUnusable, match=r"stands at 7, and decisions go to 9: .*changed by hand"):
        opened((7, 7, 9), (7, 7, 9))


def test_a_partition_that_another_decides_is_not_called_damaged() -> None:
    with pytest.raises(PartitionUnusable, match="another processor decides it at the same time"):
        opened(*((at, at + 1, at + 2) for at in range(MOST_READINGS)))


def test_a_long_restore_says_where_it_is(
    broker: str, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(restore, "SAY_S", 0.0)
    caplog.set_level(logging.INFO, "rollbook.processor")
    processor.restore(broker, 500)
    assert "restoring: at offset 5" in caplog.text
