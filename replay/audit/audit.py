"""Audit: a run or a partition folded again, from its first record or from an anchor, and held against the log."""

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field, replace

from rollbook.infra.settings import Settings, Topic
from rollbook.processors.ledger.fold import Ledger
from rollbook.replay.audit.anchor import Anchor, anchors_within
from rollbook.replay.audit.bundles import BundlesChecked
from rollbook.replay.audit.chains import Chains, noted_heads
from rollbook.replay.audit.decisions import Stretch
from rollbook.replay.audit.evidence import Checked, EvidenceCheck
from rollbook.replay.audit.findings import Finding, FindingKind
from rollbook.replay.audit.folding import Folding
from rollbook.replay.audit.ledger import NotHere
from rollbook.replay.audit.lookup import Lookup, Written
from rollbook.replay.history.file import FileLog
from rollbook.replay.history.narrowed import narrowed_to
from rollbook.replay.history.ranges import OffsetRange
from rollbook.replay.history.source import Bounds, LogSource
from rollbook.replay.progress import Watch
from rollbook.schemas.errors import BadInput
from rollbook.schemas.partition import partition_of
from rollbook.schemas.text import plural, visible


@dataclass(frozen=True, slots=True)
class Head:
    """Where a run's chain stands behind the audited records: it vouches for all of them."""

    run_id: str
    sequence: int
    chain: str
    fold_version: int


@dataclass(frozen=True, slots=True)
class AuditReport:
    """What an audit found. `decided`: lifecycle records whose decisions were derived byte for byte; `undecided`: those
    at the end that have none yet; `unchecked`: what could not be held against anything, and why."""

    lifecycle: str
    partition: int
    within: Bounds
    run_id: str | None
    decided: int
    undecided: int
    heads: tuple[Head, ...]
    checked: Checked = field(hash=False)
    findings: tuple[Finding, ...]
    unchecked: tuple[str, ...]
    more: int = 0
    """Findings besides, which were only counted."""
    bundles: int = 0
    """How many were held against the log, where any were given."""

    def with_bundles(self, checked: BundlesChecked) -> "AuditReport":
        """This report with what bundles were found to be."""
        findings, unchecked = (*self.findings, *checked.findings), (*self.unchecked, *checked.unchecked)
        return replace(self, bundles=checked.made, findings=findings, unchecked=unchecked)

    @property
    def passed(self) -> bool:
        return not self.findings


def stretch_of(log: LogSource, settings: Settings, wanted: OffsetRange | None, run_id: str | None) -> Stretch:
    """What to audit: a range of the lifecycle topic, or the partition of a run; of files that were narrowed to a run
    that run alone. Raises BadInput, OutOfRange."""
    lifecycle, decisions, ledger = map(settings.topic, (Topic.LIFECYCLE, Topic.DECISIONS, Topic.LEDGER))
    if wanted is None:
        if run_id is None:
            raise BadInput("say what to audit: --run RUN, a range such as lifecycle:0:-, or an exported file")
        wanted = OffsetRange(lifecycle, partition_of(run_id, log.partitions(lifecycle)))
    if wanted.topic != lifecycle:
        raise BadInput(f"{wanted}: decisions are derived from {lifecycle}: give a range of that")
    run_id, is_open = narrowed_to(log, wanted, run_id), wanted.end is None or wanted.is_open
    return Stretch(lifecycle, decisions, ledger, wanted.partition, wanted.resolved(log), run_id, is_open)


@dataclass(frozen=True, slots=True)
class Audited:
    """A report, with the state that the decided records lead to, the lifecycle offset behind them and the offsets of
    their decisions."""

    report: AuditReport
    ledger: Ledger
    decided_to: int
    decisions: Bounds


