"""Follows the committed decisions and freshness snapshots from the log's beginning, in a thread of its own.

By confluent-kafka and without a group: nothing is committed, and each dashboard reads everything by itself.
"""

import logging
import threading
import time
from collections.abc import Iterable
from contextlib import suppress
from typing import Any

from confluent_kafka import KafkaException

from rollbook.infra.settings import Settings, Topic
from rollbook.processors.dashboard.fold.view import Stored
from rollbook.processors.dashboard.reading.clients import Faults, asker, follower
from rollbook.processors.dashboard.reading.course import Anew, Course
from rollbook.processors.dashboard.reading.survey import Survey
from rollbook.processors.dashboard.shared import Shared

logger = logging.getLogger("rollbook.dashboard")

BATCH = 500
"""Messages folded at once: pages wait for no more than these."""
WAIT_S = 0.1
_PAUSE_S = 0.5


class Reader:
    """`run` reads until it is stopped. What it meets is told by `Shared.stand`; an exception is a defect of ours."""

    def __init__(self, settings: Settings, shared: Shared) -> None:
        self._settings = settings
        self._shared = shared
        self._topics = (settings.topic(Topic.DECISIONS), settings.topic(Topic.FRESHNESS))
        self._faults = Faults()
        self.turned_at = time.monotonic()

    def run(self, stop: threading.Event) -> None:
        while not stop.is_set():
            try:
                self._read(stop)
            except Anew as reason:
                logger.warning("reading everything anew: %s", reason)
                stop.wait(_PAUSE_S)

    def _read(self, stop: threading.Event) -> None:
        """From the log's beginning until it is stopped, or has to begin anew."""
        consumer = follower(self._settings, self._faults)
        survey = Survey(asker(self._settings, self._faults), self._topics)
        course = Course(self._settings, self._shared, consumer, self._faults)
        try:
            while not stop.is_set():
                self._take(consumer.consume(BATCH, WAIT_S), course)
                result = survey.step(time.monotonic())
                if result is not None:
                    course.steer(result)
                self.turned_at = time.monotonic()
        finally:
            with suppress(KafkaException):
                consumer.close()

    def _take(self, messages: Iterable[Any], course: Course) -> None:
        decisions: list[Stored] = []
        snapshots: list[Stored] = []
        first = self._topics[0]
        for message in messages:
            error = message.error()
            if error is not None:
                course.hear(error, message)
                continue
            topic = message.topic()
            course.at[topic, message.partition()] = message.offset() + 1
            (decisions if topic == first else snapshots).append(message)
        if decisions or snapshots:
            self._shared.take(decisions, snapshots)
