"""Audit: a run or a partition folded again, from its first record or from an anchor, and held against the log."""

from collections import OrderedDict
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field

from rollbook.infra.settings import Settings, Topic
from rollbook.processors.ledger.fold import Ledger
from rollbook.replay.audit.anchor import Anchor
from rollbook.replay.audit.decisions import Derived, Deriver, Differs, Stretch
from rollbook.replay.audit.evidence import Checked, EvidenceCheck
from rollbook.replay.audit.findings import Finding, Kind
from rollbook.replay.audit.ledger import NotHere, check_ledger
from rollbook.replay.audit.lookup import Lookup
from rollbook.replay.history.file import FileLog
from rollbook.replay.history.narrowed import narrowed_to
from rollbook.replay.history.progress import Watch
from rollbook.replay.history.ranges import OffsetRange
from rollbook.replay.history.source import Bounds, LogSource
from rollbook.replay.text import visible
from rollbook.schemas.errors import BadInput
from rollbook.schemas.partition import partition_of
from rollbook.schemas.records.update import CheckpointSaved

_REMEMBERED = 65_536
_WATCH_EVERY = 1_000
_MOST_FINDINGS = 100


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
    checked: Checked
    findings: tuple[Finding, ...]
    unchecked: tuple[str, ...]

    @property
    def passed(self) -> bool:
        return not self.findings


@dataclass(slots=True)
class _Chains:
    """Chain heads that were noted somewhere: by checkpoints in the log, or elsewhere by whoever asks."""

    wanted: set[str]
    noted: list[tuple[str, str, str]] = field(default_factory=list)
    """Place, checkpoint and chain of those that no recent decision has."""
    _recent: OrderedDict[str, None] = field(default_factory=OrderedDict)
    """The latest, in order: two decisions have never the same."""

    def take(self, derived: Derived) -> None:
        record = derived.record if derived.decision.record_type == CheckpointSaved.__name__ else None
        if isinstance(record, CheckpointSaved) and record.chain and record.chain not in self._recent:
            self.noted.append((derived.stored.place, record.checkpoint.id, record.chain))
        self.wanted.discard(derived.decision.chain)
        self._recent[derived.decision.chain] = None
        if len(self._recent) > _REMEMBERED:
            self._recent.popitem(last=False)


def stretch_of(log: LogSource, settings: Settings, wanted: OffsetRange | None, run_id: str | None) -> Stretch:
    """What to audit: a range of the lifecycle topic, or the partition of a run; of files that were narrowed to a run
    that run alone. Raises BadInput, OutOfRange."""
    lifecycle, decisions = settings.topic(Topic.LIFECYCLE), settings.topic(Topic.DECISIONS)
    if wanted is None:
        if run_id is None:
            raise BadInput("say what to audit: --run RUN, a range such as lifecycle:0:-, or an exported file")
        wanted = OffsetRange(lifecycle, partition_of(run_id, log.partitions(lifecycle)))
    if wanted.topic != lifecycle:
        raise BadInput(f"{wanted}: decisions are derived from {lifecycle}: give a range of that")
    return Stretch(lifecycle, decisions, wanted.partition, wanted.resolved(log), narrowed_to(log, wanted, run_id))


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
    ledger = _ledger_before(stretch, log.partitions(stretch.lifecycle), anchor)
    before = frozenset(head.chain for head in _heads(ledger, None))
    findings = [finding for file in (log, sealed) for finding in _changed(file)]
    findings += [] if anchor is None else anchor.check()
    deriver, chains = Deriver(log, stretch, ledger), _Chains(set(heads) - before)
    lookup = Lookup((log,) if sealed is None else (log, sealed))
    evidence = EvidenceCheck(lookup, stretch.lifecycle, stretch.partition) if payloads else None
    size = stretch.within.end - stretch.within.first
    differs = False
    try:
        for count, derived in enumerate(deriver.derive()):
            if count % _WATCH_EVERY == 0:
                watch("folded", derived.stored.offset - stretch.within.first, size)
            chains.take(derived)
            if evidence is not None:
                findings += evidence.take(derived)
    except Differs as first:
        findings.append(first.finding)
        differs = True
    watch("folded", size, size)
    if evidence is not None:
        findings += evidence.finish()
    findings += _unknown_chains(log, stretch, chains, before)
    if not findings and not may_be_empty:
        check_decided(stretch, deriver)
    unchecked = _unchecked(evidence)
    if not differs:  # else the state is not that of the log
        try:
            findings += check_ledger(
                log, settings.topic(Topic.LEDGER), ledger, _stands(deriver, stretch), stretch.run_id
            )
        except NotHere as reason:
            unchecked.append(f"the compacted ledger: {reason}")
    report = AuditReport(
        lifecycle=stretch.lifecycle,
        partition=stretch.partition,
        within=stretch.within,
        run_id=stretch.run_id,
        decided=deriver.decided,
        undecided=deriver.undecided,
        heads=tuple(_heads(ledger, stretch.run_id)),
        checked=evidence.checked if evidence is not None else Checked(),
        findings=tuple(findings[:_MOST_FINDINGS]),
        unchecked=tuple(unchecked),
    )
    return Audited(report, ledger, deriver.decided_to, deriver.decisions)


