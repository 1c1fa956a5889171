"""Reads the decisions of a run as they are committed, for whoever waits for one, or for something to move."""

import threading
from collections import OrderedDict
from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass, field

from confluent_kafka import KafkaError, Message, TopicPartition

from rollbook.infra.settings import Settings, Topic
from rollbook.producers.errors import ClientBroken
from rollbook.producers.reading.follower import Follower
from rollbook.producers.reading.reader import watermarks
from rollbook.producers.reading.verdicts import Verdicts
from rollbook.schemas.codec import Decoded, unwrap, validate
from rollbook.schemas.errors import EnvironmentFault, RollbookError
from rollbook.schemas.records.decision import Decision, Outcome

CONNECT_TIMEOUT_S = 5.0
MAX_EXPECTED = 4096
_POLL_S = 0.05


Choose = Callable[[Sequence[Decoded]], Decoded | None]
"""The answer that counts among those that were read so far; None: none yet."""


@dataclass(slots=True)
class _Expected:
    """A record whose decisions somebody will ask for: one for each copy of it that was sent."""

    answers: list[Decoded] = field(default_factory=list)
    failure: RollbookError | None = None


@dataclass(slots=True)
class _Activity:
    """How many records of each type were accepted since the reader began."""

    accepted: dict[str, int] = field(default_factory=dict)

    def of(self, record_types: Collection[str]) -> int:
        return sum(self.accepted.get(name, 0) for name in record_types)


class DecisionReader(Follower):
    """Follows one partition of `decisions` from its end at the time of the call, in a thread of its own.

    `expect` comes before the record is sent, `wait` after; only decisions that are expected are kept. `verdicts` hears
    of all decisions of the run. Raises EnvironmentFault when the topic cannot be read.
    """

    def __init__(
        self,
        settings: Settings,
        run_id: str,
        partition: int,
        *,
        connect_timeout_s: float = CONNECT_TIMEOUT_S,
        verdicts: Verdicts | None = None,
    ) -> None:
        super().__init__(settings, "decision reader", gone="the client is closed: use it inside its with block")
        self._run_id = run_id
        self._topic = settings.topic(Topic.DECISIONS)
        self._changed = threading.Condition()
        self._expected: OrderedDict[str, _Expected] = OrderedDict()
        self._activity = _Activity()
        self._chain = ""
        self._verdicts = verdicts
        self._fault: ClientBroken | None = None
        self._assign_end(settings, partition, connect_timeout_s)
        self._begin("rollbook-decisions")

    def expect(self, event_id: str) -> None:
        """Keep the decisions of this event when they come. The oldest of too many is forgotten."""
        self._check()
        with self._changed:
            self._expected.setdefault(event_id, _Expected()).failure = None
            while len(self._expected) > MAX_EXPECTED:
                self._expected.popitem(last=False)

    def fail(self, event_id: str, failure: RollbookError) -> None:
        """The copy just sent will have no decision: whoever waits for it gets the failure."""
        with self._changed:
            if event_id in self._expected:
                self._expected[event_id].failure = failure
                self._changed.notify_all()

    def wake(self) -> None:
        """Something that the choice of an answer depends on has changed."""
        with self._changed:
            self._changed.notify_all()

    def wait(self, event_id: str, choose: Choose, deadline_s: float) -> Decision | None:
        """The decision chosen, and its event is then forgotten; None when it is not there in time, and the answers
        read so far are kept.

        Raises the failure that `fail` named, or ClientBroken when the topic cannot be read any more.
        """
        self._check()
        with self._changed:
            self._changed.wait_for(lambda: self._settled(event_id, choose), deadline_s)
            entry = self._expected.get(event_id, _Expected())
            chosen = choose(entry.answers)
            if chosen is None:
                if entry.failure is not None:
                    raise entry.failure
                if self._fault is not None:
                    raise self._fault
                return None
            del self._expected[event_id]
        decision = validate(chosen)
        assert isinstance(decision, Decision)
        return decision

    def forget(self, event_id: str) -> None:
        """Nobody will ask for it any more."""
        with self._changed:
            self._expected.pop(event_id, None)

    def wait_until(self, reached: Callable[[], bool], deadline_s: float) -> bool:
        """Wait until the decisions read so far make it true."""
        with self._changed:
            return self._changed.wait_for(lambda: self._fault is not None or reached(), deadline_s)

    @property
    def chain(self) -> str:
        """The link of the run's last decision that was read; empty before the first."""
        return self._chain

    def activity(self, record_types: Collection[str]) -> int:
        """How many records of these types were accepted so far: a mark for `wait_for_activity`."""
        with self._changed:
            return self._activity.of(record_types)

    def wait_for_activity(self, record_types: Collection[str], since: int, deadline_s: float) -> bool:
        """Wait until a record of these types has been accepted since the mark; False when none was in time."""
        self._check()
        with self._changed:
            return self._changed.wait_for(
                lambda: self._fault is not None or self._activity.of(record_types) > since, deadline_s
            )

    def _settled(self, event_id: str, choose: Choose) -> bool:
        entry = self._expected.get(event_id)
        if self._fault is not None or entry is None or entry.failure is not None:
            return True
        return choose(entry.answers) is not None

    def _assign_end(self, settings: Settings, partition: int, timeout_s: float) -> None:
        place = TopicPartition(self._topic, partition)
        try:
            _, end = watermarks(self._consumer, settings, place, timeout_s)
        except EnvironmentFault:
            self._consumer.close()
            raise
        # A fixed offset, taken before any command is sent: "the end" resolved later could be behind its decision.
        self._consumer.assign([TopicPartition(self._topic, partition, end)])

    def _serve(self) -> None:
        while not self._stopping.is_set():
            message = self._consumer.poll(_POLL_S)
            if message is None:
                continue
            try:
                self._take(message)
            except Exception as defect:  # of ours; whoever waits must hear of it and not wait in vain
                self._break(f"offset {message.offset()}: {type(defect).__name__}: {defect}")

    def _take(self, message: Message) -> None:
        error = message.error()
        if error is not None:
            # Everything else heals: librdkafka connects again by itself.
            if error.fatal() or error.code() == KafkaError._AUTO_OFFSET_RESET:
                self._break(error.str())
            return
        try:
            decoded = unwrap(message.value() or b"")
        except RollbookError as problem:
            self._break(f"offset {message.offset()}: {problem}")
            return
        with self._changed:
            entry = self._expected.get(str(decoded.fields["event_id"]))
            if entry is not None:
                entry.answers.append(decoded)
            if decoded.fields["run_id"] == self._run_id:
                self._chain = str(decoded.fields["chain"])
                if self._verdicts is not None:
                    self._verdicts.note(decoded)
                if decoded.fields["outcome"] == Outcome.ACCEPTED.value:
                    record_type = str(decoded.fields["record_type"])
                    self._activity.accepted[record_type] = self._activity.accepted.get(record_type, 0) + 1
            self._changed.notify_all()

    def _break(self, problem: str) -> None:
        with self._changed:
            self._fault = ClientBroken(
                f"decisions can no longer be read from {self._topic}: {problem}: make a new client (a newer rollbook, "
                "should the record be of a newer schema)"
            )
            self._changed.notify_all()
