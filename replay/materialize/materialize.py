"""Materialize: the committed updates of an offset range as bundles on disk."""

import os
import secrets
import shutil
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from rollbook.infra.settings import Settings, Topic
from rollbook.replay.bundle.drafts import Draft
from rollbook.replay.bundle.layout import leftover_name
from rollbook.replay.bundle.model import ActorStepId
from rollbook.replay.bundle.problems import BadBundle
from rollbook.replay.bundle.writer import write_bundle, write_cohort
from rollbook.replay.history.decisions import DecisionLog
from rollbook.replay.history.ranges import OffsetRange
from rollbook.replay.history.source import LogSource
from rollbook.replay.materialize.checks import RankStep, Row, contradictions, rank_step
from rollbook.replay.materialize.commits import CommittedUpdate, Watch, find_committed
from rollbook.replay.materialize.draft import drafts_of
from rollbook.replay.materialize.evidence import Recording, UpdateEvidence
from rollbook.replay.materialize.gather import Gatherer
from rollbook.replay.materialize.naming import bundle_id_of
from rollbook.replay.materialize.provenance import (
    Provenance,
    UsedPayload,
    UsedRecord,
    provenance_path,
    write_provenance,
)
from rollbook.replay.materialize.report import CannotWrite, MaterializeReport, NotWritten, Problem, Written
from rollbook.replay.text import visible
from rollbook.schemas.errors import BadInput, EnvironmentFault
from rollbook.schemas.partition import partition_of
from rollbook.schemas.records.update import CommitStep

_MAX_WHATS = 20
"""How many contradictions of one update are told."""


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


@dataclass(frozen=True, slots=True)
class _Step:
    """One step, checked and ready to be written. `drafts`: by rank."""

    drafts: Mapping[int, Draft]
    provenance: Provenance

    @property
    def bundle_id(self) -> str:
        return self.provenance.bundle_id


def materialize(log: LogSource, wanted: Wanted, out: Path, watch: Watch = lambda *_: None) -> MaterializeReport:
    """Write the bundles of the wanted updates below `out`: an update's bundles all or none.

    The same step gives the same bytes, whatever the range, whenever it is written. What cannot be written is in the
    report with its reason. Raises OutOfRange for a range that is not to be had, EnvironmentFault when broker or disk do
    not play along.
    """
    partition = wanted.lifecycle.partition
    within = wanted.lifecycle.within(log.bounds(wanted.lifecycle.topic, partition))
    decisions = DecisionLog(log, wanted.decisions_topic, partition)
    found = find_committed(decisions, within, run_id=wanted.run_id, update_id=wanted.update_id, watch=watch)
    gatherer = Gatherer(log, wanted.lifecycle.topic, decisions)
    written: list[Written] = []
    problems: list[Problem] = []
    for count, update in enumerate(found.updates):
        watch("updates", count, len(found.updates))
        try:
            written += _write(out, update, _steps(out, update, gatherer.gather(update)))
        except CannotWrite as cannot:
            problems += _problems(update, cannot)
    watch("updates", len(found.updates), len(found.updates))
    return MaterializeReport(len(found.updates), tuple(written), tuple(problems), found.undecided)


def _problems(update: CommittedUpdate, cannot: CannotWrite) -> Iterator[Problem]:
    for what in cannot.whats[:_MAX_WHATS]:
        yield Problem(update.run_id, update.update_id, cannot.step_id, cannot.reason, what)
    if more := len(cannot.whats[_MAX_WHATS:]):
        yield Problem(update.run_id, update.update_id, cannot.step_id, cannot.reason, f"and {more} more")


def _steps(out: Path, update: CommittedUpdate, evidence: UpdateEvidence) -> list[_Step]:
    steps = []
    for step, recordings in zip(evidence.commit.record.steps, evidence.recordings, strict=True):
        bundle_id = bundle_id_of(update.run_id, update.update_id, step.rollout_id, step.step_id)
        if os.path.lexists(out / bundle_id):
            raise CannotWrite(NotWritten.EXISTS, f"{out / bundle_id} exists: give another --out", step_id=step.step_id)
        steps.append(_step(bundle_id, step, recordings, evidence))
    return steps