def _changed(log: LogSource | None) -> Iterator[Finding]:
    for one in log.verify() if isinstance(log, FileLog) else ():
        sides = [{"records": f"{total.records:,}", "sha256": total.digest} for total in (one.there, one.exported)]
        yield Finding(Kind.FILE_CHANGED, visible(one.path, limit=4096), str(one.section), sides[0], sides[1])


def check_decided(stretch: Stretch, deriver: Deriver) -> None:
    """To find nothing wrong in nothing is no answer. Raises BadInput where no record of the stretch is decided."""
    if deriver.decided:
        return
    place = f"{stretch.lifecycle}:{stretch.partition}:{stretch.within.first}-{stretch.within.end}"
    whose = "no record" if stretch.run_id is None else f"no record of run {visible(stretch.run_id)}"
    if deriver.undecided:
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


def _stands(deriver: Deriver, stretch: Stretch) -> Bounds:
    """The lifecycle offsets that the ledger may name as the next, so that it is the state behind what was decided:
    what follows the last decided record in the stretch is of other runs, or of none."""
    return Bounds(deriver.decided_to, deriver.decided_to if deriver.undecided else stretch.within.end)


def _heads(ledger: Ledger, run_id: str | None) -> Iterator[Head]:
    for name in sorted(ledger.runs):
        head = ledger.run(name).head
        if head.sequence and run_id in (None, name):
            yield Head(name, head.sequence, head.chain, head.fold_version)


def _unknown_chains(log: LogSource, stretch: Stretch, chains: _Chains, before: frozenset[str]) -> Iterator[Finding]:
    """A checkpoint may be of a decision long past: those are looked for once more, all together."""
    missing = {chain for _, _, chain in chains.noted} - before
    if missing:
        missing -= _all_chains(log, stretch, missing)
    for place, checkpoint, chain in chains.noted:
        if chain in missing:
            yield Finding(Kind.CHECKPOINT_CHAIN, place, f"checkpoint {visible(checkpoint)}", {"chain": chain}, {})
    for chain in sorted(chains.wanted):
        where = f"{stretch.lifecycle}:{stretch.partition}"
        yield Finding(Kind.HEAD_UNKNOWN, where, "the head that was noted elsewhere", {"chain": chain}, {})


def _all_chains(log: LogSource, stretch: Stretch, wanted: set[str]) -> set[str]:
    bounds = log.bounds(stretch.decisions, stretch.partition)
    records = log.read(stretch.decisions, stretch.partition, bounds.first, bounds.end)
    ends = ((stored.value or b"")[-64:].decode(errors="replace") for stored in records)
    return {chain for chain in ends if chain in wanted}


def _unchecked(evidence: EvidenceCheck | None) -> list[str]:
    if evidence is None:
        return ["drift and recordings: not asked for"]
    checked = evidence.checked
    counts = {
        "drift of {} admitted rows: no log-probs were kept": checked.without_log_probs,
        "drift of {} admitted rows: their Generated is not to be had, before the range": checked.without_generated,
        "drift of {} rows: refused for other evidence than they were generated with": checked.refused,
        "{} payloads: the log does not have them any more": checked.gone,
    }
    return [text.format(f"{count:,}") for text, count in counts.items() if count]
