"""Materialize: the committed updates of an offset range as bundles on disk."""

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

from rollbook.infra.settings import Settings, Topic
from rollbook.replay.history.decisions import DecisionLog
from rollbook.replay.history.progress import Watch
from rollbook.replay.history.ranges import OffsetRange
from rollbook.replay.history.source import LogSource
from rollbook.replay.materialize.assemble import Assembled, Assembler, Ready
from rollbook.replay.materialize.commits import CommittedUpdate, find_committed
from rollbook.replay.materialize.evidence import UpdateEvidence
from rollbook.replay.materialize.form import Form
from rollbook.replay.materialize.gather import Gatherer
from rollbook.replay.materialize.provenance import provenance_path
from rollbook.replay.materialize.publish import Published, publish
from rollbook.replay.materialize.report import CannotWrite, MaterializeReport, NotWritten, Problem, Written
from rollbook.schemas.errors import BadInput
from rollbook.schemas.partition import partition_of

_MAX_WHATS = 20
"""How many contradictions of one update are told."""

Told = Callable[[Written], None]
"""Told of each bundle once it is on disk, also where something ends the range later."""


@dataclass(frozen=True, slots=True)
class Wanted:
    """What to materialize: the updates committed in a range of the lifecycle topic, only of a run and update where
    given. `lifecycle` and `decisions` have the same partition; the topics' names are full ones."""

    lifecycle: OffsetRange
    decisions_topic: str
    run_id: str | None = None
    update_id: str | None = None

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


def materialize(
    log: LogSource,
    wanted: Wanted,
    out: Path,
    watch: Watch = lambda *_: None,
    *,
    form: Form = Form(),  # noqa: B008
    told: Told = lambda _: None,
) -> MaterializeReport:
    """Write the bundles of the wanted updates below `out`: an update's bundles all or none.

    The same update gives the same bytes, whatever the range, whenever it is written: what an earlier call wrote is left
    as it is, and what it did not get to is added. What cannot be written is in the report with its reason. Raises
    OutOfRange for a range that is not to be had, EnvironmentFault when broker or disk do not play along.
    """
    partition = wanted.lifecycle.partition
    within = wanted.lifecycle.resolved(log)
    decisions = DecisionLog(log, wanted.decisions_topic, partition)
    found = find_committed(decisions, within, run_id=wanted.run_id, update_id=wanted.update_id, watch=watch)
    gatherer = Gatherer(log, wanted.lifecycle.topic, decisions)
    written: list[Written] = []
    problems: list[Problem] = []
    without_update: list[Problem] = []
    for count, update in enumerate(found.updates):
        watch("updates", count, len(found.updates))
        try:
            bundles, why_not = _write(out, update, gatherer.gather(update), form)
        except CannotWrite as cannot:
            problems += _problems(update, cannot)
            continue
        for bundle in bundles:
            told(bundle)
        written += bundles
        without_update += _problems(update, why_not) if why_not is not None else ()
    watch("updates", len(found.updates), len(found.updates))
    return MaterializeReport(
        len(found.updates), tuple(written), tuple(problems), found.undecided, tuple(without_update)
    )


def _problems(update: CommittedUpdate, cannot: CannotWrite) -> Iterator[Problem]:
    for what in cannot.whats[:_MAX_WHATS]:
        yield Problem(update.run_id, update.update_id, cannot.step_id, cannot.reason, what)
    if more := len(cannot.whats[_MAX_WHATS:]):
        yield Problem(update.run_id, update.update_id, cannot.step_id, cannot.reason, f"and {more} more")


def _write(
    out: Path, update: CommittedUpdate, evidence: UpdateEvidence, form: Form
) -> tuple[list[Written], CannotWrite | None]:
    """The bundles, and why the update has none of its own. What the format refuses of the update alone costs the steps
    no more than their link to it."""
    if not evidence.commit.record.steps:
        return [], None
    assembler = Assembler(evidence, form)
    assembled = assembler.assemble()
    try:
        return _published(out, update, assembled), assembled.without_update
    except CannotWrite as cannot:
        if cannot.reason is not NotWritten.NOT_REPRESENTABLE or cannot.step_id is not None or assembled.update is None:
            raise
        return _published(out, update, assembler.assemble(with_update=False)), cannot


def _published(out: Path, update: CommittedUpdate, assembled: Assembled) -> list[Written]:
    pairs = zip(assembled.all, publish(out, assembled.all), strict=True)
    return [_written(update, bundle, published) for bundle, published in pairs]


def _written(update: CommittedUpdate, bundle: Ready, published: Published) -> Written:
    index = next(iter(bundle.drafts.values())).index
    step, rollout_id = index.identity.actor_step_id, index.identity.rollout_id
    return Written(
        run_id=update.run_id,
        update_id=update.update_id,
        rollout_id=step.rollout_id if step is not None else rollout_id or 0,
        step_id=bundle.step_id,
        path=published.path,
        provenance=provenance_path(published.path),
        samples=sum(len(draft.index.samples) for draft in bundle.drafts.values()),
        was_there=published.was_there,
    )
