"""What a learner was given stands, whatever the transaction that gave it looked like: on the real broker."""

import pytest

from rollbook.infra.settings import Settings, Topic
from rollbook.processors.host import loop
from rollbook.processors.host.transaction import OutcomeUnknown, Transactions
from rollbook.schemas.codec import decode
from rollbook.schemas.records.decision import Decision
from rollbook.schemas.records.update import LeaseExpired
from rollbook.tests import recount
from rollbook.tests.conftest import PARTITIONS
from rollbook.tests.processors.history import History
from rollbook.tests.processors.hosting import host_in_thread, send
from rollbook.tests.processors.test_host import _await, _check

RUN = "run-a"


class EveryOneLandsUnheard(Transactions):
    """Each transaction commits, and its answer is lost."""

    def commit(self) -> None:
        super().commit()
        raise OutcomeUnknown("no answer")


def told(settings: Settings) -> list[Decision]:
    topic = recount.read_topic(settings.bootstrap_servers, settings.topic(Topic.DECISIONS))
    found = [decode(record.value or b"") for record in topic]
    return [one for one in found if isinstance(one, Decision)]


def published(settings: Settings, history: History, begun: int) -> int:
    """Send what the history says since its record number `begun`; returns how many there are now."""
    records = history.log.records
    send(settings, [(history.log.partition, RUN.encode(), record.value or b"") for record in records[begun:]])
    _await(lambda: len(told(settings)) == len(records))
    return len(records)


def test_after_a_commit_that_timed_out_but_landed_a_second_reserve_does_not_succeed(
    settings: Settings, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(loop, "Transactions", EveryOneLandsUnheard)
    history = History(RUN, topic_partitions=PARTITIONS).opened().ready("t0")
    history.learner("a")
    history.learner("b")
    with host_in_thread(settings):
        begun = published(settings, history, 0)
        history.reserve("u-a", "t0", learner="a")
        begun = published(settings, history, begun)
        history.reserve("u-b", "t0", learner="b", revisions={"t0": 2})
        published(settings, history, begun)
    first, second = (one for one in told(settings) if one.record_type == "Reserve")
    assert (first.outcome, second.outcome, second.items[0].reason) == ("accepted", "rejected", "revision_conflict")
    _check(settings)


def test_a_renewal_that_waits_in_the_log_is_read_before_anybody_looks_at_leases(settings: Settings) -> None:
    """The clerk looks only where the fold stands at the end of the log: a Renew behind a long backlog is in time."""
    history = History(RUN, topic_partitions=PARTITIONS).opened(lease_ms=1_000, max_live=10_000).ready("t0")
    history.learner("a")
    history.reserve("u-a", "t0", learner="a")
    for number in range(3_000):  # longer than the lease to fold
        history.dispatched(f"d-{number}")
    history.renewed("u-a", learner="a")
    renewed = history.log.next_offset - 1
    with host_in_thread(settings):
        published(settings, history, 0)
        _await(lambda: told(settings)[-1].record_type == "LeaseExpired")
    lifecycle = recount.read_topic(settings.bootstrap_servers, settings.topic(Topic.LIFECYCLE))
    (expiry,) = [one for record in lifecycle if isinstance(one := decode(record.value or b""), LeaseExpired)]
    assert expiry.basis == renewed
    assert [one.reason for one in told(settings) if one.record_type == "LeaseExpired"] == ["lease_expired"]