def _step(bundle_id: str, step: CommitStep, recordings: Sequence[Recording], evidence: UpdateEvidence) -> _Step:
    ranks = [rank_step(recording, evidence.trajectories) for recording in recordings]
    wrong = list(contradictions(ranks, step, evidence.commit.place))
    if wrong:
        raise CannotWrite(NotWritten.DISAGREEMENT, *wrong, step_id=step.step_id)
    try:
        drafts = drafts_of(bundle_id, ranks)
    except CannotWrite as cannot:
        raise CannotWrite(cannot.reason, *cannot.whats, step_id=step.step_id) from None
    provenance = Provenance(
        bundle_id=bundle_id,
        run_id=evidence.commit.record.header.run_id,
        update_id=evidence.commit.record.update_id,
        actor_step_id=ActorStepId(rollout_id=step.rollout_id, step_id=step.step_id),
        ranks=tuple(drafts),
        records=_records(evidence, [row for found in ranks for row in found.rows]),
        payloads=_payloads(ranks),
    )
    return _Step(drafts, provenance)


def _records(evidence: UpdateEvidence, rows: Sequence[Row]) -> tuple[UsedRecord, ...]:
    facts = [fact.used for row in rows for fact in (row.trajectory.generated, row.trajectory.reward)]
    by_offset = {used.position.offset: used for used in (*evidence.records, *facts)}
    return tuple(by_offset[offset] for offset in sorted(by_offset))


def _payloads(ranks: Sequence[RankStep]) -> tuple[UsedPayload, ...]:
    """The recordings, then the segments of their rows; what several ranks used is named once."""
    segments = [row.trajectory.segments[row.row.segment].used for found in ranks for row in found.rows]
    used = [found.recording.used for found in ranks] + [segment for segment in segments if segment is not None]
    return tuple({(one.record_type, one.chunks): one for one in used}.values())


def _write(out: Path, update: CommittedUpdate, steps: list[_Step]) -> list[Written]:
    """Everything into a hidden folder first, so that a step which the format refuses takes the others with it."""
    if not steps:
        return []
    staging = out / leftover_name(steps[0].bundle_id, secrets.token_hex(8))
    try:
        for step in steps:
            _stage(staging, step)
        written = [_publish(staging, out, update, step) for step in steps]
        _sync(out)
    except OSError as error:
        raise EnvironmentFault(f"cannot write into {visible(out)}: {error.strerror}; check disk and folder") from None
    finally:
        shutil.rmtree(staging, ignore_errors=True)
    return written


def _stage(staging: Path, step: _Step) -> None:
    target = staging / step.bundle_id
    try:
        if len(step.drafts) == 1:
            write_bundle(target, *step.drafts.values())
        else:
            write_cohort(target, step.drafts)
    except BadInput as refused:
        whats = tuple(map(str, refused.problems)) if isinstance(refused, BadBundle) else (str(refused),)
        raise CannotWrite(NotWritten.NOT_REPRESENTABLE, *whats, step_id=step.provenance.actor_step_id.step_id) from None
    write_provenance(provenance_path(target), step.provenance)


def _publish(staging: Path, out: Path, update: CommittedUpdate, step: _Step) -> Written:
    """The provenance first: a bundle is never seen without it."""
    identity, bundle_id = step.provenance.actor_step_id, step.bundle_id
    target = out / bundle_id
    provenance_path(staging / bundle_id).replace(provenance_path(target))
    (staging / bundle_id).rename(target)
    return Written(
        run_id=update.run_id,
        update_id=update.update_id,
        rollout_id=identity.rollout_id,
        step_id=identity.step_id,
        path=target,
        provenance=provenance_path(target),
        samples=sum(len(draft.index.samples) for draft in step.drafts.values()),
    )


def _sync(folder: Path) -> None:
    fd = os.open(folder, os.O_RDONLY | os.O_DIRECTORY)
    try:
        os.fsync(fd)
    finally:
        os.close(fd)
