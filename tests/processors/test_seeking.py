"""Reading on from where the ledgers stand, also where the group has taken a partition away meanwhile."""

from collections.abc import Callable
from typing import Any

import pytest
from confluent_kafka import KafkaError, KafkaException, TopicPartition

from rollbook.processors.host import seeking
from rollbook.processors.host.clock import SystemClock
from rollbook.processors.host.errors import HostStopped
from rollbook.processors.host.seeking import read_on


class Delivered:
    """A record of a partition, or an error."""

    def __init__(self, partition: int, error: str | None = None) -> None:
        self._partition, self._error = partition, error

    def partition(self) -> int:
        return self._partition

    def error(self) -> str | None:
        return self._error


class Group:
    """A consumer of partitions 0 and 1 that lost 1; its next polls deliver what they are given."""

    def __init__(self, *deliveries: Delivered | None, taken_away: bool = True) -> None:
        self.ours = {0: 5, 1: 7}
        self.sought: list[tuple[int, int]] = []
        self._deliveries = list(deliveries)
        self._taken_away = taken_away

    def seek(self, place: TopicPartition) -> None:
        if place.partition == 1:
            raise KafkaException(KafkaError(KafkaError._STATE))
        self.sought.append((place.partition, place.offset))

    def poll(self) -> Delivered | None:
        if self._deliveries:
            return self._deliveries.pop(0)
        if self._taken_away:
            self.ours.pop(1, None)
        return None


def read(group: Group, told: Callable[[Any], None] = lambda _: None) -> None:
    read_on(group, SystemClock(), "lifecycle", lambda: dict(group.ours), group.poll, told)  # type: ignore[arg-type]


def test_what_was_taken_away_is_let_go_of() -> None:
    group = Group()
    read(group)
    assert group.sought == [(0, 5)]


def test_records_of_others_that_a_poll_brings_are_read_again() -> None:
    group = Group(Delivered(0), Delivered(0))
    read(group)
    assert group.sought == [(0, 5), (0, 5)]


def test_errors_that_a_poll_brings_are_told() -> None:
    told: list[Any] = []
    trouble = Delivered(0, "trouble")
    read(Group(trouble), told.append)
    assert told == [trouble]


def test_what_is_neither_sought_nor_taken_away_stops_the_host(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(seeking, "SEEK_S", 0.0)
    with pytest.raises(HostStopped, match=r"lifecycle:1 cannot be read from offset 7"):
        read(Group(taken_away=False))
