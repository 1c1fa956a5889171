"""The compacted ledger topic held against what the decisions lead to."""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field

from rollbook.processors.ledger.figures import FIGURE, SINCE, THROUGH, is_figure
from rollbook.processors.ledger.fold import Ledger
from rollbook.processors.ledger.keys import POSITION, key_of, parse_key, position_key
from rollbook.processors.ledger.rebuild import Rebuild
from rollbook.replay.audit.decisions import Stretch
from rollbook.replay.audit.findings import Finding, FindingKind
from rollbook.replay.history.source import LogSource, place_of
from rollbook.schemas.codec import ContractViolation, UndecodableRecord, decode, encode
from rollbook.schemas.errors import BadInput
from rollbook.schemas.types import Part

_MOST = 20
_TALLY = "tally"
_NAMED = FIGURE.encode()
"""In a key before it is parsed: a ledger may have millions."""
_ROUNDS = 3


class NotHere(Exception):
    """The topic cannot be held against the fold: it stands at another place, or is not to be had."""


@dataclass(slots=True)
class Kept:
    """The rows that the topic has, and where each lies."""

    topic: str
    partition: int
    rebuild: Rebuild
    places: dict[bytes, str] = field(default_factory=dict)
    apart: frozenset[str] = frozenset()
    """Runs whose figures could not be held against anything."""

    @property
    def next_offset(self) -> int:
        """The lifecycle offset that it stands at; where that can be read."""
        return self.rebuild.next_offset

    def no_position(self) -> Finding | None:
        """What lies where its position should, or that nothing does: rows are written together with it."""
        key = position_key(self.partition)
        try:
            if self.rebuild.position is None and self.rebuild.rows:
                here = place_of(self.topic, self.partition, 0)
                return self._finding(here, f"row {_text(key)} is not there", {}, {"row": "a position"})
        except (UndecodableRecord, ContractViolation) as problem:
            return self._finding(self.places[key], f"row {_text(key)}", {"row": str(problem)}, {"row": "a position"})
        return None

    def differences(self, ledger: Ledger, run_id: str | None) -> Iterator[Finding]:
        """What is not as in a ledger that stands at the same place, row by row, of one run or of all. Rows are compared
        as what they say: one that has not changed since is there as an older rollbook wrote it."""
        derived = dict(rows_of(ledger, run_id))
        kept = dict(self.rebuild.latest())
        self.apart = _counted_apart(kept, derived, run_id)
        derived = {key: row for key, row in derived.items() if not _is_figure_of(key, self.apart)}
        count = 0
        for key, said in kept.items():
            if _is_figure_of(key, self.apart):
                continue
            of, kind = _parsed(key)
            # What is under no key of the ledger is nobody's, and in everybody's way.
            if kind == POSITION or (kind and run_id not in (None, of)):
                continue
            wanted = derived.pop(key, None)
            if _is_same(said, wanted):
                continue
            count += 1
            if count > _MOST:
                return
            yield self._finding(self.places[key], f"row {_text(key)}", _fields(said, wanted), _fields(wanted, said))
        here = place_of(self.topic, self.partition, 0)
        for key, missing in sorted(derived.items())[: max(0, _MOST - count)]:
            yield self._finding(here, f"row {_text(key)} is not there", {}, _fields(missing, None))

    def misplaced(self, where: str, nearest: int) -> Finding:
        """It stands where it cannot, since it is written together with the decisions."""
        key = position_key(self.partition)
        place = self.places.get(key, place_of(self.topic, self.partition, 0))
        sides = [{"next_offset": str(offset)} for offset in (self.next_offset, nearest)]
        return self._finding(place, f"row {_text(key)}: {where}", sides[0], sides[1])

    def _finding(self, place: str, what: str, said: dict[str, str], derived: dict[str, str]) -> Finding:
        return Finding(FindingKind.LEDGER_DIFFERS, place, what, said, derived)


