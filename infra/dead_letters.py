"""The dead letters: records of the lifecycle topic that could not be decoded, found, followed, and their bytes."""

import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from itertools import islice

from rollbook.infra.settings import Settings, Topic
from rollbook.replay.history.source import Bounds, LogSource, StoredRecord
from rollbook.schemas.codec import ContractViolation, UndecodableRecord, decode_as
from rollbook.schemas.errors import AnswerNo, BadInput
from rollbook.schemas.records.decision import DeadLetter

_FIRST_WINDOW, _LAST_WINDOW = 64, 4_096
_PAUSE_S = 0.2


@dataclass(frozen=True, slots=True)
class Letter:
    """A dead letter and the record that carries it."""

    stored: StoredRecord
    letter: DeadLetter


@dataclass(frozen=True, slots=True)
class Foreign:
    """What lies among the dead letters and is none: somebody else wrote it."""

    stored: StoredRecord
    why: str


Found = Letter | Foreign


@dataclass(frozen=True, slots=True)
class Asked:
    """Which letters: of a partition of the lifecycle topic, of its offset `since` and later; None fits all."""

    partition: int | None = None
    since: int | None = None

    def fits(self, found: Found) -> bool:
        """Whether the letter is one of them; what is none is shown to who asks for all."""
        if isinstance(found, Foreign):
            return self == Asked()
        letter = found.letter
        return (self.partition is None or letter.partition == self.partition) and (
            self.since is None or letter.offset >= self.since
        )


@dataclass(frozen=True, slots=True)
class Place:
    """A position of the lifecycle topic."""

    partition: int
    offset: int

    @staticmethod
    def parse(text: str) -> "Place":
        """`PARTITION:OFFSET`. Raises BadInput."""
        partition, _, offset = text.partition(":")
        if not all(number.isascii() and number.isdigit() and len(number) < 19 for number in (partition, offset)):
            raise BadInput(f"--show {text[:100]!a} is no PARTITION:OFFSET: use for example 0:1234, as the list has it")
        return Place(int(partition), int(offset))

    def __str__(self) -> str:
        return f"{self.partition}:{self.offset}"


class DeadLetters:
    """The topic of the dead letters of a prefix."""

    def __init__(self, log: LogSource, settings: Settings) -> None:
        self._log = log
        self._topic = settings.topic(Topic.DEAD_LETTERS)
        self._lifecycle = settings.topic(Topic.LIFECYCLE)

    def bounds(self) -> Bounds:
        """The offsets of the topic as of now."""
        return self._log.bounds(self._topic, 0)

    def every(self, asked: Asked, start: int | None = None, end: int | None = None) -> Iterator[Found]:
        """Those that are asked for, from the first; `start` and `end` are offsets of the dead letters' own topic."""
        bounds = self.bounds() if start is None or end is None else Bounds(start, end)
        first, last = bounds.first if start is None else start, bounds.end if end is None else end
        if first < last:
            stored = self._log.read(self._topic, 0, first, last)
            letters = (_found(one) for one in stored if one.value is not None)  # none: written for its marker only
            yield from filter(asked.fits, letters)

    def last(self, asked: Asked, limit: int, end: int | None = None) -> list[Found]:
        """The last of those that are asked for, read from the end backwards."""
        return list(islice(self._backwards(asked, end), limit))[::-1]

    def follow(self, asked: Asked, limit: int | None, pause: Callable[[float], None] = time.sleep) -> Iterator[Found]:
        """The last `limit` of those that are asked for (None: all), then each as it is committed; never ends."""
        bounds = self.bounds()
        at = bounds.first if limit is None else bounds.end
        if limit is not None:
            yield from self.last(asked, limit, at)
        while True:
            end = self.bounds().end
            if at < end:
                yield from self.every(asked, at, end)
                at = end
            pause(_PAUSE_S)

    def at(self, place: Place) -> Letter:
        """The letter of one record. Raises AnswerNo where there is none."""
        for found in self._backwards(Asked(place.partition), None):
            if isinstance(found, Foreign):
                continue
            if found.letter.offset == place.offset:
                return found
            if found.letter.offset < place.offset:  # they are in the order of the log, partition by partition
                break
        raise AnswerNo(
            f"{self._lifecycle}:{place} has no dead letter: its record could be decoded, or is not decided yet"
        )

    def record(self, letter: DeadLetter) -> StoredRecord:
        """The record itself, from the lifecycle topic. Raises BadInput where it is not to be had, or is another."""
        (found,) = self._log.read_at(self._lifecycle, letter.partition, [letter.offset])
        if found.sha256 != letter.sha256:
            raise BadInput(
                f"{found.place}: the record there is not the one of the dead letter (sha256 {found.sha256}, not "
                f"{letter.sha256}): was the topic made anew?"
            )
        return found

    def _backwards(self, asked: Asked, end: int | None) -> Iterator[Found]:
        bounds = self.bounds()
        at, window = bounds.end if end is None else end, _FIRST_WINDOW
        while at > bounds.first:
            start = max(bounds.first, at - window)
            yield from reversed(list(self.every(asked, start, at)))
            at, window = start, min(4 * window, _LAST_WINDOW)


def _found(stored: StoredRecord) -> Found:
    try:
        return Letter(stored, decode_as(DeadLetter, stored.value or b""))
    except (UndecodableRecord, ContractViolation) as error:
        return Foreign(
            stored, f"{stored.place} is not a dead letter ({error}): nobody but the processor may write there"
        )
