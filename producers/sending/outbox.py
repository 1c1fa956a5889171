"""What waits for the broker: bounded, counted, payloads before the records that refer to them, never blocking."""

import logging
import threading
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

from rollbook.infra.settings import LIFECYCLE_MAX_BYTES, Topic
from rollbook.producers.errors import ClientClosed, DeliveryFailed, QueueFull
from rollbook.producers.redaction.identifiers import check_identifiers
from rollbook.producers.sending.connection import Connection, OnDelivered
from rollbook.producers.sending.delivery import Payload
from rollbook.producers.sending.lane import Lane, Place
from rollbook.schemas.codec import encode
from rollbook.schemas.errors import BadInput, RollbookError
from rollbook.schemas.partition import partition_of
from rollbook.schemas.payload_io import split
from rollbook.schemas.records.common import Lifecycle, PayloadRef

MAX_EVENTS = 100_000
MAX_BYTES = 256 * 1024 * 1024
_CLOSED = "a record was still waiting when its client was closed: publish it again"
_LOG = logging.getLogger("rollbook.producers")
Build = Callable[[tuple[PayloadRef, ...]], Lifecycle]
OnError = Callable[[RollbookError], None]


@dataclass(frozen=True, slots=True)
class Counters:
    """Lifecycle records since the client was made."""

    published: int = 0
    delivered: int = 0
    lost: int = 0
    refused: int = 0
    """Of a client that waits for no decision: records that the ledger refused."""


@dataclass(frozen=True, slots=True)
class PayloadBytes:
    """A payload to publish; the key decides its partition."""

    key: str
    data: bytes


