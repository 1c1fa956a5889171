"""Joining the group so that every partition has an owner.

Kafka gives a process that comes back under its name the assignment as it stands, without a rebalance. Where its
predecessor was on the way to hand a partition over, nobody owns that one then, and nobody would until the next
rebalance. So a process joins twice: its first join replaces the predecessor, its second one is a rebalance.
"""

from collections.abc import Callable

from confluent_kafka import OFFSET_END, Consumer, TopicPartition


class Unseated(Exception):
    """The group fences this member, and nobody else took its name. Its membership was lost while the broker was away;
    until the loss is served librdkafka sends heartbeats under no member's id, which the group takes for another's."""


class Introduction:
    """The first join. Nothing that it is given is opened, and nothing read of it is kept."""

    def __init__(self, consumer: Consumer, topic: str) -> None:
        self._consumer = consumer
        self._topic = topic
        self._assigned = False

    def make(self, turn: Callable[[], bool]) -> None:
        """Join, and leave it at that; `turn` polls, and says whether to wait on.

        It ends without a partition: while a rebalance is under way librdkafka puts an unsubscription off, and forgets
        it with the next subscription. What was given here would then be kept, opened by nobody, and never be read."""
        self._consumer.subscribe(
            [self._topic], on_assign=self._take, on_revoke=self._give_back, on_lost=self._give_back
        )
        while not self._assigned and turn():
            pass
        self._consumer.unsubscribe()
        while self._consumer.assignment() and turn():
            pass

    def _take(self, consumer: Consumer, partitions: list[TopicPartition]) -> None:
        consumer.incremental_assign([TopicPartition(p.topic, p.partition, OFFSET_END) for p in partitions])
        self._assigned = True

    def _give_back(self, consumer: Consumer, partitions: list[TopicPartition]) -> None:
        consumer.incremental_unassign(partitions)
