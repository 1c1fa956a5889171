"""What a reader does about what it hears of the cluster: which partitions it reads, and what it says of itself."""

import logging
import time
from collections.abc import Callable, Iterator, Mapping
from typing import Any

from confluent_kafka import OFFSET_BEGINNING, Consumer, KafkaError, KafkaException, TopicPartition

from rollbook.infra.settings import Settings, Topic
from rollbook.processors.dashboard.answers import Reading
from rollbook.processors.dashboard.reading.clients import Faults
from rollbook.processors.dashboard.reading.progress import Progress
from rollbook.processors.dashboard.reading.survey import ANSWER_S, Found, Missing, NoAnswer, Place, Result
from rollbook.processors.dashboard.shared import Shared, Standing

logger = logging.getLogger("rollbook.dashboard")

_ANEW = (KafkaError._AUTO_OFFSET_RESET, KafkaError.OFFSET_OUT_OF_RANGE, KafkaError._LOG_TRUNCATION)
_NO_RIGHT = (
    KafkaError.TOPIC_AUTHORIZATION_FAILED,
    KafkaError.GROUP_AUTHORIZATION_FAILED,
    KafkaError.CLUSTER_AUTHORIZATION_FAILED,
)
_REFUSED_FOR_S = 30.0
_PATIENCE = 2
"""Questions without an answer until the broker counts as away: a busy one may miss one."""


class Anew(Exception):
    """What was read is no longer the beginning of what is there: everything has to be read again."""


Begin = Callable[[Mapping[Place, int]], list[TopicPartition]]
"""Where to begin with partitions, of which it is told where they end."""


def from_the_beginning(places: Mapping[Place, int]) -> list[TopicPartition]:
    """All that the log has."""
    return [TopicPartition(*place, OFFSET_BEGINNING) for place in places]


class Course:
    """`at` is where each partition has been read to, markers and what was aborted included."""

    def __init__(
        self, settings: Settings, shared: Shared, consumer: Consumer, faults: Faults, begin: Begin = from_the_beginning
    ) -> None:
        self._begin = begin
        self._settings = settings
        self._shared = shared
        self._consumer = consumer
        self._faults = faults
        self._ids: dict[str, str] = {}
        self._followed: set[Place] = set()
        self._progress = Progress()
        self._unanswered = 0
        self._refused: tuple[str, float] = ("", 0.0)
        self.at: dict[Place, int] = {}

    def hear(self, error: KafkaError, message: Any) -> None:
        """What comes in place of a record. Of most faults the survey tells more, and they heal by themselves."""
        if error.code() == KafkaError._PARTITION_EOF:
            self.at[message.topic(), message.partition()] = message.offset()
        elif error.code() in _ANEW:
            raise Anew(f"{message.topic()}:{message.partition()} has no longer what comes next ({error.str()})")
        elif error.code() in _NO_RIGHT:
            self._refused = (self._without_right(error), time.monotonic())
        elif error.fatal():
            raise KafkaException(error)
        else:
            self._faults(error)

    def steer(self, result: Result) -> None:
        """Follow what the cluster says about its topics."""
        match result:
            case Missing(topic):
                self._cut_off(f"topic {topic} does not exist: run `rollbook topics create`")
            case NoAnswer(fault):
                self._unanswered += 1
                if self._unanswered >= _PATIENCE or self._faults.all_down or not self._ids:
                    self._cut_off(self._why(fault))
            case Found():
                self._follow(result)
                self._stand(result)

    def _follow(self, found: Found) -> None:
        """Begin with partitions that are new. Raises Anew where a topic is not the one that it was."""
        for topic, known in self._ids.items():
            if found.ids[topic] != known:
                raise Anew(f"topic {topic} was deleted and made anew")
        new = {place: end for place, end in found.ends.items() if place not in self._followed}
        if not new:
            return
        if not self._ids:
            self._ids = dict(found.ids)
            self._shared.begin_anew()
            logger.info("reading %s from the beginning", " and ".join(sorted(self._ids)))
        self._followed.update(new)
        self._progress.add(new)
        self._consumer.incremental_assign(self._begin(new))

    def _stand(self, found: Found) -> None:
        self._faults.clear()
        self._unanswered = 0
        if self._shared.standing.reading is Reading.CUT_OFF:
            logger.info("the cluster answers again")
            self._progress.begin(found.ends)
        behind = {place: max(0, end - self.at.get(place, 0)) for place, end in found.ends.items()}
        live = self._progress.judge(behind, self.at)
        refusal, at = self._refused
        self._shared.stand(
            Standing(
                Reading.LIVE if live else Reading.CATCHING_UP,
                refusal if refusal and time.monotonic() - at < _REFUSED_FOR_S else "",
                dict(self._of_decisions(behind)),
                sum(behind.values()),
            )
        )

    def _of_decisions(self, behind: dict[Place, int]) -> Iterator[tuple[int, int]]:
        decisions = self._settings.topic(Topic.DECISIONS)
        yield from ((partition, left) for (topic, partition), left in sorted(behind.items()) if topic == decisions)

    def _cut_off(self, why: str) -> None:
        standing = Standing(Reading.CUT_OFF if self._shared.has_read else Reading.WAITING, why)
        if standing != self._shared.standing:
            logger.warning("%s: %s", standing.reading.value, why)
            self._shared.stand(standing)

    def _why(self, fault: KafkaError) -> str:
        if fault.code() in _NO_RIGHT:
            return self._without_right(fault)
        return str(self._settings.unreachable(list(self._faults.heard), ANSWER_S))

    def _without_right(self, error: KafkaError) -> str:
        return (
            f"no right to read the topics ({self._settings.hidden(error.str())}): give this user the rights of the "
            "role reader, which `rollbook topics acl` prints"
        )
