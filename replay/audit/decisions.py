"""The decisions of a stretch of the log derived anew, and held against the topic's byte for byte."""

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from functools import cached_property
from typing import Any

from rollbook.processors.ledger.fold import CHAIN_BYTES, Folded, Ledger, NewerFoldVersion, SourceRecord, chain_of
from rollbook.processors.ledger.store import NO_CHAIN
from rollbook.replay.audit.findings import Finding, FindingKind
from rollbook.replay.history.decisions import DecisionLog, NotADecision
from rollbook.replay.history.source import Bounds, LogSource, OutOfRange, StoredRecord, place_of
from rollbook.replay.history.strays import is_stray
from rollbook.replay.progress import Watch
from rollbook.schemas.codec import ContractViolation, UndecodableRecord, decode, decode_as, encode
from rollbook.schemas.errors import BadInput
from rollbook.schemas.records.common import Lifecycle
from rollbook.schemas.records.decision import Decision
from rollbook.schemas.text import visible

_SHOWN = 400
_WATCH_EVERY = 1_000


@dataclass(frozen=True)
class Derived:
    """A lifecycle record, what the fold makes of it, and its decision in the topic, byte for byte the same."""

    stored: StoredRecord
    folded: Folded
    decided: StoredRecord

    @property
    def decision(self) -> Decision:
        return self.folded.decision

    @cached_property
    def record(self) -> Lifecycle | None:
        """The typed record, decoded when asked for; None where the contract refused it."""
        try:
            found = decode(self.stored.value or b"")
        except (UndecodableRecord, ContractViolation):
            return None
        return found if isinstance(found, Lifecycle) else None


class Differs(Exception):
    """The first difference, behind which nothing can be compared any more."""

    def __init__(self, finding: Finding) -> None:
        super().__init__(finding.what)
        self.finding = finding


@dataclass(frozen=True, slots=True)
class Stretch:
    """Which records of a partition are audited: lifecycle offsets `within`, of one run alone where it is given.
    `lifecycle`, `decisions` and `ledger` are the topics."""

    lifecycle: str
    decisions: str
    ledger: str
    partition: int
    within: Bounds
    run_id: str | None = None
    is_open: bool = False
    """Whether it was to end where the log does."""

    def records(self, log: LogSource, end: int | None = None) -> Iterator[StoredRecord]:
        """Those of the lifecycle topic, below an offset where one is given."""
        key = None if self.run_id is None else self.run_id.encode()
        stop = self.within.end if end is None else end
        for stored in log.read(self.lifecycle, self.partition, self.within.first, stop):
            if key is None or stored.key == key:
                yield stored


