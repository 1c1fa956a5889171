"""Runs to publish, folded once and encoded once: a story is told again and again under other run ids.

A record's first field is its run's id, so another id is a matter of a few bytes. Long stories are trainings with a
cloned trainer in each; walks are short and take every other act there is, sensible or not.
"""

import random
from dataclasses import dataclass
from itertools import count

from rollbook.processors.ledger.fold import SourceRecord
from rollbook.schemas.codec import MARKER, PREFIX_LENGTH
from rollbook.schemas.partition import partition_of
from rollbook.schemas.records.update import Checkpoint, ClaimOrder
from rollbook.tests.benchmarks.long_run import LongRun
from rollbook.tests.processors import walk
from rollbook.tests.processors.history import History
from rollbook.tests.processors.log import Log

RUN = "r"
_OLD_ID = b"\x02r"
WALKS = 8
WALK_ACTS = 60
LONG_GROUPS = (4, 10, 16)


@dataclass(frozen=True, slots=True)
class Story:
    """The records of a run; `opening` of them set it up, and are sent once even where all others are sent twice."""

    records: tuple[SourceRecord, ...]
    opening: int
    clones: int


def make_stories(seed: int, partitions: int) -> list[Story]:
    """Long ones and walks; by number of records nearly all of what is told comes from the long ones."""
    long = [_long(groups, partitions) for groups in LONG_GROUPS]
    return [*long, *long, *(_walk(seed + at, partitions) for at in range(WALKS))]


def _log(partitions: int) -> Log:
    return Log(partition_of(RUN, partitions), partitions)


def _long(groups: int, partitions: int) -> Story:
    run = LongRun(_log(partitions), groups=groups)
    opening = run.history.log.next_offset
    clones = 0
    for version in run.versions(4):
        if version % 2 == 0:
            _clone(run.history, version)
            clones += 1
    run.history.closed()
    return Story(tuple(run.history.log.records), opening, clones)


def _clone(history: History, version: int) -> None:
    """A second process of the trainer starts while the first one holds an update, which is refused from then on and
    comes back by its checkpoint."""
    name = f"checkpoint-{version}"
    checkpoint, held, old = Checkpoint(id=name, digest=f"digest of {name}"), f"held-{version}", history.epoch()
    history.claim(held, 2, order=ClaimOrder.OLDEST)
    history.learner(incarnation=f"clone-{version}", checkpoint=checkpoint)
    history.started(held, epoch=old)
    history.commit(held, epoch=old)
    history.learner(incarnation=f"back-{version}", checkpoint=checkpoint)


def _walk(seed: int, partitions: int) -> Story:
    history = History(log=_log(partitions)).opened(max_lag=1)
    opening = history.log.next_offset
    for learner in walk.LEARNERS:
        history.learner(learner)
    history.advanced(1)
    history.ready("t0", "t1", group="g0").ready("t2", "t3", group="g1")
    dice = random.Random(seed)
    for _ in range(WALK_ACTS):
        walk.act(history, dice.randbytes(18))
    history.closed()
    return Story(tuple(history.log.records), opening, clones=0)


def run_ids(prefix: str, partition: int, partitions: int) -> "RunIds":
    """Ids of runs that live in this partition."""
    return RunIds(prefix, partition, partitions)


class RunIds:
    """One id after another, each of the same partition."""

    def __init__(self, prefix: str, partition: int, partitions: int) -> None:
        self._ids = (f"{prefix}-{at}" for at in count())
        self._partition, self._partitions = partition, partitions

    def take(self) -> str:
        """An id that nobody had before."""
        return next(one for one in self._ids if partition_of(one, self._partitions) == self._partition)


def told_as(record: SourceRecord, run_id: str) -> tuple[bytes | None, bytes | None]:
    """Key and value of a story's record in the run of this id."""
    name = run_id.encode()
    key, value = record.key, record.value
    if key == RUN.encode():
        key = name
    if value is not None and value.startswith(MARKER) and value[PREFIX_LENGTH : PREFIX_LENGTH + 2] == _OLD_ID:
        assert len(name) < 64, "its length takes one byte"
        value = value[:PREFIX_LENGTH] + bytes([2 * len(name)]) + name + value[PREFIX_LENGTH + 2 :]
    return key, value
