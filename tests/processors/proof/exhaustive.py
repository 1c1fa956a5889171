"""Every sequence of up to five records from a small alphabet, for two learners and two updates, against the naive
model: `python -m rollbook.tests.processors.proof.exhaustive --depth 5`.

Prefixes are shared: a record is folded once for all that can follow it, and undone through the ledger's journal. What
is refused or repeated changes nothing (which is checked), so that whatever follows it follows its prefix, too: `--lean`
does not go on from there, and sees each reachable state all the same.
"""

import argparse
import time
from collections.abc import Callable
from dataclasses import dataclass, field

from rollbook.processors.ledger.fold import SourceRecord
from rollbook.schemas.codec import decode, encode
from rollbook.schemas.records.common import Lifecycle
from rollbook.schemas.records.decision import Decision, Outcome
from rollbook.schemas.records.update import Checkpoint
from rollbook.tests.processors.history import History
from rollbook.tests.processors.log import Log
from rollbook.tests.processors.proof.compare import Facts, check_answer, check_state, state_of, state_of_book
from rollbook.tests.processors.proof.invariants import check_step
from rollbook.tests.processors.proof.naive import Naive
from rollbook.tests.processors.proof.trainers import Desk

CHECKPOINT = Checkpoint(id="c0", digest="digest of c0")


def fresh(history: History) -> None:
    """t0 waits to be trained on."""


def started(history: History) -> None:
    """Learner a has started u0 with t0 admitted; u1 of learner b is open and holds t2."""
    history.reserve("u0", "t0", learner="a")
    history.admit("u0", {"t0": 0.0}, learner="a")
    history.started("u0", learner="a")
    history.ready("t2")
    history.reserve("u1", "t2", learner="b")


def trained(history: History) -> None:
    """Learner a has committed u0 with t0 and saved its weights; v1 is made of it, and t2 by that."""
    started(history)
    history.commit("u0", "t0", learner="a")
    history.saved("c0", "u0", learner="a")
    history.prepared(1, "u0")
    history.generated("t3", 1)


Written = Callable[[History], object]
ALPHABET: dict[str, Written] = {
    "Generated t1": lambda h: h.generated("t1"),
    "RewardReady t1": lambda h: h.rewarded("t1"),
    "Reserve u0 by a": lambda h: h.reserve("u0", "t0", revisions={"t0": 2}, learner="a"),
    "Claim u1 by b": lambda h: h.claim("u1", 1, learner="b"),
    "Admit u0": lambda h: h.admit("u0", {"t0": 0.0}, part=1, learner="a"),
    "UpdateStarted u0": lambda h: h.started("u0", learner="a"),
    "Commit u0": lambda h: h.commit("u0", "t0", learner="a"),
    "Abort u0": lambda h: h.abort("u0", learner="a"),
    "Abort u0 by an operator": lambda h: h.abort("u0", operator=True),
    "LeaseExpired u0": lambda h: h.expired("u0", basis=1000),
    "LearnerStarted a": lambda h: h.learner("a", incarnation="next"),
    "LearnerStarted a from c0": lambda h: h.learner("a", incarnation="saved", checkpoint=CHECKPOINT),
    "PolicyPrepared v1": lambda h: h.prepared(1, "u0"),
    "ActivationAck v1": lambda h: h.ack("w", 1, seq=1),
    "Activate v1": lambda h: h.activate(1, expected=0),
    "UpdateStarted u1": lambda h: h.started("u1", learner="b"),
}
STARTS: dict[str, Written] = {"fresh": fresh, "started": started, "trained": trained}


@dataclass
class Search:
    """A walk over the tree of sequences from one start. `sample`: of the records after the second, one in so many."""

    start: str
    lean: bool = False
    sample: int = 1
    nodes: int = 0
    seen: set[str] = field(default_factory=set)

    def __post_init__(self) -> None:
        self.history = Desk(log=Log())
        opened = History(log=self.history.log).opened(lease_ms=1000, workers=("w",))
        opened.learner("a")
        opened.learner("b")
        opened.ready("t0")
        STARTS[self.start](opened)
        self.records = [self._written(write) for write in ALPHABET.values()]
        self.ledger = self.history.log.ledger
        self.offset = self.history.log.next_offset
        self.naive = Naive()
        for offset, (record, folded) in enumerate(self._past()):
            check_answer(self.naive.decide(record, offset), folded)

    def _past(self) -> list[tuple[Lifecycle, Decision]]:

        log = self.history.log
        pairs = zip(log.records, log.folded, strict=True)
        return [(decode(source.value or b""), folded.decision) for source, folded in pairs]  # type: ignore[misc]

    def _written(self, write: Written) -> tuple[Lifecycle, bytes]:
        write(self.history)
        record = self.history.take()
        return record, encode(record)

    def go(self, depth: int) -> int:
        """All sequences of up to `depth` records; how many records were folded."""
        self._below(self.naive, state_of(self.history.run), depth, ())
        return self.nodes

    def _below(self, naive: Naive, before: Facts, depth: int, path: tuple[int, ...]) -> None:
        for letter, (record, value) in enumerate(self.records):
            if len(path) >= 2 and self.sample > 1 and hash((path, letter)) % self.sample:
                continue
            mark = self.ledger.journal.mark()
            offset = self.offset + len(path)
            decision = self.ledger.fold(SourceRecord(self.history.log.partition, offset, b"r", value)).decision
            self.nodes += 1
            self.seen.add(f"{decision.record_type} {decision.outcome.value} {decision.reason}")
            after_naive = naive.copy()
            answer = after_naive.decide(record, offset)
            after = state_of(self.history.run)
            try:
                check_answer(answer, decision)
                check_state(state_of_book(after_naive.book), after)
                check_step(before, after, decision, closing=False)
            except AssertionError as error:
                names = list(ALPHABET)
                steps = " > ".join(names[one] for one in (*path, letter))
                raise AssertionError(f"from {self.start}: {steps}: {error}") from error
            unchanged = decision.outcome in (Outcome.REJECTED, Outcome.DUPLICATE)
            if depth > 1 and not (self.lean and unchanged):
                self._below(after_naive, after, depth - 1, (*path, letter))
            self.ledger.journal.undo(mark)


def main() -> None:
    """Search and count."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--depth", type=int, default=5)
    parser.add_argument("--lean", action="store_true", help="do not go on from records that change nothing")
    parser.add_argument("--start", choices=[*STARTS, "all"], default="all")
    options = parser.parse_args()
    for start in STARTS if options.start == "all" else [options.start]:
        began, search = time.monotonic(), Search(start, lean=options.lean)
        nodes = search.go(options.depth)
        seconds = time.monotonic() - began
        print(f"{start}: {nodes} records, {len(search.seen)} answers, {seconds:.0f} s: no difference", flush=True)


if __name__ == "__main__":
    main()