def audit(
    log: LogSource,
    settings: Settings,
    stretch: Stretch,
    *,
    anchor: Anchor | None = None,
    heads: Iterable[str] = (),
    sealed: LogSource | None = None,
    payloads: bool = True,
    may_be_empty: bool = False,
    watch: Watch = lambda *_: None,
) -> Audited:
    """Fold the stretch again and compare all that can be derived. `anchor`: the state before its first record, for one
    that does not begin at the log's first; `heads`: chain heads noted elsewhere, which some decision must have;
    `sealed`: what lies before the anchor, where the log may have it no more; `payloads`: also compute drift and digests
    again; `may_be_empty`: a stretch in which nothing is decided is no error.

    What does not fit is in the report. Raises BadInput for a stretch whose beginning needs an anchor, or in which
    nothing is decided, OutOfRange, EnvironmentFault.
    """
    noted = noted_heads(heads)
    ledger = _ledger_before(stretch, log.partitions(stretch.lifecycle), anchor)
    before = None if anchor is None else frozenset(head.chain for head in _heads(ledger, None))
    edited = () if anchor is None else tuple(anchor.check())
    is_taken = anchor is not None and anchor.noted is None
    logs = (log,) if sealed is None else (log, sealed)
    folding = Folding(
        log,
        stretch,
        ledger,
        chains := Chains(noted, before, is_vouched=not is_taken and not edited),
        _evidence(logs, settings, stretch) if payloads else None,
        watch,
    )
    findings = folding.findings
    for file in logs:
        findings.take(_changed(file))
    findings.take(edited)
    apart: list[tuple[str, str]] = []
    for one in anchors_within(log, stretch):
        folding.fold(one.note.next_offset)
        if not folding.differs:
            differing, uncounted = one.compared(ledger, stretch.run_id)
            findings.take((*one.check(), *differing))
            apart += [(run, f"the anchor of {one.place}") for run in sorted(uncounted)]
    if not folding.differs:
        folding.fold(stretch.within.end)
    folding.check_tail()
    unchecked = [f"the anchor's own state: an audit of {anchor.place} derives it"] if anchor and is_taken else []
    if folding.behind:
        unchecked.append(f"{plural(folding.behind, 'decision')}: of records behind the end of what was given")
    if not folding.differs:  # else the state is not that of the log
        try:
            folding.check_ledger()
        except NotHere as reason:
            unchecked.append(f"the compacted ledger: {reason}")
    apart += [(run, "the compacted ledger") for run in sorted(folding.uncounted)]
    unchecked += [
        f"figures of run {visible(run)} in {where}: other decisions are counted there" for run, where in apart
    ]
    findings.take(folding.finish())
    of_checkpoints, untold = chains.unknown_checkpoints(logs, stretch)
    findings.take(of_checkpoints)
    for of_head in chains.unknown_heads(stretch):
        findings.add(of_head)
    if untold:
        unchecked.append(
            f"chain heads of {plural(untold, 'checkpoint')}: of decisions before the anchor, not to be had"
        )
    if not findings.first and not may_be_empty:
        check_decided(stretch, folding.decided, folding.undecided)
    report = AuditReport(
        lifecycle=stretch.lifecycle,
        partition=stretch.partition,
        within=Bounds(stretch.within.first, folding.end),
        run_id=stretch.run_id,
        decided=folding.decided,
        undecided=folding.undecided,
        heads=tuple(_heads(ledger, stretch.run_id)),
        checked=folding.checked,
        findings=tuple(findings.first),
        more=findings.more,
        unchecked=(*_unchecked(folding.checked if payloads else None), *unchecked),
    )
    return Audited(report, ledger, folding.decided_to, folding.decisions)


def _evidence(logs: tuple[LogSource, ...], settings: Settings, stretch: Stretch) -> EvidenceCheck:
    written = Written(logs, settings.topic(Topic.PAYLOADS))
    return EvidenceCheck(Lookup(logs), written, stretch.lifecycle, stretch.partition)


def _changed(log: LogSource) -> Iterator[Finding]:
    for one in log.verify() if isinstance(log, FileLog) else ():
        sides = [{"records": f"{total.records:,}", "sha256": total.digest} for total in (one.there, one.exported)]
        yield Finding(FindingKind.FILE_CHANGED, visible(one.path, limit=4096), str(one.section), sides[0], sides[1])


def check_decided(stretch: Stretch, decided: int, undecided: int) -> None:
    """To find nothing wrong in nothing is no answer. Raises BadInput where no record of the stretch is decided."""
    if decided:
        return
    place = f"{stretch.lifecycle}:{stretch.partition}:{stretch.within.first}-{stretch.within.end}"
    whose = "no record" if stretch.run_id is None else f"no record of run {visible(stretch.run_id)}"
    if undecided:
        raise BadInput(
            f"{place}: {whose} has a decision in {stretch.decisions}:{stretch.partition}: give all of the decisions, "
            "too, or start the processor where none were made yet"
        )
    raise BadInput(f"{place}: there is {whose}: see that run and range are those that you mean")


def _ledger_before(stretch: Stretch, partitions: int, anchor: Anchor | None) -> Ledger:
    if anchor is not None:
        return anchor.ledger(stretch)
    if stretch.within.first > 0 and stretch.run_id is None:
        raise BadInput(
            f"{stretch.lifecycle}:{stretch.partition}:{stretch.within.first}- does not begin at the log's first "
            "record: audit from there, or give the --anchor of a sealed range that ends here"
        )
    return Ledger(stretch.partition, partitions)


def _heads(ledger: Ledger, run_id: str | None) -> Iterator[Head]:
    for name in sorted(ledger.runs):
        head = ledger.run(name).head
        if head.sequence and run_id in (None, name):
            yield Head(name, head.sequence, head.chain, head.fold_version)


def _unchecked(checked: Checked | None) -> list[str]:
    if checked is None:
        return ["drift and recordings: not asked for"]
    bare, ungenerated = (plural(one, "admitted row") for one in (checked.without_log_probs, checked.without_generated))
    told = (
        (checked.without_log_probs, f"drift of {bare}: no log-probs were kept"),
        (checked.without_generated, f"drift of {ungenerated}: generated before the range, and that is not to be had"),
        (checked.refused, f"drift of {plural(checked.refused, 'row')}: refused for other evidence than was generated"),
        (checked.gone, f"{plural(checked.gone, 'payload')}: not in the log (any more)"),
    )
    return [text for count, text in told if count]
