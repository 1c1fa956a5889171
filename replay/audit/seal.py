"""Seal: an audited stretch as a file with an anchor behind it, so that the stretch may leave Kafka."""

from dataclasses import dataclass
from pathlib import Path

from rollbook.infra.settings import Settings
from rollbook.replay.audit.anchor import Anchor, digest_of
from rollbook.replay.audit.audit import AuditReport, audit
from rollbook.replay.audit.decisions import Stretch
from rollbook.replay.audit.ledger import rows_of
from rollbook.replay.history.container import AnchorNote
from rollbook.replay.history.export import Exported, export
from rollbook.replay.history.progress import Watch
from rollbook.replay.history.ranges import OffsetRange
from rollbook.replay.history.source import LogSource


@dataclass(frozen=True, slots=True)
class Sealed:
    """`exported` is None where the audit did not pass, and nothing was written then."""

    report: AuditReport
    exported: Exported | None
    anchor: AnchorNote | None


def seal(
    log: LogSource,
    settings: Settings,
    stretch: Stretch,
    out: Path,
    *,
    before: Anchor | None = None,
    payloads: bool = False,
    watch: Watch = lambda *_: None,
) -> Sealed:
    """Audit the decided part of a stretch, from the log's first record or the anchor of the seal before it, and write
    its records, their decisions and the state behind them. Raises what `audit` and `export` raise."""
    audited = audit(log, settings, stretch, anchor=before, payloads=payloads, watch=watch)
    if not audited.report.passed or not audited.report.decided:
        return Sealed(audited.report, None, None)
    decided_to = audited.decided_to
    rows = tuple(rows_of(audited.ledger, stretch.run_id))
    note = AnchorNote(
        lifecycle=stretch.lifecycle,
        partition=stretch.partition,
        topic_partitions=audited.ledger.topic_partitions,
        next_offset=decided_to,
        run=stretch.run_id,
        digest=digest_of(decided_to, rows),
    )
    ranges = [
        OffsetRange(stretch.lifecycle, stretch.partition, stretch.within.first, decided_to),
        OffsetRange(stretch.decisions, stretch.partition, audited.decisions.first, audited.decisions.end),
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
