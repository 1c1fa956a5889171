"""Follows the committed decisions and snapshots of one run, in a thread of its own: no frame waits for the broker.

As the dashboard does, by the same parts, but of one partition, and from some minutes before its end on, by no more than
so many records. Whatever happens to the broker it goes on trying, and says what keeps it.
"""

import logging
import threading
import time
from collections.abc import Mapping
from contextlib import suppress
from types import TracebackType
from typing import Any

from confluent_kafka import KafkaError, KafkaException, TopicPartition

from rollbook.infra.settings import Settings, Topic
from rollbook.infra.watching.leases import Leases
from rollbook.infra.watching.seen import Seen
from rollbook.infra.watching.tape import SECONDS, Tape
from rollbook.processors.dashboard.answers import Reading
from rollbook.processors.dashboard.fold.view import Stored
from rollbook.processors.dashboard.reading.clients import Faults, asker, follower
from rollbook.processors.dashboard.reading.course import Anew, Course
from rollbook.processors.dashboard.reading.survey import Found, Missing, Place, Survey
from rollbook.processors.dashboard.shared import Shared, Standing
from rollbook.schemas.errors import EnvironmentFault
from rollbook.schemas.partition import partition_of

MOST_DECISIONS = 20_000
"""Offsets before the end at which reading begins at most: a view must be there at once, however busy the run is."""
FEW_SNAPSHOTS = 500
"""The same of the snapshots; where the run has none there, all are read: the topic is compacted."""
_BATCH = 1_000
_WAIT_S = 0.1
_ASK_S = 2.0
_AGAIN_S = 0.5
_CLOSE_S = 0.5

logging.getLogger("rollbook.dashboard").addHandler(logging.NullHandler())  # frames say it; a log would spoil them


class Reader:
    """`seen` says what is known now, and never waits. A context manager."""

    def __init__(self, settings: Settings, run_id: str) -> None:
        self._settings = settings
        self._run_id = run_id
        self._shared = Shared(settings)
        self._leases = Leases(settings)
        self._pursuit = _Pursuit(settings, self._shared, run_id)
        self._defect: Exception | None = None
        self._heard_at: float | None = None
        self._stopping = threading.Event()
        self._thread = threading.Thread(target=self._serve, name="rollbook-watch", daemon=True)
        self._thread.start()

    def seen(self) -> Seen:
        """What is known now. Raises what ended the reading, a defect of ours."""
        if self._defect is not None:
            raise self._defect
        tape, heard_at = self._pursuit.tape, self._heard_at
        snapshot, standing, now_ms = tape.snapshot, self._standing(), tape.newest(_now_ms())
        minutes, strange = self._shared.looked(lambda view: (tape.minutes(view, now_ms), tape.strange(view)))
        return Seen(
            run_id=self._run_id,
            servers=self._settings.bootstrap_servers,
            prefix=self._settings.topic_prefix,
            reading=standing.reading,
            fault=standing.fault or strange,
            now_ms=now_ms,
            heard_s=None if heard_at is None else time.monotonic() - heard_at,
            snapshot=snapshot,
            snapshot_ms=tape.snapshot_ms,
            minutes=minutes,
            leases=() if snapshot is None else self._leases.of(snapshot.updates),
        )

    def close(self) -> None:
        self._stopping.set()
        self._thread.join(_CLOSE_S)
        if not self._thread.is_alive():  # else it is in a call to a broker that is away, and ends with the process
            self._leases.close()

    def __enter__(self) -> "Reader":
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def _standing(self) -> Standing:
        found = self._shared.standing
        if found.reading is Reading.LIVE and not self._pursuit.has_searched:
            return Standing(Reading.CATCHING_UP, found.fault)
        if found.reading is Reading.WAITING and self._heard_at is not None:
            return Standing(Reading.CUT_OFF, found.fault)
        return found

    # ---- the thread

    def _serve(self) -> None:
        while not self._stopping.is_set():
            try:
                self._follow(self._pursuit)
            except Anew as reason:
                self._leases.forget()
                self._shared.stand(Standing(Reading.CATCHING_UP, str(reason)))
            except KafkaException as error:
                self._shared.stand(Standing(Reading.WAITING, self._settings.hidden(error.args[0].str())))
            except Exception as defect:  # of ours: a view that stands still and looks alive would be worse
                self._defect = defect
            finally:
                self._pursuit.close()
            if self._defect is not None or self._stopping.wait(_AGAIN_S):
                return
            self._pursuit = _Pursuit(self._settings, self._shared, self._run_id)

    def _follow(self, pursuit: "_Pursuit") -> None:
        while not self._stopping.is_set():
            pursuit.read()
            if pursuit.ask():
                self._heard_at = time.monotonic()
                self._look_for_leases(pursuit)

    def _look_for_leases(self, pursuit: "_Pursuit") -> None:
        snapshot = pursuit.tape.snapshot
        if snapshot is not None:
            offsets = [one.last_activity_offset for one in snapshot.updates]
            read = self._shared.looked(lambda view: pursuit.tape.times_of(view, offsets))
            with suppress(EnvironmentFault, KafkaException):
                self._leases.look(snapshot.updates, pursuit.partition, read)


