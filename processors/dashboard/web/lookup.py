"""The history of one trajectory: the decisions about it, read from where the view remembers that they lie."""

import shlex
import threading
import time
from collections.abc import Iterator
from http import HTTPStatus

from confluent_kafka import Consumer, KafkaError, KafkaException, Message, TopicPartition

from rollbook.infra.settings import Settings, Topic
from rollbook.processors.dashboard.answers import Reading, Trajectory, TrajectoryStep
from rollbook.processors.dashboard.fold.view import Remembered
from rollbook.processors.dashboard.reading.clients import picker
from rollbook.processors.dashboard.shared import Shared
from rollbook.processors.dashboard.web.answering import Refused, shown
from rollbook.schemas.codec import decode_as
from rollbook.schemas.records.decision import Decision

MOST_READ = 200
WITHIN_S = 8.0
KEPT_S = 2.0
_MOST_KEPT = 64
_MOST_AT_ONCE = 2
_POLL_S = 0.25
_NEAR = 500
"""Offsets up to which reading on is quicker than fetching anew."""


class Lookup:
    """Answers from threads of its caller; few at once, and each for a bounded time."""

    def __init__(self, settings: Settings, shared: Shared) -> None:
        self._settings = settings
        self._shared = shared
        self._topic = settings.topic(Topic.DECISIONS)
        self._places = threading.BoundedSemaphore(_MOST_AT_ONCE)
        self._closing = threading.Event()
        self._lock = threading.Lock()
        self._kept: dict[tuple[str, str, Remembered], tuple[float, Trajectory]] = {}

    def trajectory(self, run_id: str, trajectory_id: str) -> Trajectory:
        """Its history. Raises Refused where nothing is known of it, or the log does not answer."""
        places = self._shared.remembered(run_id, trajectory_id)
        if places is None:
            raise unknown_run(run_id)
        if not places.offsets:
            raise Refused(
                HTTPStatus.NOT_FOUND,
                f"no decision about trajectory {shown(trajectory_id)} of run {shown(run_id)} is remembered: check the "
                f"id, or look with `{_command(run_id, trajectory_id)}`",
            )
        key = (run_id, trajectory_id, places)
        kept = self._kept_now(key)
        if kept is not None:
            return kept
        standing = self._shared.standing
        if standing.reading in (Reading.WAITING, Reading.CUT_OFF):  # who asks is told at once what the reader knows
            raise _not_to_be_read(standing.fault)
        if not self._places.acquire(blocking=False):
            raise Refused(
                HTTPStatus.SERVICE_UNAVAILABLE, "other histories are being read: ask again", {"Retry-After": "1"}
            )
        try:
            found = self._read(run_id, trajectory_id, places)
        finally:
            self._places.release()
        self._keep(key, found)
        return found

    def close(self) -> None:
        """End what is being read, soon."""
        self._closing.set()

    def _kept_now(self, key: tuple[str, str, Remembered]) -> Trajectory | None:
        with self._lock:
            at, kept = self._kept.get(key, (0.0, None))
            return kept if time.monotonic() - at < KEPT_S else None

    def _keep(self, key: tuple[str, str, Remembered], found: Trajectory) -> None:
        with self._lock:
            if len(self._kept) >= _MOST_KEPT:
                self._kept.clear()
            self._kept[key] = (time.monotonic(), found)

    def _read(self, run_id: str, trajectory_id: str, places: Remembered) -> Trajectory:
        offsets = places.offsets[-MOST_READ:]
        steps: list[TrajectoryStep] = []
        read = 0
        consumer = picker(self._settings)
        try:
            for message in _messages(consumer, TopicPartition(self._topic, places.partition), offsets, self._closing):
                decision = decode_as(Decision, message.value() or b"")
                steps += steps_of(decision, message.timestamp()[1], run_id, trajectory_id)
                read += 1
        except (KafkaException, TimeoutError) as error:
            why = self._settings.hidden(error.args[0].str()) if isinstance(error, KafkaException) else str(error)
            raise _not_to_be_read(why) from None
        finally:
            consumer.close()
        return Trajectory(
            run_id=run_id,
            trajectory_id=trajectory_id,
            steps=tuple(steps),
            complete=places.complete and read == len(places.offsets),
            more=_command(run_id, trajectory_id),
        )


def steps_of(decision: Decision, at_ms: int, run_id: str, trajectory_id: str) -> Iterator[TrajectoryStep]:
    """What a decision says about a trajectory: in its rows, as a fact whose turn came, as one of many that changed at
    once, or else as its subject."""
    if decision.run_id != run_id:
        return
    bare = TrajectoryStep(
        sequence=decision.sequence,
        time_ms=at_ms,
        source_offset=decision.source.offset,
        record_type=decision.record_type,
        outcome=decision.outcome.value,
        reason=decision.reason,
        state_before=None,
        state_after=None,
        lag=None,
        mean_abs_log_ratio=None,
        update_id=decision.update_id or "",
    )
    said = False
    for item in decision.items:
        if item.trajectory_id == trajectory_id:
            said = True
            yield bare.model_copy(
                update={
                    "reason": item.reason,
                    "state_before": item.state_before,
                    "state_after": item.state_after,
                    "lag": item.lag,
                    "mean_abs_log_ratio": item.mean_abs_log_ratio,
                }
            )
    for released in decision.released:
        if released.subject_id == trajectory_id:
            said = True
            yield bare.model_copy(update={"reason": released.reason})
    for change in decision.mass_changes:
        if trajectory_id in change.first_ids:
            said = True
            yield bare.model_copy(update={"reason": change.predicate})
    subject = decision.subject
    if not said and subject is not None and subject.kind in ("trajectory", "reward") and subject.id == trajectory_id:
        yield bare


def _not_to_be_read(why: str) -> Refused:
    return Refused(
        HTTPStatus.SERVICE_UNAVAILABLE,
        f"the decisions topic cannot be read ({why}): see that the broker is up, and ask again",
        {"Retry-After": "5"},
    )


def unknown_run(run_id: str) -> Refused:
    """The problem of a run that was not read of."""
    return Refused(
        HTTPStatus.NOT_FOUND, f"run {shown(run_id)} is not known (yet): /api/runs lists the runs that were read"
    )


def _messages(
    consumer: Consumer, place: TopicPartition, offsets: tuple[int, ...], closing: threading.Event
) -> Iterator[Message]:
    """The records at these offsets, which rise; without those that are gone. Raises TimeoutError or KafkaException."""
    end = time.monotonic() + WITHIN_S
    at: int | None = None
    for offset in offsets:
        if at is None or not 0 <= offset - at < _NEAR:
            consumer.assign([TopicPartition(place.topic, place.partition, offset)])
            at = offset
        while at <= offset:
            message = consumer.poll(_POLL_S)
            if message is None:
                if time.monotonic() > end or closing.is_set():
                    raise TimeoutError(f"no answer within {WITHIN_S:.0f} s")
                continue
            error = message.error()
            if error is not None:
                if error.code() == KafkaError._AUTO_OFFSET_RESET:
                    return
                if error.fatal() or time.monotonic() > end:
                    raise KafkaException(error)
                continue
            found = message.offset()
            assert found is not None
            at = found + 1
            if found == offset:
                yield message


def _command(run_id: str, trajectory_id: str) -> str:
    return f"rollbook explain {shlex.quote(trajectory_id)} --run {shlex.quote(run_id)}"
