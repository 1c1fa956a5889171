"""Publishes on behalf of a process that must never wait and never fail: connecting, starting and sending happen in a
thread of its own, behind a bounded queue."""

import logging
import os
import threading
import time
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass, replace

from rollbook.producers.clients.trainer import Trainer
from rollbook.producers.errors import QueueFull, error_of
from rollbook.producers.reading.verdicts import Verdicts
from rollbook.producers.sending.outbox import Counters, OnError
from rollbook.schemas.codec import validate
from rollbook.schemas.errors import EnvironmentFault, RollbookError
from rollbook.schemas.records.decision import Decision

SETTLE_S = 0.5
"""How long what is told waits before it is published: the reward of a row that the training takes is under way from
another producer, and comes before it in the log."""
_LAST_DECISIONS_S = 2.0
_RETRY_S = 1.0
_WARN_EVERY_S = 30.0
_LOG = logging.getLogger("rollbook.producers")
Tell = Callable[[Trainer], None]


@dataclass(frozen=True, slots=True)
class _Told:
    tell: Tell
    size: int
    at: float


class Observer:
    """`open_trainer` gives a started trainer, or raises: EnvironmentFault is tried again, anything else is for good.

    Whatever goes wrong is counted, told to `on_error` or logged (each kind now and then), and never raised; so is what
    the ledger refuses, each reason now and then. `idle` is called in the thread, at least every `idle_s`.
    """

    def __init__(
        self,
        open_trainer: Callable[[], Trainer],
        verdicts: Verdicts,
        *,
        max_events: int,
        max_bytes: int,
        on_error: OnError | None,
        idle: Tell,
        idle_s: float,
    ) -> None:
        self._open_trainer = open_trainer
        self._verdicts = verdicts
        self._max_events = max_events
        self._max_bytes = max_bytes
        self._on_error = on_error
        self._idle = idle
        self._idle_s = idle_s
        self._pid = os.getpid()
        self._changed = threading.Condition()
        self._queue: deque[_Told] = deque()
        self._bytes = 0
        self._lost = 0
        self._ending_at: float | None = None
        self._over: RollbookError | None = None
        self._trainer: Trainer | None = None
        self._warned: dict[str, float] = {}
        self._thread = threading.Thread(target=self._serve, name="rollbook-observer", daemon=True)

    def begin(self) -> None:
        """Connect, and publish what is told."""
        self._thread.start()

    @property
    def counters(self) -> Counters:
        """Records published and delivered so far, everything that was lost on the way, and what was refused."""
        sent = Counters() if self._trainer is None else self._trainer.counters
        return replace(sent, lost=sent.lost + self._lost, refused=self._verdicts.refused)

    def tell(self, tell: Tell, size: int = 0) -> None:
        """Have the thread do it in its turn. `size`: bytes that it keeps alive until then."""
        if os.getpid() != self._pid:
            return  # a forked child has neither the thread nor a say
        with self._changed:
            full = len(self._queue) >= self._max_events or (self._bytes and self._bytes + size > self._max_bytes)
            problem = self._over
            if full:
                problem = QueueFull(f"{len(self._queue)} events wait for the broker: the newest is not recorded")
            if problem is None:
                self._queue.append(_Told(tell, size, time.monotonic()))
                self._bytes += size
                self._changed.notify_all()
        if problem is not None:
            self.lose(problem)

    def lose(self, error: RollbookError) -> None:
        """Count an event that is lost, and tell of it."""
        with self._changed:
            self._lost += 1
        self.warn(error)

    def warn(self, error: RollbookError) -> None:
        """Tell of trouble."""
        if self._on_error is not None:
            self._tell(self._on_error, error)
        elif self._is_due(type(error).__name__):
            _LOG.warning("training goes on unrecorded (%d events lost): %s", self.counters.lost, error)

    def close(self, deadline_s: float) -> None:
        """Give what is queued so long to arrive."""
        if os.getpid() != self._pid:
            return
        with self._changed:
            self._ending_at = self._ending_at or time.monotonic() + deadline_s
            self._changed.notify_all()
        if threading.current_thread() is self._thread:  # called from `on_error`: the thread ends by itself
            return
        self._thread.join(deadline_s + _RETRY_S)
        with self._changed:
            left, self._queue = len(self._queue), deque()
            self._over = self._over or EnvironmentFault("the observing trainer is closed")
        self._lost += left
        if left:
            self.warn(EnvironmentFault(f"{left} events had not been published when the trainer was closed"))

    def _serve(self) -> None:
        try:
            self._trainer = self._opened()
            if self._trainer is None:
                return
            while (told := self._next()) is not None or self._queue or not self._is_ending:
                if told is not None:
                    self._safely(told.tell, self._trainer)
                self._safely(self._idle, self._trainer)
                self._tell_of_refused()
            self._end(self._trainer)
        except RollbookError as error:
            self.warn(error)
        except Exception:  # a defect of ours: it must not reach the training either
            _LOG.exception("the observing thread failed: nothing more is recorded")
            self._refuse(EnvironmentFault("the observing thread failed; see the log"))

    def _end(self, trainer: Trainer) -> None:
        trainer.outbox.flush(self._left_s)
        # What is refused last is told of as well, unless the decisions are slow.
        trainer.decisions.wait_until(lambda: self._verdicts.all_read, min(self._left_s, _LAST_DECISIONS_S))
        self._tell_of_refused()
        trainer.close(self._left_s)

    @property
    def _is_ending(self) -> bool:
        return self._ending_at is not None

    @property
    def _is_late(self) -> bool:
        return self._ending_at is not None and time.monotonic() >= self._ending_at

    @property
    def _left_s(self) -> float:
        assert self._ending_at is not None, "the end has been asked for"
        return max(0.1, self._ending_at - time.monotonic())

    def _tell_of_refused(self) -> None:
        for refused in self._verdicts.take_refused():
            decision = validate(refused)
            assert isinstance(decision, Decision)
            if not self._is_due(decision.reason):
                continue
            if self._on_error is not None:
                self._tell(self._on_error, error_of(decision))
            else:
                _LOG.warning("%d records counted for nothing so far: %s", self._verdicts.refused, error_of(decision))

    def _is_due(self, kind: str) -> bool:
        """Whether trouble of this kind was not told of just now."""
        if time.monotonic() - self._warned.get(kind, -_WARN_EVERY_S) < _WARN_EVERY_S:
            return False
        self._warned[kind] = time.monotonic()
        return True

    def _tell(self, on_error: OnError, error: RollbookError) -> None:
        try:
            on_error(error)
        except Exception:  # the callback is not ours
            _LOG.exception("on_error itself failed on: %s", error)

    def _opened(self) -> Trainer | None:
        while True:
            try:
                return self._open_trainer()
            except EnvironmentFault as fault:
                self.warn(fault)
            except RollbookError as refusal:
                self._refuse(refusal)
                return None
            with self._changed:
                if self._ending_at is not None and time.monotonic() + _RETRY_S > self._ending_at:
                    return None
                self._changed.wait(_RETRY_S)

    def _refuse(self, error: RollbookError) -> None:
        with self._changed:
            self._over = error
            self._lost += len(self._queue)
            self._queue.clear()
        self.warn(error)

    def _next(self) -> _Told | None:
        """What is to be published next; none for as long as the thread may be idle, or at the end."""
        with self._changed:
            self._changed.wait_for(lambda: self._queue or self._is_ending, self._idle_s)
            if not self._queue:
                return None
            unsettled_s = self._queue[0].at + SETTLE_S - time.monotonic()
            if unsettled_s > 0 and not self._is_late:
                self._changed.wait_for(lambda: self._is_late, min(unsettled_s, self._idle_s))
                return None
            told = self._queue.popleft()
            self._bytes -= told.size
            return told

    def _safely(self, tell: Tell, trainer: Trainer) -> None:
        try:
            tell(trainer)
        except RollbookError as error:
            self.lose(error)
        except Exception as error:  # whatever was handed over: it must not end the thread
            _LOG.debug("while recording", exc_info=True)
            self.lose(EnvironmentFault(f"an event could not be recorded ({type(error).__name__}: {error})"))