class _Pursuit:
    """Of one log, as long as it is the same."""

    def __init__(self, settings: Settings, shared: Shared, run_id: str) -> None:
        self._run_id = run_id
        self._decisions, self._freshness = settings.topic(Topic.DECISIONS), settings.topic(Topic.FRESHNESS)
        self._shared = shared
        faults = Faults()
        self._consumer = follower(settings, faults)
        self._survey = Survey(asker(settings, faults), (self._decisions, self._freshness))
        self._course = Course(settings, shared, self._consumer, faults, self._begin)
        self._searched_all = False
        self._snapshots_end = 0
        """Of the snapshots, when reading began."""
        self.partition = -1
        self.tape = Tape(run_id)
        self.has_searched = False
        """Whether the run's last snapshot is known, or that there is none."""

    def read(self) -> None:
        """What has come, within a moment. Raises Anew, and KafkaException."""
        decisions: list[Stored] = []
        snapshots: list[Stored] = []
        message: Any
        for message in self._consumer.consume(_BATCH, _WAIT_S):
            error, topic = message.error(), message.topic()
            if error is not None:
                self._course.hear(error, message)
                continue
            self._course.at[topic, message.partition()] = message.offset() + 1
            (decisions if topic == self._decisions else snapshots).append(message)
        self.tape.snapshots(snapshots)
        own = self.tape.decisions(decisions)
        if own:
            self._shared.take(own, ())
        if not self.has_searched:
            self._search()

    def ask(self) -> bool:
        """Go on with the question about the topics; whether an answer came. Raises Anew, and KafkaException."""
        result = self._survey.step(time.monotonic())
        if isinstance(result, Found):
            result = self._ours(result)
        if result is not None:
            self._course.steer(result)
        return isinstance(result, Found)

    def close(self) -> None:
        with suppress(KafkaException):
            self._consumer.close()

    def _ours(self, found: Found) -> Found | Missing:
        """Of the run's partition alone."""
        if self.partition < 0:
            self.partition = partition_of(self._run_id, sum(topic == self._decisions for topic, _ in found.ends))
        ends = {place: end for place, end in found.ends.items() if place[1] == self.partition}
        for topic in (self._decisions, self._freshness):
            if (topic, self.partition) not in ends:
                return Missing(f"{topic}:{self.partition}")
        return Found(found.ids, ends)

    def _begin(self, ends: Mapping[Place, int]) -> list[TopicPartition]:
        """Some minutes before the end."""
        decisions, freshness = (self._decisions, self.partition), (self._freshness, self.partition)
        low, end = self._low(decisions), ends[decisions]
        from_ms = _now_ms() - SECONDS * 1_000
        start = max(low, end - MOST_DECISIONS, self._offset_at(decisions, from_ms, end))
        if start == low or start > end - MOST_DECISIONS:
            self.tape.covers(from_ms)
        first, self._snapshots_end = self._low(freshness), ends[freshness]
        since = max(first, self._snapshots_end - FEW_SNAPSHOTS)
        self._searched_all = since == first
        return [TopicPartition(*decisions, start), TopicPartition(*freshness, since)]

    def _low(self, place: Place) -> int:
        found = self._consumer.get_watermark_offsets(TopicPartition(*place), timeout=_ASK_S)
        if found is None:
            raise KafkaException(KafkaError(KafkaError._TIMED_OUT))
        return found[0]

    def _offset_at(self, place: Place, time_ms: int, end: int) -> int:
        (found,) = self._consumer.offsets_for_times([TopicPartition(*place, max(0, time_ms))], timeout=_ASK_S)
        return int(found.offset) if found.offset >= 0 else end

    def _search(self) -> None:
        """Where the run has no snapshot among the newest, all are read."""
        place = self._freshness, self.partition
        if self.tape.snapshot is not None:
            self.has_searched = True
        elif place in self._course.at and self._course.at[place] >= self._snapshots_end:
            self.has_searched = self._searched_all
            if not self._searched_all:
                low = self._low(place)
                self._consumer.seek(TopicPartition(*place, low))
                self._course.at[place] = low
                self._searched_all = True


def _now_ms() -> int:
    return int(time.time() * 1_000)