class Deriver:
    """Folds a stretch into a ledger, which is that before its first record. `undecided`: how many records at the end
    have no decision yet, and `undecided_at` where the first lies; `decided_to`: the first lifecycle offset behind the
    decided ones; `decisions`: the offsets of their decisions; `strays`: the offsets of records under the run's key that
    belong to no run."""

    def __init__(self, log: LogSource, stretch: Stretch, ledger: Ledger) -> None:
        self._log = log
        self._stretch = stretch
        self.ledger = ledger
        self.undecided = 0
        self.undecided_at = ""
        self.strays: list[int] = []
        self.decided = 0
        self.decided_to = stretch.within.first
        self.decisions = Bounds(0, 0)

    def derive(self, what: str = "derived", watch: Watch = lambda *_: None) -> Iterator[Derived]:
        """Each decided record in order; `watch` is told `what` is done of the offsets. Raises Differs at the first that
        does not fit, BadInput where a newer rollbook is needed, and behind an anchor that no fold has made."""
        first, size = self._stretch.within.first, self._stretch.within.end - self._stretch.within.first
        decisions = self._decisions()
        said = next(decisions, None)
        for stored in self._stretch.records(self._log):
            if said is None:
                self._note_undecided(stored)
                continue
            derived = self._same(stored, said)
            if derived is None:
                continue
            if self.decided % _WATCH_EVERY == 1:
                watch(what, stored.offset - first, size)
            yield derived
            said = next(decisions, None)
        watch(what, size, size)
        if said is not None and (decision := _decision(said)).source.offset < self._stretch.within.end:
            raise Differs(self._gone(said, decision))

    def _note_undecided(self, stored: StoredRecord) -> None:
        if self._stretch.run_id is not None and is_stray(stored, self.ledger.topic_partitions):
            self.strays.append(stored.offset)
            return
        self.undecided_at = self.undecided_at or stored.place
        self.undecided += 1

    def _decisions(self) -> Iterator[StoredRecord]:
        """Those of the stretch's records, not decoded: where they are the derived bytes they need not be."""
        of = self._stretch
        log = DecisionLog(self._log, of.decisions, of.partition)
        with no_decision():
            start = log.locate(of.within.first) if of.within.first else log.bounds.first
        try:
            end = log.locate(of.within.end)
        except NotADecision:  # told when its turn comes, behind the decisions before it
            end = log.bounds.end
        for stored in self._log.read(of.decisions, of.partition, start, end) if start < end else ():
            if self._key is None or stored.key == self._key:
                yield stored

    @property
    def _key(self) -> bytes | None:
        return None if self._stretch.run_id is None else self._stretch.run_id.encode()

    def _same(self, stored: StoredRecord, said: StoredRecord) -> Derived | None:
        """None for a record under the run's key that was decided, among the partition's strays, for no run."""
        mark = self.ledger.journal.mark()
        try:
            folded = self.ledger.fold(SourceRecord(stored.partition, stored.offset, stored.key, stored.value))
        except NewerFoldVersion as newer:
            raise BadInput(str(newer)) from None
        except (ValueError, LookupError, AssertionError) as problem:
            if not self._stretch.within.first:  # the state before it is what the rules came to
                raise
            raise BadInput(
                f"{stored.place}: there are no rules for it in the state before it ({problem}): where that is an "
                "anchor's, the anchor was made by hand; otherwise this is a defect of rollbook: report it"
            ) from None
        if folded.encoded != said.value:
            self.ledger.journal.undo(mark)
            is_stray = self._stretch.run_id not in (None, folded.decision.run_id)
            if is_stray and _decision(said).source.offset > stored.offset:
                self.strays.append(stored.offset)
                return None
            raise Differs(self._first_difference(stored, said, folded))
        if said.key != folded.decision.run_id.encode():
            self.ledger.journal.undo(mark)
            raise Differs(_of_another_run(stored, said, folded.decision))
        self.ledger.journal.keep()
        self.decided += 1
        first = self.decisions.first if self.decisions.end else said.offset
        self.decisions = Bounds(first, said.offset + 1)
        self.decided_to = stored.offset + 1
        return Derived(stored, folded, said)

    def _first_difference(self, stored: StoredRecord, said: StoredRecord, folded: Folded) -> Finding:
        decision = _decision(said)
        if decision.source.offset < stored.offset:
            return self._gone(said, decision)
        if decision.source.offset > stored.offset:
            self._check_retained(stored)
            return self._undecided(stored, said)
        if decision.source.sha256 != stored.sha256:
            what = f"decided at {said.place} was another record"
            sides = {"sha256": decision.source.sha256}, {"sha256": stored.sha256}
            return Finding(FindingKind.RECORD_CHANGED, stored.place, what, *sides)
        if decision.sequence > folded.decision.sequence == 1 and self._stretch.within.first > 0:
            raise BadInput(
                f"{stored.place} is the first record of run {visible(decision.run_id)} in the range, and number "
                f"{decision.sequence:,} of the run: begin with the run's first record; an audit may also begin at the "
                "--anchor of a sealed file"
            )
        return self._differs(stored, said, decision, folded)

    def _check_retained(self, stored: StoredRecord) -> None:
        """Raises OutOfRange where decisions are retained from a later record on only: then nobody took it out."""
        of = self._stretch
        log = DecisionLog(self._log, of.decisions, of.partition)
        with no_decision():
            first = next(log.read(), None)
        if log.bounds.first and first is not None and first.decision.source.offset > stored.offset:
            begin = f"{of.lifecycle}:{of.partition}:{first.decision.source.offset}-"
            problem = f"the decision of {stored.place} is not retained: an audit can begin at an anchor in {begin}"
            raise OutOfRange(f"{of.decisions}:{of.partition}", problem, log.bounds)

    def _differs(self, stored: StoredRecord, said: StoredRecord, decision: Decision, folded: Folded) -> Finding:
        run = self.ledger.runs.get(decision.run_id)
        previous = NO_CHAIN if run is None else run.head.chain
        body = (said.value or b"")[:-CHAIN_BYTES]
        is_linked = chain_of(previous, decision.source.sha256, body) == decision.chain
        there, derived = differences(decision, decode_as(Decision, folded.encoded))
        kind = FindingKind.DECISION_DIFFERS if is_linked else FindingKind.DECISION_CHANGED
        return Finding(
            kind, said.place, f"the decision on the {decision.record_type} at {stored.place}", there, derived
        )

    def _gone(self, said: StoredRecord, decision: Decision) -> Finding:
        of = self._stretch
        place = place_of(of.lifecycle, of.partition, decision.source.offset)
        what = f"the {decision.record_type or 'record'} that was decided at {said.place} is not there"
        return Finding(FindingKind.RECORD_GONE, place, what, {}, {})

    def _undecided(self, stored: StoredRecord, following: StoredRecord) -> Finding:
        what = f"it has no decision; that of a later record follows at {following.place}"
        return Finding(FindingKind.RECORD_UNDECIDED, stored.place, what, {}, {})


def _of_another_run(stored: StoredRecord, said: StoredRecord, decision: Decision) -> Finding:
    """By its key, which nothing else vouches for, whoever looks at a run finds its decisions."""
    what = f"the key of the decision on the {decision.record_type} at {stored.place}"
    sides = {"key": _text((said.key or b"").decode(errors="backslashreplace"))}, {"key": decision.run_id}
    return Finding(FindingKind.DECISION_CHANGED, said.place, what, *sides)


def _decision(stored: StoredRecord) -> Decision:
    try:
        return decode_as(Decision, stored.value or b"")
    except (UndecodableRecord, ContractViolation) as problem:
        raise Differs(Finding(FindingKind.NO_DECISION, stored.place, str(problem), {}, {})) from None


@contextmanager
def no_decision() -> Iterator[None]:
    """What is no decision is in the way of looking for one: raises Differs."""
    try:
        yield
    except NotADecision as foreign:
        raise Differs(Finding(FindingKind.NO_DECISION, foreign.place, str(foreign), {}, {})) from None


def differences(said: Decision, derived: Decision) -> tuple[dict[str, str], dict[str, str]]:
    """The fields that differ, on both sides."""
    there, here = _fields(said), _fields(derived)
    names = [name for name in (*there, *here) if there.get(name) != here.get(name)]
    sides = [{name: _text(side.get(name)) for name in dict.fromkeys(names)} for side in (there, here)]
    if not names and encode(said) == encode(derived):
        sides = [{"schema": "another version's bytes"}, {"schema": "this version's bytes"}]
    return sides[0], sides[1]


def _fields(decision: Decision) -> dict[str, Any]:
    return decision.model_dump(mode="json")


def _text(value: object) -> str:
    text = str(value)
    return text if len(text) <= _SHOWN else f"{text[:_SHOWN]}... ({len(text):,} characters)"
