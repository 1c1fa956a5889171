"""Replay of a run: its committed updates through the engine, in the order of their commits, and no bundle on disk.

What the engine is given is what a reader would have of the bundles that materialize writes (bundle/inmemory.py), so
that the answer is that of `rollbook materialize` and `rollbook replay --chain`; one update is held at a time.
"""

from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from enum import StrEnum

from rollbook.replay.bundle.bundle import Cohort
from rollbook.replay.bundle.problems import Refused
from rollbook.replay.bundle.writing.inmemory import cohort_of
from rollbook.replay.engine.chain import ChainDivergence, Link, first_of, linked
from rollbook.replay.engine.result import Verdict, overall
from rollbook.replay.engine.selection import Selection
from rollbook.replay.history.source import Bounds, LogSource, place_of
from rollbook.replay.materialize.assemble import Assembled, Ready
from rollbook.replay.materialize.report import CannotWrite, NotWritten, Problem
from rollbook.replay.materialize.walk import Made, Wanted, walk
from rollbook.replay.progress import Watch
from rollbook.replay.stages.table import STAGES


class UpdateOutcome(StrEnum):
    """How one committed update came out. Only the first is a pass."""

    PASSED = "pass"
    DIVERGES = "diverges"
    UNVERIFIED = "unverified"
    NOT_REPLAYED = "not replayed"
    ROLLED_BACK = "rolled back"
    NO_STEPS = "no steps"


_OF_VERDICT = {
    Verdict.PASSED: UpdateOutcome.PASSED,
    Verdict.DIVERGES: UpdateOutcome.DIVERGES,
    Verdict.UNVERIFIED: UpdateOutcome.UNVERIFIED,
}


@dataclass(frozen=True, slots=True)
class ReplayedUpdate:
    """One update. `commit`: the place of its Commit. `links`: its own bundle and those of its steps, in the order of
    the training. `problems`: why it was not replayed; `without_update`: why it was replayed as its steps alone, so that
    what these took over is not compared."""

    run_id: str
    update_id: str
    commit: str
    outcome: UpdateOutcome
    links: tuple[Link, ...] = ()
    first_divergence: ChainDivergence | None = None
    problems: tuple[Problem, ...] = ()
    without_update: tuple[Problem, ...] = ()

    @property
    def verified_values(self) -> int:
        """How many recorded values were computed again."""
        stages = (stage for link in self.links for rank in link.report.ranks for stage in rank.stages)
        return sum(stage.verified_values for stage in stages if not STAGES[stage.stage].structural)


@dataclass(frozen=True, slots=True)
class ReplayedHistory:
    """Updates as they are replayed, one by one while they are asked for. `committed`: how many there are; `undecided`:
    lifecycle offsets whose decisions are not there yet, so that nothing is known of them."""

    committed: int
    undecided: Bounds | None
    updates: Iterator[ReplayedUpdate]


def replay_history(
    log: LogSource, wanted: Wanted, selection: Selection | None = None, watch: Watch = lambda *_: None
) -> ReplayedHistory:
    """Replay the updates committed in a range or by a run (`Wanted`), all or the selected stages of them.

    Raises OutOfRange for a range that is not to be had, BadInput for a part of an update, EnvironmentFault where the
    broker does not play along. What cannot be replayed is an update with its reason.
    """
    found = walk(log, wanted, lambda _, __, assembled: _replayed(assembled, selection), watch)
    topic, partition = wanted.lifecycle.topic, wanted.lifecycle.partition
    updates = (_update(made, place_of(topic, partition, made.update.committed)) for made in found.each)
    return ReplayedHistory(found.committed, found.undecided, updates)


@dataclass(slots=True)
class Total:
    """Of the updates so far."""

    committed: int = 0
    outcomes: Counter[UpdateOutcome] = field(default_factory=Counter)
    undecided: list[Bounds] = field(default_factory=list)
    reasons: Counter[NotWritten] = field(default_factory=Counter)
    """Why updates were not replayed."""

    def began(self, history: ReplayedHistory) -> None:
        self.committed += history.committed
        self.undecided += [] if history.undecided is None else [history.undecided]

    def took(self, update: ReplayedUpdate) -> None:
        self.outcomes[update.outcome] += 1
        if update.outcome is UpdateOutcome.NOT_REPLAYED:
            self.reasons.update({problem.reason for problem in update.problems})

    @property
    def verdict(self) -> Verdict:
        """Passed only when some update was, and each of them that stands and had steps."""
        if self.outcomes[UpdateOutcome.DIVERGES]:
            return Verdict.DIVERGES
        left_out = self.outcomes[UpdateOutcome.UNVERIFIED] + self.outcomes[UpdateOutcome.NOT_REPLAYED]
        return Verdict.PASSED if self.outcomes[UpdateOutcome.PASSED] and not left_out else Verdict.UNVERIFIED


def _replayed(assembled: Assembled, selection: Selection | None) -> tuple[Link, ...]:
    return tuple(linked(((one.bundle_id, in_memory(one)) for one in assembled.all), selection))


def in_memory(ready: Ready) -> Cohort:
    """A bundle as if it had been written and read. Raises CannotWrite where the format refuses it."""
    try:
        return cohort_of(ready.bundle_id, ready.drafts)
    except Refused as refused:
        raise CannotWrite(NotWritten.NOT_REPRESENTABLE, *map(str, refused.problems), step_id=ready.step_id) from None


def _update(made: Made[tuple[Link, ...]], commit: str) -> ReplayedUpdate:
    links = made.value or ()
    first = first_of(links)
    return ReplayedUpdate(
        run_id=made.update.run_id,
        update_id=made.update.update_id,
        commit=commit,
        outcome=_outcome(made, links, first),
        links=links,
        first_divergence=first,
        problems=made.problems,
        without_update=made.without_update,
    )


def _outcome(made: Made[tuple[Link, ...]], links: Sequence[Link], first: ChainDivergence | None) -> UpdateOutcome:
    if any(problem.reason is NotWritten.ROLLED_BACK for problem in made.problems):
        return UpdateOutcome.ROLLED_BACK
    if made.problems:
        return UpdateOutcome.NOT_REPLAYED
    if not links:
        return UpdateOutcome.NO_STEPS
    return UpdateOutcome.DIVERGES if first is not None else _OF_VERDICT[overall([one.report.verdict for one in links])]
