"""What clients write to the lifecycle topic: walks of several runs with poison among them, and what they must become.

Each record is folded when it is put on the log, by a fold that knows nothing of hosts: its decisions are those that the
hosts have to write, whatever happens to them.
"""

import random
from collections.abc import Callable

from rollbook.processors.ledger.fold import NewerFoldVersion
from rollbook.schemas.partition import partition_of
from rollbook.schemas.records.decision import Decision
from rollbook.tests.processors.log import Log
from rollbook.tests.processors.proof import walks
from rollbook.tests.processors.proof.walks import NAMES, ROLLS, Walker, place
from rollbook.tests.processors.walk import LEARNERS, WORKERS, Dice

TOO_NEW = 99


PARTITIONS = 2
NAMED = [[n for at in range(99) if partition_of(n := f"run-{at}", PARTITIONS) == p] for p in range(PARTITIONS)]
"""Runs by the partition that they belong to."""


class Source(Log):
    """A partition's log, as the broker has it and as a fold outside decides it."""

    def __init__(
        self, partition: int, topic_partitions: int, put: Callable[[int, bytes | None, bytes | None], None]
    ) -> None:
        super().__init__(partition, topic_partitions)
        self._put = put
        self.stopped = False
        """A record lies here that this version cannot fold: nothing from there on is decided."""

    def append(self, key: bytes | None, value: bytes | None) -> Decision:
        self._put(self.partition, key, value)
        if not self.stopped:
            try:
                return super().append(key, value)
            except NewerFoldVersion:
                self.stopped = True
        return self.folded[-1].decision


class Writer(Walker):
    """A run of its own name."""

    def __init__(self, run_id: str, log: Log, dice: Dice) -> None:
        super().__init__(log, dice)
        self.run_id = run_id

    def begin(self, dice: Dice) -> None:
        """A configured run with learners, a second policy and rewarded groups."""
        self.limited(dice)
        self.contract()
        for learner in LEARNERS:
            self.learner(learner)
        self.prepared(1)
        for worker in WORKERS:
            self.ack(worker, 1)
        self.activate(1)
        for name in NAMES[:4]:
            group, sample = place(name)
            self.generated(name, dice.roll(2), group=group, sample=sample, of=2)
        self.rewarded(*NAMES[:4])


class Workload:
    """Acts of several runs in turn, as many as were asked for."""

    def __init__(self, source: random.Random, logs: list[Source], runs: int, acts: int, *, newer: bool) -> None:
        self._random = source
        self._logs = logs
        self._left = acts
        self._newer_at = source.randrange(acts) if newer else -1
        self._first = source.randrange(len(logs))
        self._waiting = [self._writer(number) for number in range(runs)]
        self._writers: list[Writer] = []

    def _writer(self, number: int) -> Writer:
        run_id = NAMED[(number + self._first) % len(self._logs)][number]
        return Writer(run_id, self._logs[partition_of(run_id, len(self._logs))], self._dice())

    def _dice(self) -> Dice:
        return Dice(self._random.randbytes(ROLLS))

    @property
    def done(self) -> bool:
        """Whether all was written."""
        return not self._left and not self._waiting

    def act(self) -> None:
        """One more."""
        if self._waiting and (not self._writers or self._random.random() < 0.2):
            writer = self._waiting.pop()
            writer.begin(self._dice())
            self._writers.append(writer)
            return
        if not self._left:
            return
        self._left -= 1
        writer = self._random.choice(self._writers)
        if self._left == self._newer_at:
            writer.configured(TOO_NEW, fold_version=TOO_NEW)
        elif writer.log.stopped:  # type: ignore[attr-defined]
            writer.log.append(b"after", b"the end")
        elif self._random.random() < 0.1:
            key = self._random.choice((writer.run_id.encode(), b"nobody", None))
            writer.log.append(key, self._random.choice((None, b"", self._random.randbytes(24), b"\xc3\x01poison")))
        else:
            walks.step(writer, self._random.randbytes(ROLLS))