class Outbox:
    """Publishes the records of one run without ever blocking its caller.

    Trouble does not reach the caller of `publish`: it goes to `on_error` (called from either thread), or else the first
    one is kept and raised by `flush`. Records of one client keep their order, commands among them: one that waits for
    its payloads holds back the later ones, until its payloads have arrived or it is lost with them. Only recordings
    hold nothing back: no other record refers to them, and they are large.
    """

    def __init__(
        self,
        connection: Connection,
        run_id: str,
        *,
        on_error: OnError | None = None,
        max_events: int = MAX_EVENTS,
        max_bytes: int = MAX_BYTES,
        on_queued: Callable[[str], None] | None = None,
    ) -> None:
        """`on_queued` hears the event id of each record that is not a command before it leaves."""
        self._connection = connection
        self._run_id = run_id
        self.partition = partition_of(run_id, connection.partitions(Topic.LIFECYCLE))
        self._on_error = on_error
        self._on_queued = on_queued
        self._max_events = max_events
        self._max_bytes = max_bytes
        self._changed = threading.Condition()
        self._events = 0
        self._bytes = 0
        self._counters = Counters()
        self._kept_error: RollbookError | None = None
        self._lane = Lane()

    @property
    def counters(self) -> Counters:
        return self._counters

    def publish(self, build: Build, payloads: Sequence[PayloadBytes] = ()) -> None:
        """Queue payloads and then the record that refers to them. Raises only what the contract refuses in it."""
        self._connection.check()
        waiting = [(payload.key, split(payload.data)) for payload in payloads]
        handles = [self._handle(key, chunks) for key, chunks in waiting]
        # Built once with stand-in references, so that whatever the contract refuses is raised here and sends nothing.
        draft = build(tuple(handle.ref for handle in handles))
        encoded_bytes = len(encode_checked(draft))
        try:
            self._take(encoded_bytes + sum(len(payload.data) for payload in payloads))
        except QueueFull as full:
            self.lose(full)
            return
        self._note_queued(draft)
        place = self._lane.queue(lambda: self._produce(handles, build, encoded_bytes))
        for (key, chunks), handle in zip(waiting, handles, strict=True):
            self._send_chunks(key, chunks, handle)
        self._go_after(handles, place)

    def payload(self, payload: PayloadBytes) -> Payload:
        """Queue a payload alone, for a record that follows with `publish_after`. Raises QueueFull."""
        self._connection.check()
        chunks = split(payload.data)
        handle = self._handle(payload.key, chunks)
        self._take(len(payload.data), events=0)
        self._send_chunks(payload.key, chunks, handle)
        return handle

    def publish_after(self, payloads: Sequence[Payload], build: Build) -> None:
        """Queue a record that refers to payloads queued before; it holds no later one back."""
        self._connection.check()
        draft = build(tuple(handle.ref for handle in payloads))
        encoded_bytes = len(encode_checked(draft))
        try:
            self._take(encoded_bytes)
        except QueueFull as full:
            self.lose(full)
            return
        self._note_queued(draft)
        place = self._lane.queue(lambda: self._produce(payloads, build, encoded_bytes), holds=False)
        self._go_after(payloads, place)

    def send(self, value: bytes, on_sent: OnDelivered) -> None:
        """Queue an encoded command; `on_sent` hears of its fate. Raises QueueFull: nothing was sent."""
        self._connection.check()
        self._take(len(value))

        def done(offset: int | None, failure: DeliveryFailed | None) -> None:
            self._settle(len(value), failure is None)
            on_sent(offset, failure)

        self._lane.ready(self._lane.queue(lambda: self._hand_over(value, done)))

    def wait_for(self, payloads: Sequence[Payload], deadline_s: float) -> tuple[PayloadRef, ...]:
        """Wait until payloads have arrived. Raises DeliveryFailed when one did not, or not in time."""
        settled = threading.Semaphore(0)
        for payload in payloads:
            payload.when_settled(settled.release)
        end = time.monotonic() + deadline_s
        for payload in payloads:
            if not settled.acquire(timeout=max(0.0, end - time.monotonic())):
                raise DeliveryFailed(
                    f"payloads did not reach the broker within {deadline_s:g} s: see that it is up, and try again"
                )
            if payload.failure is not None:
                raise payload.failure
        return tuple(payload.ref for payload in payloads)

    def flush(self, deadline_s: float) -> int:
        """Wait until nothing is on its way; returns how many events still are. Raises the first error kept."""
        self._connection.check()
        with self._changed:
            self._changed.wait_for(lambda: not self._events and not self._bytes, deadline_s)
            error, self._kept_error = self._kept_error, None
            left = self._events
        if error is not None:
            raise error
        return left

    def _note_queued(self, record: Lifecycle) -> None:
        if self._on_queued is not None:
            self._on_queued(record.header.event_id)

    def _handle(self, key: str, chunks: Sequence[bytes]) -> Payload:
        partition = partition_of(key, self._connection.partitions(Topic.PAYLOADS))
        return Payload(self._connection.topic(Topic.PAYLOADS), partition, chunks)

    def _send_chunks(self, key: str, chunks: Sequence[bytes], handle: Payload) -> None:
        for index, chunk in enumerate(chunks):
            self._send_chunk(key, chunk, index, handle)

    def _send_chunk(self, key: str, chunk: bytes, index: int, handle: Payload) -> None:
        def done(offset: int | None, failure: DeliveryFailed | None) -> None:
            if offset is None and failure is None:  # it is there, but a reference must say where: once more
                self._send_chunk(key, chunk, index, handle)
                return
            self._release(len(chunk), events=0)
            handle.chunk_arrived(index, offset, failure)

        try:
            self._connection.produce(Topic.PAYLOADS, handle.ref.partition, key, chunk, done)
        except DeliveryFailed as failure:
            done(None, failure)
        except ClientClosed:
            done(None, DeliveryFailed(_CLOSED))

    def _go_after(self, payloads: Sequence[Payload], place: Place) -> None:
        """Let the record go when the last payload has settled: from this thread if all have, else from the poll's."""
        remaining = len(payloads)
        lock = threading.Lock()

        def one_settled() -> None:
            nonlocal remaining
            with lock:
                remaining -= 1
                last = remaining == 0
            if last:
                self._lane.ready(place)

        for payload in payloads:
            payload.when_settled(one_settled)
        if not payloads:
            self._lane.ready(place)

    def _produce(self, payloads: Sequence[Payload], build: Build, encoded_bytes: int) -> None:
        def done(_: int | None, failure: DeliveryFailed | None) -> None:
            self._settle(encoded_bytes, failure is None)
            if failure is not None:
                self._tell(failure)

        lost = next((payload.failure for payload in payloads if payload.failure is not None), None)
        if lost is not None:
            done(None, lost)
            return
        try:
            value = _encode(build(tuple(payload.ref for payload in payloads)))
        except RollbookError as error:
            self._settle(encoded_bytes, delivered=False)
            self._tell(error)
            return
        self._hand_over(value, done)

    def _hand_over(self, value: bytes, done: OnDelivered) -> None:
        """Give a record to the connection; a failure reaches `done`, like those that the broker reports later."""
        try:
            self._connection.produce(Topic.LIFECYCLE, self.partition, self._run_id, value, done)
        except DeliveryFailed as failure:
            done(None, failure)
        except ClientClosed:
            done(None, DeliveryFailed(_CLOSED))

    def _take(self, size: int, events: int = 1) -> None:
        with self._changed:
            # Alone, an event larger than the limit passes: it could never be published otherwise.
            crowded = self._bytes > 0 and self._bytes + size > self._max_bytes
            if crowded or self._events + events > self._max_events:
                raise QueueFull(
                    f"{self._events} events and {self._bytes} bytes wait for the broker, the limits are "
                    f"{self._max_events} and {self._max_bytes}: the event was not taken; see that the broker is up, "
                    "slow down, or raise the limits of the client"
                )
            self._events += events
            self._bytes += size
            counters = self._counters
            self._counters = replace(counters, published=counters.published + events)

    def _release(self, size: int, events: int) -> None:
        with self._changed:
            self._bytes -= size
            self._events -= events
            self._changed.notify_all()

    def _settle(self, size: int, delivered: bool) -> None:
        with self._changed:
            counters = self._counters
            self._counters = replace(
                counters, delivered=counters.delivered + delivered, lost=counters.lost + (not delivered)
            )
        self._release(size, events=1)

    def lose(self, error: RollbookError) -> None:
        """Count and tell of an event that is lost, without raising into the caller."""
        with self._changed:
            counters = self._counters
            self._counters = replace(counters, lost=counters.lost + 1)
        self._tell(error)

    def _tell(self, error: RollbookError) -> None:
        if self._on_error is None:
            with self._changed:
                self._kept_error = self._kept_error or error
            return
        try:
            self._on_error(error)
        except Exception:  # the callback is not ours: whatever it raises must stop neither publishing nor training
            _LOG.exception("on_error itself failed on: %s", error)


def encode_checked(record: Lifecycle) -> bytes:
    """The record's bytes. Raises ContractViolation for an identifier that is no name, and BadInput when it is larger
    than the lifecycle topic takes."""
    check_identifiers(record)
    return _encode(record)


def _encode(record: Lifecycle) -> bytes:
    value = encode(record)
    if len(value) > LIFECYCLE_MAX_BYTES:
        raise BadInput(
            f"{type(record).__name__} has {len(value)} bytes, a lifecycle record at most {LIFECYCLE_MAX_BYTES}: "
            "split it into several"
        )
    return value
