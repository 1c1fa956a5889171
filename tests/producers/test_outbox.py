"""The outbox over a connection whose acknowledgements the test gives: what a real broker does too rarely."""

from typing import cast

from rollbook.infra.settings import Topic
from rollbook.producers.errors import DeliveryFailed
from rollbook.producers.sending.connection import Connection, OnDelivered
from rollbook.producers.sending.outbox import Counters, Outbox, PayloadBytes
from rollbook.schemas.codec import decode
from rollbook.schemas.records.common import Header, PayloadRef, Source, SourceKind
from rollbook.schemas.records.reward import RewardItem, RewardReady
from rollbook.schemas.records.run import RewardIdentity

HEADER = Header(run_id="run-0", event_id="e", occurred_at=0, source=Source(kind=SourceKind.REWARD_SERVICE, id="r"))
RULE = RewardIdentity(rule_id="r", version="1", hash="h")


class Acknowledged:
    """A connection that remembers what was produced, for the test to acknowledge."""

    def __init__(self) -> None:
        self.produced: list[tuple[Topic, bytes, OnDelivered]] = []

    def check(self) -> None: ...

    def topic(self, topic: Topic) -> str:
        return topic.value

    def partitions(self, topic: Topic) -> int:
        return 1

    def produce(self, topic: Topic, partition: int, key: str, value: bytes, on_delivered: OnDelivered) -> None:
        self.produced.append((topic, value, on_delivered))

    def acknowledge(self, offset: int | None = None, failure: DeliveryFailed | None = None) -> Topic:
        """Acknowledge the oldest."""
        topic, _, on_delivered = self.produced.pop(0)
        on_delivered(offset, failure)
        return topic


def publishing() -> tuple[Acknowledged, Outbox]:
    connection = Acknowledged()
    outbox = Outbox(cast(Connection, connection), "run-0")

    def build(refs: tuple[PayloadRef, ...]) -> RewardReady:
        item = RewardItem(trajectory_id="t", raw_reward=1.0, payload=refs[0])
        return RewardReady(header=HEADER, items=(item,), reward=RULE, remote=False)

    outbox.publish(build, [PayloadBytes("t", b"tokens")])
    return connection, outbox


def test_a_record_that_arrived_nobody_knows_where_has_arrived() -> None:
    connection, outbox = publishing()
    connection.acknowledge(7)
    connection.acknowledge(None)
    assert outbox.counters == Counters(published=1, delivered=1)
    assert outbox.flush(0) == 0


def test_a_payload_that_arrived_nobody_knows_where_is_sent_again() -> None:
    connection, outbox = publishing()
    assert connection.acknowledge(None) is Topic.PAYLOADS
    assert [topic for topic, _, _ in connection.produced] == [Topic.PAYLOADS]
    connection.acknowledge(9)
    ((_, value, _),) = connection.produced
    record = decode(value)
    assert isinstance(record, RewardReady)
    assert record.items[0].payload is not None
    assert record.items[0].payload.offsets == (9,)
    connection.acknowledge(3)
    assert outbox.flush(0) == 0
