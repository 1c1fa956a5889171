"""Seal: an audited stretch as a file with an anchor behind it, so that the stretch may leave Kafka."""

import os
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from rollbook.infra.settings import Settings
from rollbook.replay.audit.anchor import Anchor, digest_of
from rollbook.replay.audit.audit import AuditReport, audit
from rollbook.replay.audit.decisions import Stretch
from rollbook.replay.audit.ledger import rows_of
from rollbook.replay.history.container import AnchorNote
from rollbook.replay.history.export import Exported, export
from rollbook.replay.history.ranges import OffsetRange
from rollbook.replay.history.source import LogSource
from rollbook.replay.progress import Watch
from rollbook.schemas.errors import BadInput, EnvironmentFault
from rollbook.schemas.text import visible


@dataclass(frozen=True, slots=True)
class Sealed:
    """`exported` is None where the audit did not pass, and nothing was written then."""

    report: AuditReport
    exported: Exported | None
    anchor: AnchorNote | None


@dataclass(frozen=True, slots=True)
class Planned:
    """A stretch to seal: from which anchor, and into which file."""

    stretch: Stretch
    before: Anchor | None
    out: Path


def plan(stretches: Sequence[Stretch], anchors: Sequence[Anchor], out: Path) -> tuple[Planned, ...]:
    """One file for each stretch, of a partition each: `out` itself or, of several or where it is a folder, one in it
    that is named by partition and first offset. Raises BadInput where anything is in the way, before one is written."""
    partitions = [one.partition for one in stretches]
    before = {one.note.partition: one for one in anchors}
    for known, what in ((partitions, "ranges"), ([one.note.partition for one in anchors], "anchors")):
        for twice in (one for one in known if known.count(one) > 1):
            raise BadInput(
                f"two {what} are of partition {twice}: a seal is of one range; seal the next from its anchor"
            )
    for one in (before[other] for other in before if other not in partitions):
        raise BadInput(f"{one.place} is of {one.note.lifecycle}:{one.note.partition}, and no range is: leave it out")
    in_folder = len(stretches) > 1 or out.is_dir()
    planned = [Planned(one, before.get(one.partition), out / _name(one) if in_folder else out) for one in stretches]
    for each in planned:
        if each.before is not None:
            each.before.check_fits(each.stretch)
        if os.path.lexists(each.out):
            raise BadInput(f"{visible(each.out)} exists: a seal replaces nothing; give another --out, or remove it")
    if in_folder:
        _make(out)
    return tuple(planned)


def _name(stretch: Stretch) -> str:
    return f"lifecycle-{stretch.partition}-{stretch.within.first}.avro"


def _make(folder: Path) -> None:
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except OSError as fault:
        raise EnvironmentFault(f"{visible(folder)} cannot be made ({fault.strerror}): give another --out") from None


def seal(
    log: LogSource,
    settings: Settings,
    stretch: Stretch,
    out: Path,
    *,
    before: Anchor | None = None,
    sealed: LogSource | None = None,
    payloads: bool = False,
    watch: Watch = lambda *_: None,
) -> Sealed:
    """Audit the decided part of a stretch, from the log's first record or the anchor of the seal before it, and write
    its records, their decisions and the state behind them. `sealed`: what lies before the anchor, where the log may
    have it no more. Raises what `audit` and `export` raise."""
    audited = audit(
        log,
        settings,
        stretch,
        anchor=before,
        sealed=sealed,
        payloads=payloads,
        may_be_empty=True,
        watch=watch,
    )
    if not audited.report.passed or not audited.report.decided:
        return Sealed(audited.report, None, None)
    decided_to = audited.decided_to
    rows = tuple(rows_of(audited.ledger, stretch.run_id))
    note = AnchorNote(
        lifecycle=stretch.lifecycle,
        partition=stretch.partition,
        topic_partitions=audited.ledger.topic_partitions,
        next_offset=decided_to,
        next_decision=audited.decisions.end,
        run=stretch.run_id,
        digest=digest_of(decided_to, rows),
    )
    ranges = [
        OffsetRange(stretch.lifecycle, stretch.partition, stretch.within.first, decided_to),
        OffsetRange(stretch.decisions, stretch.partition, _behind(log, stretch, before), audited.decisions.end),
    ]
    done = export(
        log,
        settings,
        ranges,
        out,
        run_id=stretch.run_id,
        payloads=payloads,
        anchor=note,
        rows=rows,
        watch=watch,
    )
    return Sealed(audited.report, done, note)


def _behind(log: LogSource, stretch: Stretch, before: Anchor | None) -> int:
    """Where the decisions of the seal before end, not where the first of this one lies: between them are markers and
    decisions of other runs, over which the files of both would not join."""
    first = log.bounds(stretch.decisions, stretch.partition).first
    return first if before is None else max(first, before.note.next_decision)
