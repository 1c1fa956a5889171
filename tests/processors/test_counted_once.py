"""A transaction that fails, or only seems to, is counted as such, and its records once: on the real broker."""

import threading

import pytest
from confluent_kafka import KafkaError, KafkaException

from rollbook.infra.settings import Settings, Topic
from rollbook.processors.host import loop
from rollbook.processors.host.clock import SystemClock
from rollbook.processors.host.errors import Fenced
from rollbook.processors.host.loop import Host
from rollbook.processors.host.metrics import Metrics
from rollbook.processors.host.transaction import OutcomeUnknown, Transactions
from rollbook.processors.metric_table import PROCESSOR_PREFIX as PREFIX
from rollbook.tests import recount
from rollbook.tests.conftest import PARTITIONS
from rollbook.tests.processors.hosting import SESSION_TIMEOUT_MS, send
from rollbook.tests.processors.test_host import RUNS, _await, _history
from rollbook.tests.processors.test_metrics import samples, value
from rollbook.tests.processors.test_poison import running


class Aborting(Transactions):
    """The first transaction is refused by the broker."""

    failed = False

    def commit(self) -> None:
        if not self.failed:
            self.failed = True
            raise KafkaException(KafkaError(KafkaError.INVALID_TXN_STATE, "refused", False, False, True))
        super().commit()


class Landing(Transactions):
    """The first transaction commits, and nobody hears of it."""

    failed = False

    def commit(self) -> None:
        super().commit()
        if not self.failed:
            self.failed = True
            raise OutcomeUnknown("no answer")


@pytest.mark.parametrize(
    ("failing", "aborts", "unknown", "restores"),
    [(Aborting, 1, 0, PARTITIONS), (Landing, 0, 1, 2 * PARTITIONS)],
)
def test_a_transaction_that_failed_is_counted_and_its_records_once(
    settings: Settings,
    monkeypatch: pytest.MonkeyPatch,
    failing: type[Transactions],
    aborts: int,
    unknown: int,
    restores: int,
) -> None:
    monkeypatch.setattr(loop, "Transactions", failing)
    history = _history(50)
    send(settings, history)
    metrics = Metrics(SystemClock(), "p0")
    host = Host(settings, "p0", SESSION_TIMEOUT_MS, watches=(metrics,))
    decisions = settings.topic(Topic.DECISIONS)
    with running(host):
        _await(lambda: len(recount.read_topic(settings.bootstrap_servers, decisions)) == len(history))
        send(settings, _history(10, first=51))
        _await(lambda: len(recount.read_topic(settings.bootstrap_servers, decisions)) == len(history) + 33)
        _await(lambda: value(metrics, "open_transaction_seconds") == 0)
    assert value(metrics, "aborts_total") == aborts
    assert value(metrics, "unknown_outcomes_total") == unknown
    assert value(metrics, "restore_seconds_count") == restores
    counted = sum(
        number
        for (name, _), number in samples(metrics.exposition().decode()).items()
        if name == f"{PREFIX}records_total"
    )
    assert counted == host.decided
    # What landed unheard of is in the topic and not in the count: this process does not know that it was its own.
    assert (counted == len(history) + 33) == (failing is Aborting)


def test_a_fence_is_counted(settings: Settings) -> None:
    send(settings, _history(1))
    metrics = Metrics(SystemClock(), "p0")
    first = Host(settings, "p0", SESSION_TIMEOUT_MS, watches=(metrics,))
    second = Host(settings, "p0", SESSION_TIMEOUT_MS)
    failures: list[BaseException] = []

    def work() -> None:
        try:
            first.run(threading.Event())
        except Fenced as fenced:
            failures.append(fenced)

    thread = threading.Thread(target=work)
    thread.start()
    _await(lambda: first.decided == 3 * len(RUNS))
    with running(second):
        thread.join(30)
    assert len(failures) == 1
    assert value(metrics, "fences_total") == 1
