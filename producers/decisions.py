"""Reads the decisions of a run as they are committed, for whoever waits for one, or for something to move."""

import threading
from collections import OrderedDict
from collections.abc import Collection
from dataclasses import dataclass, field
from types import TracebackType

from confluent_kafka import Consumer, KafkaError, Message, TopicPartition

from rollbook.infra.settings import Settings, Topic
from rollbook.producers.errors import ClientClosed
from rollbook.producers.process import Ownership
from rollbook.producers.reading import group_less_consumer, watermarks
from rollbook.schemas.codec import Decoded, unwrap, validate
from rollbook.schemas.errors import EnvironmentFault, RollbookError
from rollbook.schemas.records.decision import Decision, Outcome

CONNECT_TIMEOUT_S = 5.0
MAX_EXPECTED = 4096
_POLL_S = 0.1


@dataclass(slots=True)
class _Expected:
    """A record whose decision somebody will ask for."""

    decision: Decoded | None = None
    failure: RollbookError | None = None


@dataclass(slots=True)
class _Activity:
    """How many records of each type were accepted since the reader began."""

    accepted: dict[str, int] = field(default_factory=dict)

    def of(self, record_types: Collection[str]) -> int:
        return sum(self.accepted.get(name, 0) for name in record_types)


class DecisionReader:
    """Follows one partition of `decisions` from its end at the time of the call, in a thread of its own.

    `expect` comes before the record is sent, `wait` after; only decisions that are expected are kept. Raises
    EnvironmentFault when the topic cannot be read.
    """

    def __init__(
        self, settings: Settings, run_id: str, partition: int, *, connect_timeout_s: float = CONNECT_TIMEOUT_S
    ) -> None:
        self._ownership = Ownership("decision reader")
        self._run_id = run_id
        self._topic = settings.topic(Topic.DECISIONS)
        self._changed = threading.Condition()
        self._expected: OrderedDict[str, _Expected] = OrderedDict()
        self._activity = _Activity()
        self._fault: EnvironmentFault | None = None
        self._stopping = threading.Event()
        self._consumer = follow(settings)
        self._ownership.keep(self._consumer)
        self._assign_end(settings, partition, connect_timeout_s)
        self._thread = threading.Thread(target=self._serve, name="rollbook-decisions", daemon=True)
        self._thread.start()

    def expect(self, event_id: str) -> None:
        """Keep the decision of this event when it comes. The oldest of too many is forgotten."""
        self._check()
        with self._changed:
            self._expected.setdefault(event_id, _Expected())
            while len(self._expected) > MAX_EXPECTED:
                self._expected.popitem(last=False)

    def fail(self, event_id: str, failure: RollbookError) -> None:
        """No decision will come: whoever waits for it gets the failure."""
        with self._changed:
            if event_id in self._expected:
                self._expected[event_id].failure = failure
                self._changed.notify_all()

    def wait(self, event_id: str, deadline_s: float) -> Decision | None:
        """The decision, which is then forgotten; None when it is not there in time, and it is kept on expecting it.

        Raises the failure that `fail` named, or EnvironmentFault when the topic cannot be read any more.
        """
        self._check()
        with self._changed:
            self._changed.wait_for(lambda: self._settled(event_id), deadline_s)
            entry = self._expected.get(event_id, _Expected())
            if entry.decision is None and entry.failure is None:
                if self._fault is not None:
                    raise self._fault
                return None
            del self._expected[event_id]
        if entry.decision is None:
            assert entry.failure is not None
            raise entry.failure
        decision = validate(entry.decision)
        assert isinstance(decision, Decision)
        return decision

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

    def close(self) -> None:
        if self._stopping.is_set() or self._ownership.inherited:
            return
        self._stopping.set()
        self._thread.join()
        self._consumer.close()

    def __enter__(self) -> "DecisionReader":
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def _check(self) -> None:
        self._ownership.check()
        if self._stopping.is_set():
            raise ClientClosed("the client is closed: use it inside its with block")

    def _settled(self, event_id: str) -> bool:
        entry = self._expected.get(event_id)
        return self._fault is not None or entry is None or bool(entry.decision or entry.failure)

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
            if entry is not None and entry.decision is None:
                entry.decision = decoded
            if decoded.fields["run_id"] == self._run_id and decoded.fields["outcome"] == Outcome.ACCEPTED.value:
                record_type = str(decoded.fields["record_type"])
                self._activity.accepted[record_type] = self._activity.accepted.get(record_type, 0) + 1
            self._changed.notify_all()

    def _break(self, problem: str) -> None:
        with self._changed:
            self._fault = EnvironmentFault(
                f"decisions can no longer be read from {self._topic}: {problem}: make a new client (a newer rollbook, "
                "should the record be of a newer schema)"
            )
            self._changed.notify_all()


def follow(settings: Settings) -> Consumer:
    """A consumer that sees committed records only, as soon as they are there."""
    return group_less_consumer(settings, isolation_level="read_committed", fetch_wait_max_ms=100)
