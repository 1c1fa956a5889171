"""What all clients share: events that never block, commands that wait for their decision, an orderly end."""

import logging
from dataclasses import dataclass, field
from types import TracebackType
from typing import Self

from rollbook.infra.settings import Settings
from rollbook.producers import given
from rollbook.producers.errors import DecisionTimeout, DeliveryFailed, QueueFull, error_of
from rollbook.producers.identity import new_id, now_ms
from rollbook.producers.reading.decisions import DecisionReader
from rollbook.producers.reading.verdicts import Verdicts
from rollbook.producers.redaction.identifiers import check_identifiers
from rollbook.producers.redaction.policy import Redaction
from rollbook.producers.sending.command import YES, Command
from rollbook.producers.sending.connection import CONNECT_TIMEOUT_S, DELIVERY_TIMEOUT_S, Connection
from rollbook.producers.sending.outbox import MAX_BYTES, MAX_EVENTS, Counters, OnError, Outbox
from rollbook.schemas.errors import BadInput
from rollbook.schemas.records.common import Header, Lifecycle, Source, SourceKind
from rollbook.schemas.records.decision import Decision
from rollbook.schemas.records.reward import Discarded, DiscardReason
from rollbook.schemas.types import called

_LOG = logging.getLogger("rollbook.producers")
_SHORTEST_S, _LONGEST_S = 0.01, 1_000_000.0


@dataclass(frozen=True, slots=True)
class Options:
    """How patient a client is, how much it may hold, and what it may tell. `on_error` hears of each event that is lost.

    Without `on_error` the first error is raised by `flush` or at the end of the with block; publishing itself raises
    only what the contract refuses.
    """

    on_error: OnError | None = None
    max_events: int = MAX_EVENTS
    max_bytes: int = MAX_BYTES
    connect_timeout_s: float = CONNECT_TIMEOUT_S
    delivery_timeout_s: float = DELIVERY_TIMEOUT_S
    decision_timeout_s: float = 30.0
    close_timeout_s: float = 30.0
    redaction: Redaction = field(default_factory=Redaction)

    def __post_init__(self) -> None:
        if self.on_error is not None and not callable(self.on_error):
            raise BadInput(f"Options: on_error is {called(self.on_error)}, it must be a function of one error")
        if not isinstance(self.redaction, Redaction):
            raise BadInput(f"Options: redaction is {called(self.redaction)}, it must be a Redaction(...)")
        for name in ("max_events", "max_bytes"):
            value = getattr(self, name)
            if type(value) is not int or value < 1:
                raise BadInput(f"Options: {name} is {value!r}, it must be a whole number above 0")
        for name in ("connect_timeout_s", "delivery_timeout_s", "decision_timeout_s", "close_timeout_s"):
            value = getattr(self, name)
            if type(value) not in (int, float) or not _SHORTEST_S <= value <= _LONGEST_S:  # NaN is in no range
                raise BadInput(
                    f"Options: {name} is {value!r}, it must be seconds from {_SHORTEST_S:g} to {_LONGEST_S:g}"
                )


def checked(options: Options | None) -> Options:
    """The options, or those by default. Raises BadInput."""
    if options is not None and not isinstance(options, Options):
        raise BadInput(f"options is {called(options)}, and must be an Options: give Options(...)")
    return options or Options()


