"""Every order of a small history's records that its producers allow, folded to its end, and which neighbours in it may
change places.

Two orders that differ in neighbours that commute end alike, whatever comes before and after. Whoever folds every order
and compares each with all that differ from it in one pair of neighbours has compared all orders that only such swaps
tell apart.
"""

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import TypeAlias

from rollbook.processors.ledger.fold import SourceRecord
from rollbook.schemas.records.decision import Outcome
from rollbook.tests.processors.history import History
from rollbook.tests.processors.order.settled import Settled, difference, settled
from rollbook.tests.processors.order.steps import Step

Order: TypeAlias = tuple[int, ...]


@dataclass(frozen=True, slots=True)
class Swap:
    """Two neighbours whose order shows in the end: the steps, and what they disagree on."""

    first: Step
    second: Step
    shows: str


@dataclass
class Explored:
    """The end of every order of the steps. `sent` counts the records that were folded."""

    steps: Sequence[Step]
    ends: dict[Order, Settled] = field(default_factory=dict)
    sent: int = 0
    _written: dict[Step, SourceRecord] = field(default_factory=dict)

    def distinct(self) -> int:
        """How many different ends there are."""
        return len(set(self.ends.values()))

    def swaps(self) -> Iterator[Swap]:
        """Neighbours whose order shows in the end, in every order in which it does."""
        for order, end in self.ends.items():
            for at in range(len(order) - 1):
                if order[at] > order[at + 1]:  # each pair of orders once
                    continue
                swapped = (*order[:at], order[at + 1], order[at], *order[at + 2 :])
                other = self.ends.get(swapped)
                if other is not None and other != end:
                    yield Swap(self.steps[order[at]], self.steps[order[at + 1]], difference(end, other))

    def send(self, history: History, step: Step) -> None:
        """Send a step: as it was written the first time, unless it reads what was decided before it."""
        log = history.log
        written = self._written.get(step)
        decision = step.act(history) if written is None else log.append(written.key, written.value)
        if not step.reads:
            self._written[step] = log.records[-1]
        self.sent += 1
        assert decision.record_type == step.record, f"{step.name} sent a {decision.record_type}"
        assert decision.outcome is not Outcome.INVALID, f"{step.name}: {decision.detail}"


def explore(history: History, steps: Sequence[Step], then: Sequence[Step] = ()) -> Explored:
    """Send the steps after the history in every order that keeps that of each producer, and `then` after each."""
    explored = Explored(steps)
    _from(history, explored, (), then)
    return explored


def explore_pairs(history: History, steps: Sequence[Step]) -> Explored:
    """Send any two of the steps, by different producers, in both orders."""
    explored = Explored(steps)
    for first, one in enumerate(steps):
        with _for_now(history):
            explored.send(history, one)
            for second, other in enumerate(steps):
                if first != second and (not one.by or one.by != other.by):
                    with _for_now(history):
                        explored.send(history, other)
                        explored.ends[first, second] = settled(history.run)
    return explored


def _from(history: History, explored: Explored, sent: Order, then: Sequence[Step]) -> None:
    if len(sent) == len(explored.steps):
        with _for_now(history):
            for step in then:
                explored.send(history, step)
            explored.ends[sent] = settled(history.run)
        return
    for at in _next(explored.steps, sent):
        with _for_now(history):
            explored.send(history, explored.steps[at])
            _from(history, explored, (*sent, at), then)


@contextmanager
def _for_now(history: History) -> Iterator[None]:
    """What is sent inside is taken back afterwards: orders that begin alike share their beginning."""
    log = history.log
    mark, length = log.ledger.journal.mark(), log.next_offset
    yield
    log.ledger.journal.undo(mark)
    del log.records[length:], log.folded[length:]
    log.next_offset = length


def _next(steps: Sequence[Step], sent: Order) -> Iterator[int]:
    """The steps that may come now: the first of each producer that is left, and any by none."""
    busy: set[str] = set()
    for at, step in enumerate(steps):
        if at not in sent:
            if step.by not in busy:
                yield at
            if step.by:
                busy.add(step.by)
