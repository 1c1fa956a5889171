"""The simulated consumer of the group: a static member with callbacks, sessions and cooperative rebalances."""

from collections import deque
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

from confluent_kafka import KafkaError, Message, TopicPartition

from rollbook.tests.simulation import errors
from rollbook.tests.simulation.broker import Broker
from rollbook.tests.simulation.errors import Again
from rollbook.tests.simulation.fetch import INVALID, Reading
from rollbook.tests.simulation.group import NOBODY, GroupMetadata
from rollbook.tests.simulation.scheduler import Process

Callback = Callable[[Any, list[TopicPartition]], None]


@dataclass(slots=True)
class _Event:
    """Something that the group has to tell the application."""

    kind: str
    partitions: list[int]


@dataclass(frozen=True, slots=True)
class _Partitions:
    partitions: dict[int, None]


@dataclass(frozen=True, slots=True)
class _Topics:
    topics: dict[str, _Partitions]


class SimConsumer:
    """The member of the group. Heartbeats and joins happen in the background, callbacks inside poll and consume."""

    def __init__(self, broker: Broker, process: Process, name: str, session_timeout_ms: int) -> None:
        self._broker = broker
        self._process = process
        self._name = name
        self._session_s = session_timeout_ms / 1000
        self._reading = Reading(broker)
        self._callbacks: dict[str, Callback] = {}
        self._events: deque[_Event] = deque()
        self._member = NOBODY
        self._generation = self._synchronised = -1
        self._join_again = False
        self._subscribed = self._unsubscribing = False
        self._served = False
        self._taking: list[int] = []
        self._heard = 0.0
        self._fatal: KafkaError | None = None

    # ---- the group

    def subscribe(self, _: list[str], on_assign: Callback, on_revoke: Callback, on_lost: Callback) -> None:
        self._callbacks = {"assign": on_assign, "revoke": on_revoke, "lost": on_lost}
        self._join_again = self._join_again or not self._unsubscribing
        self._subscribed, self._unsubscribing = True, False
        self._heard = self._broker.scheduler.now

    def unsubscribe(self) -> None:
        """Give everything back at the next poll; a static member stays in the group. While a rebalance is under way it
        is put off, and the next subscription takes its place: nothing is given back then."""
        self._unsubscribing = self._rebalancing
        if not self._unsubscribing:
            self._give_back()

    @property
    def _rebalancing(self) -> bool:
        group, known = self._broker.group, self._broker.group.members.get(self._name)
        if self._events or known is None or known.member != self._member:
            return bool(self._events)
        return known.joined if group.rebalancing else group.generation != self._synchronised

    def _give_back(self) -> None:
        self._unsubscribing = self._subscribed = False
        self._events.clear()
        if self._owned:
            self._events.append(_Event("revoke", self._owned))

    def background(self) -> None:
        """Heartbeat, and join where a rebalance or a new subscription asks for it."""
        if not self._callbacks or self._fatal is not None:
            return
        group, now = self._broker.group, self._broker.scheduler.now
        if self._member != NOBODY and now - self._heard > self._session_s:
            self._lose()
        if not self._broker.up:
            return
        if self._member != NOBODY:
            code = group.heartbeat(self._name, self._member)
            if code == KafkaError.FENCED_INSTANCE_ID:
                self._fatal = KafkaError(
                    code, "static consumer fenced by other consumer with same group.instance.id", True
                )
                return
            if code is not None:
                self._lose()
            else:  # told by the answer to its join, before it hears what is assigned
                self._generation = group.members[self._name].generation
        self._heard = now
        if self._unsubscribing and not self._rebalancing:
            self._give_back()
        if self._subscribed and not self._events and not self._served:
            self._join()

    def _join(self) -> None:
        group = self._broker.group
        if self._join_again or (self._member != NOBODY and group.must_join(self._name)):
            self._member = group.join(self._name, self._member, frozenset(self._owned), self._session_s)
            self._join_again = self._member == NOBODY
            if not group.rebalancing:
                self._synchronise()
        elif self._member != NOBODY and not group.rebalancing and group.generation != self._synchronised:
            self._synchronise()

    def _synchronise(self) -> None:
        """The generation's assignment: what is gone is given back first, and then joined again for. What is new is told
        also where it is nothing."""
        if self._member == NOBODY:
            return
        group = self._broker.group
        self._generation = self._synchronised = group.generation
        assigned, owned = group.members[self._name].assigned, set(self._owned)
        if owned - assigned:
            self._events.append(_Event("revoke", sorted(owned - assigned)))
        self._events.append(_Event("assign", sorted(assigned - owned)))

    @property
    def is_member(self) -> bool:
        """Whether the group knows it under this membership."""
        known = self._broker.group.members.get(self._name)
        return known is not None and known.member == self._member

    def _lose(self) -> None:
        self._broker.scheduler.say(self._process.name, "lost its membership")
        self._broker.faults.counts["memberships lost"] += 1
        self._member, self._generation, self._synchronised, self._join_again = NOBODY, -1, -1, True
        self._events.clear()
        gone = sorted({*self._owned, *self._taking})
        if gone:
            self._events.append(_Event("lost", gone))

    @property
    def _owned(self) -> list[int]:
        return sorted(partition for _, partition in self._reading.places)

    def _serve(self) -> bool:
        """The next callback, if one is due."""
        if not self._events or self._served:
            return False
        event = self._events.popleft()
        self._broker.scheduler.say(self._process.name, f"on_{event.kind} {event.partitions}")
        self._taking = event.partitions if event.kind == "assign" else []
        with self._serving():
            self._callbacks[event.kind](self, [TopicPartition(self._broker.lifecycle, p) for p in event.partitions])
        if event.kind == "revoke":
            self._join_again = True  # after an unsubscribe without effect
        return True

    @contextmanager
    def _serving(self) -> Iterator[None]:
        self._served = True
        try:
            yield
        finally:
            self._served = False
            self._taking = []

    def assignment(self) -> list[TopicPartition]:
        return [TopicPartition(topic, partition) for topic, partition in sorted(self._reading.places)]

    def incremental_assign(self, places: list[TopicPartition]) -> None:
        for place in places:
            self._reading.add(place)

    def incremental_unassign(self, places: list[TopicPartition]) -> None:
        for place in places:
            self._reading.remove(place)

    def consumer_group_metadata(self) -> GroupMetadata:
        return GroupMetadata(self._name, self._member, self._generation)

    def committed(self, places: list[TopicPartition], timeout: float) -> list[TopicPartition]:
        group = self._broker.group

        def request() -> list[TopicPartition]:
            if not all(group.is_stable(int(place.partition)) for place in places):
                raise Again
            return [TopicPartition(p.topic, p.partition, group.committed(int(p.partition))) for p in places]

        partitions = [int(place.partition) for place in places]
        return self._broker.ask(self._process.name, f"committed {partitions}", timeout, request)

    # ---- reading

    def poll(self, timeout: float) -> Message | None:
        scheduler = self._broker.scheduler
        lazy = timeout * scheduler.random.choice((1, 1, 5, 10))  # the machine may be busy: fewer empty turns
        until = scheduler.now + lazy
        while True:  # a callback ends no poll
            scheduler.wait(until - scheduler.now, self._has_news)
            if self._fatal is not None:
                return Message(topic=self._broker.lifecycle, partition=-1, offset=INVALID, error=self._fatal)
            if not self._serve():
                break
        found = self._reading.fetch(1)
        return found[0] if found else None

    def _has_news(self) -> bool:
        return bool(self._events) or self._fatal is not None or self._reading.ready

    def consume(self, most: int, timeout: float) -> list[Message]:
        self._broker.scheduler.wait(timeout)
        if self._serve():
            return []
        return self._reading.fetch(most)

    def seek(self, place: TopicPartition) -> None:
        self._broker.scheduler.step()
        found = self._reading.places.get((place.topic, int(place.partition)))
        if found is None:
            raise errors.state(f"seek in {place.topic}:{place.partition}, which is not assigned")
        found.position = int(place.offset)
        found.delivered = None

    def pause(self, places: list[TopicPartition]) -> None:
        self._pause("pause", places, paused=True)

    def resume(self, places: list[TopicPartition]) -> None:
        self._pause("resume", places, paused=False)

    def _pause(self, what: str, places: list[TopicPartition], *, paused: bool) -> None:
        for place in places:
            found = self._reading.places.get((place.topic, int(place.partition)))
            if found is None:
                raise errors.state(f"{what} of {place.topic}:{place.partition}, which is not assigned")
            found.paused = paused

    def get_watermark_offsets(
        self, place: TopicPartition, timeout: float = 5.0, cached: bool = False
    ) -> tuple[int, int]:
        key = (place.topic, int(place.partition))
        if cached:
            return self._reading.places[key].ends if key in self._reading.places else (INVALID, INVALID)
        log = self._broker.logs[key]
        what = f"watermarks of {place.topic}:{place.partition}"
        return self._broker.ask(self._process.name, what, timeout, lambda: (0, log.stable_end))

    def list_topics(self, topic: str, timeout: float) -> _Topics:
        found = _Topics({topic: _Partitions(dict.fromkeys(range(self._broker.partitions)))})
        return self._broker.ask(self._process.name, f"list_topics {topic}", timeout, lambda: found)

    def close(self) -> None:
        """A static member does not leave the group."""
        self._broker.scheduler.step()
        if self._owned and self._fatal is None:
            with self._serving():
                self._callbacks["revoke"](self, [TopicPartition(self._broker.lifecycle, p) for p in self._owned])
        self._callbacks.clear()
