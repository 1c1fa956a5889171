"""Asks the cluster once a second, without waiting for it: whether the topics are there and still the same, how many
partitions they have, and where what is committed ends.

A topic that was deleted and made anew has another id, and offsets alone would not tell: the consumer goes on at its old
place as soon as the new topic is long enough.
"""

from collections.abc import Mapping
from concurrent.futures import Future
from dataclasses import dataclass
from typing import Any

from confluent_kafka import IsolationLevel, KafkaError, KafkaException, TopicCollection, TopicPartition
from confluent_kafka.admin import AdminClient, OffsetSpec  # type: ignore[attr-defined]

EVERY_S = 1.0
ANSWER_S = 1.5

_LATEST: OffsetSpec = OffsetSpec.latest()  # type: ignore[no-untyped-call]

Place = tuple[str, int]
"""Topic and partition."""


@dataclass(frozen=True, slots=True)
class Found:
    """What one look found. `ends`: of each partition the last stable offset, behind which nothing is decided yet."""

    ids: Mapping[str, str]
    ends: Mapping[Place, int]


@dataclass(frozen=True, slots=True)
class Missing:
    """A topic that does not exist."""

    topic: str


@dataclass(frozen=True, slots=True)
class NoAnswer:
    """The cluster did not answer, or refused to."""

    fault: KafkaError


Result = Found | Missing | NoAnswer


class Survey:
    """One question at a time; `step` is called often and returns at once."""

    def __init__(self, admin: AdminClient, topics: tuple[str, ...]) -> None:
        self._admin = admin
        self._topics = topics
        self._next_at = 0.0
        self._described: dict[str, Future[Any]] = {}
        self._listed: dict[TopicPartition, Future[Any]] = {}
        self._ids: dict[str, str] = {}

    def step(self, now: float) -> Result | None:
        """Go on as far as is possible without waiting; the result when a look has come to its end."""
        if not self._described and not self._listed:
            if now >= self._next_at:
                self._next_at = now + EVERY_S
                self._described = self._admin.describe_topics(
                    TopicCollection(list(self._topics)), request_timeout=ANSWER_S
                )
            return None
        if self._described:
            return self._after_describing() if _are_done(self._described) else None
        return self._after_listing() if _are_done(self._listed) else None

    def _after_describing(self) -> Result | None:
        described, self._described = self._described, {}
        places: list[TopicPartition] = []
        for topic, future in described.items():
            try:
                found = future.result()
            except KafkaException as error:
                fault: KafkaError = error.args[0]
                gone = fault.code() == KafkaError.UNKNOWN_TOPIC_OR_PART
                return Missing(topic) if gone else NoAnswer(fault)
            self._ids[topic] = str(found.topic_id)
            places += [TopicPartition(topic, partition.id) for partition in found.partitions]
        self._listed = self._admin.list_offsets(
            dict.fromkeys(places, _LATEST),
            isolation_level=IsolationLevel.READ_COMMITTED,
            request_timeout=ANSWER_S,
        )
        return None

    def _after_listing(self) -> Result:
        listed, self._listed = self._listed, {}
        ends: dict[Place, int] = {}
        for place, future in listed.items():
            try:
                ends[place.topic, place.partition] = future.result().offset
            except KafkaException as error:
                return NoAnswer(error.args[0])
        return Found(dict(self._ids), ends)


def _are_done(futures: Mapping[Any, Future[Any]]) -> bool:
    return all(future.done() for future in futures.values())
