"""What the host relies on in Kafka's clients, on the simulated broker and on the real one: one suite, two brokers."""

from collections.abc import Callable
from typing import Any

import pytest
from confluent_kafka import OFFSET_BEGINNING, KafkaError, KafkaException, TopicPartition

from rollbook.infra.settings import Topic
from rollbook.processors.host.errors import Action, action_for
from rollbook.tests.simulation.stage import PARTITIONS, RealStage, SimulatedStage, Stage, until

SESSION_MS = 6_000
Play = Callable[[Callable[[Stage], None]], None]


@pytest.fixture(params=["simulated", "real"])
def play(request: pytest.FixtureRequest) -> Play:
    """Performs a play on one of the two brokers; the real one is started only where it is needed."""
    if request.param == "real":
        return RealStage(request.getfixturevalue("settings")).play
    return SimulatedStage(seed=7).play


def place(stage: Stage, topic: Topic = Topic.DECISIONS, offset: int = OFFSET_BEGINNING) -> TopicPartition:
    return TopicPartition(stage.settings.topic(topic), 0, offset)


def write(stage: Stage, producer: Any, *values: bytes) -> None:
    for value in values:
        producer.produce(stage.settings.topic(Topic.DECISIONS), value, b"key", 0)
    assert producer.flush(10) == 0


def ends(stage: Stage, *, committed: bool) -> int:
    reader = stage.kafka().reader(committed=committed)
    _, end = reader.get_watermark_offsets(place(stage), timeout=5)
    reader.close()
    return int(end)


def read(stage: Stage, end: int) -> list[tuple[int, bytes]]:
    """Everything committed, once the reader's position has come to the end."""
    reader = stage.kafka().reader()
    reader.assign([place(stage)])
    found: list[tuple[int, bytes]] = []

    def is_read() -> bool:
        found.extend((m.offset(), m.value()) for m in reader.consume(100, 0.05) if m.error() is None)
        return int(reader.position([place(stage)])[0].offset) >= end

    until(stage, is_read)
    reader.close()
    return found


class Member:
    """A member of the group, and what it was told."""

    def __init__(self, stage: Stage, name: str) -> None:
        self._stage = stage
        self.consumer = stage.kafka().consumer(f"{stage.settings.topic_prefix}{name}", SESSION_MS)
        self.told: list[tuple[str, list[int]]] = []
        self.owned: set[int] = set()
        self.consumer.subscribe(
            [stage.settings.topic(Topic.LIFECYCLE)],
            on_assign=self._assigned,
            on_revoke=self._revoked,
            on_lost=self._revoked,
        )

    def _assigned(self, _: Any, partitions: list[TopicPartition]) -> None:
        self.told.append(("assign", sorted(p.partition for p in partitions)))
        self.owned |= {p.partition for p in partitions}
        self.consumer.incremental_assign([TopicPartition(p.topic, p.partition, 0) for p in partitions])

    def _revoked(self, _: Any, partitions: list[TopicPartition]) -> None:
        self.told.append(("revoke", sorted(p.partition for p in partitions)))
        self.owned -= {p.partition for p in partitions}
        self.consumer.incremental_unassign(partitions)

    def poll(self) -> Any:
        return self.consumer.poll(0.05)