def read_ledger(log: LogSource, of: Stretch, topic_partitions: int) -> Kept:
    """The topic of a stretch as it is at its end, of one run or of all. Raises NotHere."""
    topic, partition = of.ledger, of.partition
    kept = Kept(topic, partition, Rebuild(partition, topic_partitions, of.run_id))
    try:
        bounds = log.bounds(topic, partition)
        at = bounds.first
        # What is written meanwhile may be all that compaction leaves of a row.
        for _ in range(_ROUNDS):
            for stored in log.read(topic, partition, at, bounds.end) if at < bounds.end else ():
                key = stored.key or b""
                kept.rebuild.take(key, stored.value)
                kept.places[key] = stored.place
            at, bounds = bounds.end, log.bounds(topic, partition)
    except BadInput as problem:
        raise NotHere(str(problem)) from None
    return kept


def rows_of(ledger: Ledger, run_id: str | None = None) -> Iterator[tuple[bytes, bytes]]:
    """A ledger's rows as its topic has them, by key."""
    for name in sorted(ledger.runs):
        if run_id in (None, name):
            for table in ledger.run(name).tables():
                for key, row in table.items():
                    yield key_of(name, table.kind, key), encode(row)


def _counted_apart(kept: Mapping[bytes, bytes], derived: Mapping[bytes, bytes], of: str | None) -> frozenset[str]:
    """Runs, or of one run itself, whose figures begin with another decision than those derived, do not go through to
    the last one, or are not there at all: a rollbook that did not count them wrote the ledger, or the anchor that this
    fold began with, or had it in between. Nothing was decided by them."""
    counted = {run_id for key in kept for run_id in _figure(key)}
    never = (run_id for key in derived for run_id in _figure(key) if run_id not in counted)
    otherwise = (run_id for run_id in counted if of in (None, run_id) and not _is_as_far(kept, derived, run_id))
    return frozenset((*never, *otherwise))


def _is_as_far(kept: Mapping[bytes, bytes], derived: Mapping[bytes, bytes], run_id: str) -> bool:
    """Whether figures say of themselves that they count the decisions that those derived count. Where they do not say
    it, they are compared, and what should say it is missing."""
    since, through = (key_of(run_id, _TALLY, name) for name in (SINCE, THROUGH))
    return not {since, through} <= kept.keys() or all(_is_same(kept[key], derived.get(key)) for key in (since, through))


def _is_figure_of(key: bytes, runs: frozenset[str]) -> bool:
    return any(run_id in runs for run_id in _figure(key)) if runs else False


def _figure(key: bytes) -> Iterator[str]:
    """The run of a row that is a figure."""
    if _NAMED not in key:
        return
    try:
        run_id, kind, name = parse_key(key)
    except ValueError:
        return
    if kind == _TALLY and isinstance(name, str) and is_figure(name):
        yield run_id


def _parsed(key: bytes) -> tuple[str | None, str]:
    """The run and kind of a key, none where it is no key."""
    try:
        of, kind, _ = parse_key(key)
    except ValueError:
        return None, ""
    return of, kind


def _text(key: bytes) -> str:
    return key.decode(errors="backslashreplace")


def _is_same(said: bytes, derived: bytes | None) -> bool:
    if said == derived:
        return True
    row = _row(said)
    return derived is not None and isinstance(row, Part) and row == decode(derived)


def _row(value: bytes) -> Part | str:
    """A row, or what is wrong with it."""
    try:
        return decode(value)
    except (UndecodableRecord, ContractViolation) as problem:
        return str(problem)


def _fields(row: bytes | None, other: bytes | None) -> dict[str, str]:
    """The fields of a row that the other has not."""
    if row is None:
        return {"row": "none"}
    own, others = _row(row), "" if other is None else _row(other)
    if isinstance(own, str):
        return {"row": own}
    theirs = {} if isinstance(others, str) else others.model_dump(mode="json")
    return {name: str(value)[:400] for name, value in own.model_dump(mode="json").items() if theirs.get(name) != value}
