"""How far the decisions of a partition go, on the real broker: also behind markers and open transactions."""

import pytest

from rollbook.infra.settings import Settings, Topic
from rollbook.processors.host import decided
from rollbook.processors.host.clients import transactional_producer
from rollbook.processors.host.clock import SystemClock
from rollbook.processors.host.decided import first_undecided
from rollbook.processors.host.kafka import Cluster
from rollbook.tests.processors.history import History


def asked(settings: Settings) -> int:
    return first_undecided(Cluster(settings), SystemClock(), settings.topic(Topic.DECISIONS), 0)


def test_the_last_committed_decision_says_it(settings: Settings, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(decided, "_FIRST_LOOK", 2)
    assert asked(settings) == 0, "nothing is decided yet"
    folded = History().opened().log.folded
    topic = settings.topic(Topic.DECISIONS)
    producer = transactional_producer(settings, f"{settings.topic_prefix}p0")
    producer.begin_transaction()
    for one in folded:
        producer.produce(topic, one.encoded, b"r", 0)
    producer.commit_transaction(10)
    for _ in range(3):  # aborted decisions, and nothing but them and markers at the end
        producer.begin_transaction()
        producer.produce(topic, folded[0].encoded, b"r", 0)
        producer.flush(10)
        producer.abort_transaction(10)
    assert asked(settings) == folded[-1].decision.source.offset + 1
    producer.begin_transaction()
    producer.produce(topic, folded[0].encoded, b"r", 0)
    producer.flush(10)
    assert asked(settings) == folded[-1].decision.source.offset + 1, "what is open is not decided"
    producer.abort_transaction(10)