def joined(stage: Stage, *members: Member) -> None:
    """Until the partitions are shared evenly."""

    def is_shared() -> bool:
        for member in members:
            member.poll()
        return all(len(member.owned) == PARTITIONS // len(members) for member in members)

    until(stage, is_shared)


def failure(call: Callable[[], object]) -> KafkaError:
    with pytest.raises(KafkaException) as raised:
        call()
    fault: KafkaError = raised.value.args[0]
    return fault


def offsets(stage: Stage, offset: int) -> list[TopicPartition]:
    return [place(stage, Topic.LIFECYCLE, offset)]


def test_markers_take_offsets_and_positions_pass_them(play: Play) -> None:
    def body(stage: Stage) -> None:
        producer = stage.kafka().producer("markers", 10_000)
        for value in (b"first", b"second"):
            producer.begin_transaction()
            write(stage, producer, value)
            producer.commit_transaction(10)
        until(stage, lambda: ends(stage, committed=True) == 4)
        assert read(stage, 4) == [(0, b"first"), (2, b"second")]

    play(body)


def test_what_was_aborted_is_not_read_and_positions_pass_it(play: Play) -> None:
    def body(stage: Stage) -> None:
        producer = stage.kafka().producer("aborts", 10_000)
        producer.begin_transaction()
        write(stage, producer, b"never", b"never")
        producer.abort_transaction(10)
        until(stage, lambda: ends(stage, committed=True) == 3)
        assert read(stage, 3) == []

    play(body)


def test_an_open_transaction_holds_back_the_stable_end(play: Play) -> None:
    def body(stage: Stage) -> None:
        one, other = stage.kafka().producer("one", 10_000), stage.kafka().producer("other", 10_000)
        one.begin_transaction()
        write(stage, one, b"open")
        other.begin_transaction()
        write(stage, other, b"committed")
        other.commit_transaction(10)
        until(stage, lambda: ends(stage, committed=False) == 3)
        assert ends(stage, committed=True) == 0
        one.commit_transaction(10)
        until(stage, lambda: ends(stage, committed=True) == 4)
        assert read(stage, 4) == [(0, b"open"), (1, b"committed")]

    play(body)


def test_a_new_producer_of_an_id_ends_the_open_transaction_and_fences_the_old_one(play: Play) -> None:
    def body(stage: Stage) -> None:
        old = stage.kafka().producer("same", 60_000)
        old.begin_transaction()
        write(stage, old, b"never")
        new = stage.kafka().producer("same", 60_000)
        assert ends(stage, committed=True) == 2
        fault = failure(lambda: old.commit_transaction(10))
        assert fault.fatal()
        assert action_for(fault) is Action.STOP_FENCED
        assert action_for(failure(old.begin_transaction)) is Action.STOP_FENCED
        new.begin_transaction()
        write(stage, new, b"new")
        new.commit_transaction(10)
        until(stage, lambda: ends(stage, committed=True) == 4)
        assert read(stage, 4) == [(2, b"new")]

    play(body)


def test_a_transaction_that_is_open_too_long_is_aborted_and_its_producer_fenced(play: Play) -> None:
    def body(stage: Stage) -> None:
        slow = stage.kafka().producer("slow", 1_000)
        slow.begin_transaction()
        write(stage, slow, b"never")
        until(stage, lambda: ends(stage, committed=True) == 2)
        assert action_for(failure(lambda: slow.commit_transaction(10))) is Action.STOP_FENCED
        assert read(stage, 2) == []

    play(body)


def test_a_second_begin_is_a_state_error(play: Play) -> None:
    def body(stage: Stage) -> None:
        producer = stage.kafka().producer("begins", 10_000)
        producer.begin_transaction()
        assert failure(producer.begin_transaction).code() == KafkaError._STATE

    play(body)


def test_offsets_are_told_once_their_transaction_has_ended(play: Play) -> None:
    def body(stage: Stage) -> None:
        member = Member(stage, "p0")
        joined(stage, member)
        assert member.consumer.committed(offsets(stage, 0), timeout=10)[0].offset == -1001
        producer = stage.kafka().producer("sends", 30_000)
        producer.begin_transaction()
        producer.send_offsets_to_transaction(offsets(stage, 7), member.consumer.consumer_group_metadata(), 10)
        assert failure(lambda: member.consumer.committed(offsets(stage, 0), timeout=0.5)).code() in (
            KafkaError._TIMED_OUT,
            KafkaError.UNSTABLE_OFFSET_COMMIT,
        )
        producer.commit_transaction(10)
        assert member.consumer.committed(offsets(stage, 0), timeout=10)[0].offset == 7
        member.consumer.close()

    play(body)


def test_who_was_replaced_in_the_group_is_told_and_commits_no_offsets(play: Play) -> None:
    def body(stage: Stage) -> None:
        old = Member(stage, "p0")
        joined(stage, old)
        metadata = old.consumer.consumer_group_metadata()
        new = Member(stage, "p0")
        joined(stage, new)
        producer = stage.kafka().producer("zombie", 30_000)
        producer.begin_transaction()
        write(stage, producer, b"never")
        fault = failure(lambda: producer.send_offsets_to_transaction(offsets(stage, 7), metadata, 10))
        assert fault.code() == KafkaError.FENCED_INSTANCE_ID
        assert action_for(fault) is Action.STOP_FENCED
        producer.abort_transaction(10)
        told: list[KafkaError] = []

        def is_told() -> bool:
            message = old.poll()
            if message is not None and message.error() is not None:
                told.append(message.error())
            return any(action_for(fault) is Action.STOP_FENCED for fault in told)

        until(stage, is_told)
        assert new.consumer.committed(offsets(stage, 0), timeout=10)[0].offset == -1001
        new.consumer.close()
        old.consumer.close()

    play(body)


def test_a_newcomer_takes_only_what_moves(play: Play) -> None:
    def body(stage: Stage) -> None:
        first = Member(stage, "p0")
        joined(stage, first)
        second = Member(stage, "p1")
        joined(stage, first, second)
        revoked = [partitions for kind, partitions in first.told if kind == "revoke"]
        assert len(revoked) == 1
        assert set(revoked[0]) == second.owned
        assert first.owned | second.owned == set(range(PARTITIONS))
        first.consumer.close()
        second.consumer.close()

    play(body)


def test_an_old_generation_commits_no_offsets_but_may_abort_and_go_on(play: Play) -> None:
    def body(stage: Stage) -> None:
        first = Member(stage, "p0")
        joined(stage, first)
        metadata = first.consumer.consumer_group_metadata()
        second = Member(stage, "p1")
        joined(stage, first, second)
        producer = stage.kafka().producer("late", 30_000)
        producer.begin_transaction()
        fault = failure(lambda: producer.send_offsets_to_transaction(offsets(stage, 7), metadata, 10))
        assert action_for(fault) is Action.ABORT
        producer.abort_transaction(10)
        producer.begin_transaction()
        now = first.consumer.consumer_group_metadata()
        producer.send_offsets_to_transaction(offsets(stage, 7), now, 10)
        producer.commit_transaction(10)
        assert first.consumer.committed(offsets(stage, 0), timeout=10)[0].offset == 7
        first.consumer.close()
        second.consumer.close()

    play(body)


def test_seek_delivers_again_and_a_paused_partition_delivers_nothing(play: Play) -> None:
    def body(stage: Stage) -> None:
        member = Member(stage, "p0")
        joined(stage, member)
        clerk = stage.kafka().plain_producer()
        topic = stage.settings.topic(Topic.LIFECYCLE)
        for partition in range(PARTITIONS):
            clerk.produce(topic, b"value", b"key", partition)
        until(stage, lambda: clerk.flush(1) == 0)
        seen: list[int] = []

        def has_seen(*partitions: int) -> bool:
            message = member.poll()
            if message is not None and message.error() is None:
                seen.append(message.partition())
            return sorted(seen) == list(partitions)

        until(stage, lambda: has_seen(0, 1))
        seen.clear()
        member.consumer.pause([place(stage, Topic.LIFECYCLE)])
        for partition in range(PARTITIONS):
            member.consumer.seek(TopicPartition(topic, partition, 0))
        until(stage, lambda: has_seen(1))
        for _ in range(10):
            assert has_seen(1)
        member.consumer.close()

    play(body)


def test_seek_in_a_partition_of_another_is_a_state_error(play: Play) -> None:
    def body(stage: Stage) -> None:
        member = Member(stage, "p0")
        assert failure(lambda: member.consumer.seek(place(stage, Topic.LIFECYCLE, 0))).code() in (
            KafkaError._STATE,
            KafkaError._UNKNOWN_PARTITION,
        )
        member.consumer.close()

    play(body)


def test_a_second_join_of_a_static_member_is_a_rebalance(play: Play) -> None:
    def body(stage: Stage) -> None:
        member = Member(stage, "p0")
        joined(stage, member)
        before = len(member.told)
        member.consumer.unsubscribe()
        again = member.consumer
        again.subscribe(
            [stage.settings.topic(Topic.LIFECYCLE)],
            on_assign=member._assigned,
            on_revoke=member._revoked,
            on_lost=member._revoked,
        )
        until(stage, lambda: member.poll() is None and len(member.told) >= before + 2)
        everything = list(range(PARTITIONS))
        assert member.told[before:] == [("revoke", everything), ("assign", everything)]
        again.close()

    play(body)
