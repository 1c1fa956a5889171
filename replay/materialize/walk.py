"""The committed updates of what is wanted, one at a time in the order of their commits, and what each is made into:
bundles on disk, or what a replay or a comparison of it says. No more than one is held."""

from collections.abc import Callable, Collection, Iterator
from dataclasses import dataclass, replace
from typing import Generic, TypeVar

from rollbook.infra.settings import Settings, Topic
from rollbook.replay.history.decisions import DecisionLog
from rollbook.replay.history.narrowed import narrowed_to
from rollbook.replay.history.ranges import OffsetRange
from rollbook.replay.history.source import Bounds, LogSource
from rollbook.replay.history.strays import is_stray
from rollbook.replay.history.targets import Targets
from rollbook.replay.materialize.assemble import Assembled, Assembler
from rollbook.replay.materialize.commits import CommittedUpdate, find_committed
from rollbook.replay.materialize.evidence import UpdateEvidence
from rollbook.replay.materialize.form import Form
from rollbook.replay.materialize.gather import Gatherer
from rollbook.replay.materialize.report import CannotWrite, NotWritten, Problem
from rollbook.replay.progress import Watch
from rollbook.schemas.errors import BadInput
from rollbook.schemas.partition import partition_of

_MAX_WHATS = 20
"""How many contradictions of one update are told."""

T = TypeVar("T")
Make = Callable[[CommittedUpdate, UpdateEvidence, Assembled], T]
"""Raises CannotWrite where an update cannot be made into it."""


@dataclass(frozen=True, slots=True)
class Wanted:
    """What to materialize: the updates committed in a range of the lifecycle topic, only of a run and update where
    given. `lifecycle` and `decisions` have the same partition; the topics' names are full ones."""

    lifecycle: OffsetRange
    decisions_topic: str
    run_id: str | None = None
    update_id: str | None = None

    @property
    def place(self) -> tuple[str, int]:
        """Topic and partition of the Commits."""
        return self.lifecycle.topic, self.lifecycle.partition

    @classmethod
    def of_range(cls, found: OffsetRange, settings: Settings) -> "Wanted":
        """All updates committed in an offset range. Raises BadInput for another topic than lifecycle."""
        if found.topic != settings.topic(Topic.LIFECYCLE):
            raise BadInput(f"{found}: updates are committed on {settings.topic(Topic.LIFECYCLE)}: give a range of that")
        return cls(found, settings.topic(Topic.DECISIONS))

    @classmethod
    def of_run(cls, run_id: str, log: LogSource, settings: Settings, update_id: str | None = None) -> "Wanted":
        """All committed updates of a run, or one of them."""
        topic = settings.topic(Topic.LIFECYCLE)
        partition = partition_of(run_id, log.partitions(topic))
        return cls(OffsetRange(topic, partition), settings.topic(Topic.DECISIONS), run_id, update_id)


def wanted_of(of: Targets, update_id: str | None = None) -> list[Wanted]:
    """What a command was asked for, partition by partition; of files that were narrowed to a run that run's. Raises
    BadInput for a run and a range at once, and for an update without its run."""
    if update_id is not None and of.run_id is None:
        raise BadInput("an update is of a run, and a range may hold updates of several: say which run")
    if of.run_id is not None and of.are_named:
        raise BadInput("say which updates: either a RANGE such as lifecycle:0:0-5000, or --run RUN")
    if of.run_id is not None:
        found = [Wanted.of_run(of.run_id, of.log, of.settings, update_id)]
    else:
        lifecycle = of.settings.topic(Topic.LIFECYCLE)
        ranges = [one for one in of.ranges if of.are_named or one.topic == lifecycle]
        found = [Wanted.of_range(one, of.settings) for one in ranges]
    return [replace(one, run_id=narrowed_to(of.log, one.lifecycle, one.run_id)) for one in found]


@dataclass(frozen=True, slots=True)
class Made(Generic[T]):
    """An update, and what it was made into: None where it has no optimizer steps, or where the `problems` are in the
    way. `without_update`: why it was made of its steps alone."""

    update: CommittedUpdate
    value: T | None
    problems: tuple[Problem, ...] = ()
    without_update: tuple[Problem, ...] = ()


@dataclass(frozen=True, slots=True)
class Walk(Generic[T]):
    """`each` makes one update after the other, as they are asked for. `undecided`: lifecycle offsets of the range whose
    decisions are not there yet, so that nothing is known of them."""

    committed: int
    undecided: Bounds | None
    each: Iterator[Made[T]]


def walk(
    log: LogSource,
    wanted: Wanted,
    make: Make[T],
    watch: Watch = lambda *_: None,
    form: Form = Form(),  # noqa: B008
    only: Collection[str] | None = None,
) -> Walk[T]:
    """The wanted updates; of those only some, by their ids, where they are given. Raises OutOfRange for a range that is
    not to be had, EnvironmentFault where the broker does not play along."""
    within = wanted.lifecycle.resolved(log)
    decisions = DecisionLog(log, wanted.decisions_topic, wanted.lifecycle.partition)
    found = find_committed(decisions, within, run_id=wanted.run_id, update_id=wanted.update_id, watch=watch)
    gatherer = Gatherer(log, wanted.lifecycle.topic, decisions)

    def each() -> Iterator[Made[T]]:
        for count, update in enumerate(found.updates):
            watch("updates", count, len(found.updates))
            if only is not None and update.update_id not in only:
                continue
            yield _made(gatherer, update, make, form)
        watch("updates", len(found.updates), len(found.updates))

    return Walk(len(found.updates), _undecided(log, wanted, found.undecided), each())


def _undecided(log: LogSource, wanted: Wanted, left: Bounds | None) -> Bounds | None:
    """None where the offsets behind the last decision hold nothing that is wanted: markers, records of other runs,
    which a file that was narrowed to one run does not have, nor their decisions, or what belongs to none."""
    if left is None:
        return None
    behind, partitions = log.read(*wanted.place, left.first, left.end), log.partitions(wanted.lifecycle.topic)
    if wanted.run_id is not None:
        key = wanted.run_id.encode()
        behind = (stored for stored in behind if stored.key == key and not is_stray(stored, partitions))
    return None if next(behind, None) is None else left


def _made(gatherer: Gatherer, update: CommittedUpdate, make: Make[T], form: Form) -> Made[T]:
    try:
        evidence = gatherer.gather(update)
        if not evidence.commit.record.steps:
            return Made(update, None)
        assembler = Assembler(evidence, form)
        assembled = assembler.assemble()
        why_not = assembled.without_update
        try:
            value = make(update, evidence, assembled)
        except CannotWrite as cannot:
            # What the format refuses of the update alone costs the steps no more than their link to it.
            of_update = cannot.reason is NotWritten.NOT_REPRESENTABLE and cannot.step_id is None
            if not of_update or assembled.update is None:
                raise
            value, why_not = make(update, evidence, assembler.assemble(with_update=False)), cannot
    except CannotWrite as cannot:
        return Made(update, None, tuple(_problems(update, cannot)))
    return Made(update, value, (), tuple(_problems(update, why_not)) if why_not is not None else ())


def _problems(update: CommittedUpdate, cannot: CannotWrite) -> Iterator[Problem]:
    for what in cannot.whats[:_MAX_WHATS]:
        yield Problem(update.run_id, update.update_id, cannot.step_id, cannot.reason, what)
    if more := len(cannot.whats[_MAX_WHATS:]):
        yield Problem(update.run_id, update.update_id, cannot.step_id, cannot.reason, f"and {more} more")
