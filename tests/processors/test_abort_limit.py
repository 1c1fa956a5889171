"""An error that aborts every transaction ends the host with a message, and not in a loop without end."""

import threading
from typing import Any

import pytest
from confluent_kafka import KafkaError, KafkaException

from rollbook.infra.settings import Settings
from rollbook.processors.host import loop
from rollbook.processors.host.errors import HostStopped
from rollbook.processors.host.transaction import Transactions
from rollbook.schemas.partition import partition_of
from rollbook.tests.conftest import PARTITIONS
from rollbook.tests.processors.hosting import SESSION_TIMEOUT_MS, host_in_thread, send
from rollbook.tests.processors.test_host import _await, _check, _configured, _decided


class Refused(Transactions):
    """Every transaction must be aborted."""

    def commit(self) -> None:
        error: Any = KafkaError(KafkaError.NOT_ENOUGH_REPLICAS, "too few", False, False, True)
        raise KafkaException(error)


def test_a_host_whose_transactions_are_all_aborted_stops(settings: Settings, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(loop, "MOST_FAILURES", 3)
    send(settings, [(partition_of("run-a", PARTITIONS), b"run-a", _configured("run-a"))])
    with monkeypatch.context() as refused:
        refused.setattr(loop, "Transactions", Refused)
        with pytest.raises(HostStopped, match=r"4 transactions of .* failed one after the other.*too few"):
            loop.Host(settings, "p0", SESSION_TIMEOUT_MS).run(threading.Event())
    with host_in_thread(settings):
        _await(lambda: _decided(settings) == 1)
    _check(settings)