class Client:
    """A writer of one run. Use it as a context manager: leaving the block flushes.

    Raises EnvironmentFault when no broker answers or the topics are missing.
    """

    def __init__(
        self,
        settings: Settings,
        run_id: str,
        source: Source,
        options: Options | None,
        *,
        commands: bool,
        verdicts: Verdicts | None = None,
    ) -> None:
        self._settings = given.settings(settings)
        self._run_id = run_id
        self._source = source
        self._options = checked(options)
        self._redaction = self._options.redaction
        check_identifiers(self._header())  # a bad name or run id is refused before anything is opened
        self._connection = Connection(
            settings,
            connect_timeout_s=self._options.connect_timeout_s,
            delivery_timeout_s=self._options.delivery_timeout_s,
        )
        self._outbox = Outbox(
            self._connection,
            run_id,
            on_error=self._options.on_error,
            max_events=self._options.max_events,
            max_bytes=self._options.max_bytes,
            on_queued=None if verdicts is None else verdicts.expect,
        )
        self._reader: DecisionReader | None = None
        if commands:
            try:
                self._reader = DecisionReader(
                    settings,
                    run_id,
                    self._outbox.partition,
                    connect_timeout_s=self._options.connect_timeout_s,
                    verdicts=verdicts,
                )
            except BaseException:
                self._connection.close()
                raise

    @property
    def run_id(self) -> str:
        return self._run_id

    @property
    def counters(self) -> Counters:
        """Events published, delivered and lost since the client was made."""
        return self._outbox.counters

    def discarded(self, trajectory_ids: tuple[str, ...] | list[str], reason: DiscardReason, *, text: str = "") -> None:
        """Publish that trajectories are filtered out, which is neither a failure nor a refusal."""
        text = self._redaction.text(text)
        ids = given.listed(trajectory_ids, "Discarded", "trajectory_ids")
        self._publish(Discarded(header=self._header(), trajectory_ids=ids, reason=reason, text=text))

    def flush(self, deadline_s: float) -> int:
        """Wait until all that was published has arrived; returns how many events are still on their way.

        Raises the first QueueFull or DeliveryFailed since the last flush, unless `on_error` takes them.
        """
        return self._outbox.flush(given.seconds(deadline_s, "deadline_s"))

    def close(self, deadline_s: float | None = None) -> None:
        """Flush within the deadline and let go. Raises DeliveryFailed when something did not arrive. Once is enough."""
        if self._connection.inherited:
            return
        deadline_s = self._options.close_timeout_s if deadline_s is None else given.seconds(deadline_s, "deadline_s")
        left = 0
        try:
            if self._connection.is_its_thread:
                deadline_s = 0.0  # called from `on_error`: nothing can arrive while this thread waits
            if not self._connection.closed:
                left = self._outbox.flush(deadline_s)
        finally:
            self._connection.close()
            if self._reader is not None:
                self._reader.close()
        if left:
            raise DeliveryFailed(
                f"{left} of {self.counters.published} events had not reached {self._settings.bootstrap_servers} after "
                f"{deadline_s:g} s and are lost: see that the broker is up and publish them again"
            )

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        try:
            self.close()
        except Exception as trouble:
            if error is None:
                raise
            # The block's own exception is the one to see; this one must not take its place.
            error.add_note(f"besides: {trouble}")
            _LOG.warning("while leaving the client's block: %s", trouble)

    def _header(self, kind: SourceKind | None = None) -> Header:
        source = self._source if kind is None else Source(kind=kind, id=self._source.id)
        return Header(run_id=self._run_id, event_id=new_id(), occurred_at=now_ms(), source=source)

    def _publish(self, record: Lifecycle) -> None:
        self._outbox.publish(lambda _: record)

    def _command(self, record: Lifecycle) -> Decision:
        """Send a command and return its decision, or raise the typed error of a refusal."""
        command = Command(record)
        self._send(command)
        return self._read(command)

    def _send(self, command: Command) -> None:
        """Send a command, or one more copy of it after DecisionTimeout or DeliveryFailed. Raises QueueFull."""
        reader = self._decisions
        reader.expect(command.event_id)
        copy = command.next_copy()

        def sent(offset: int | None, failure: DeliveryFailed | None) -> None:
            if copy != command.copies:
                return  # news of an earlier copy, while the caller waits for a later one
            if failure is not None:
                command.failed = True
                reader.fail(command.event_id, failure)
            else:
                command.arrived, command.last_offset = True, offset
                reader.wake()

        try:
            self._outbox.send(command.value, sent)
        except QueueFull:
            command.not_sent()
            raise

    def _read(self, command: Command) -> Decision:
        """The decision that counts among those on all copies of a command. Raises Refused, and DecisionTimeout or
        DeliveryFailed while there is none."""
        deadline_s = self._options.decision_timeout_s
        decision = self._decisions.wait(command.event_id, command.answer, deadline_s)
        if decision is None:
            raise DecisionTimeout(self._timeout_text(command, deadline_s))
        if decision.outcome not in YES:
            raise error_of(decision)
        return decision

    @property
    def _decisions(self) -> DecisionReader:
        assert self._reader is not None, "this client sends no commands"
        return self._reader

    def _timeout_text(self, command: Command, deadline_s: float) -> str:
        if not command.arrived:
            return (
                f"{command.name} has not reached {self._settings.bootstrap_servers} within {deadline_s:g} s: see that "
                "the broker is up, then send the same command again"
            )
        place = "" if command.last_offset is None else f"@{command.last_offset}"
        return (
            f"{command.name} at lifecycle:{self._outbox.partition}{place} has no decision after "
            f"{deadline_s:g} s: see that `rollbook processor run` is up, then send the same command again"
        )
