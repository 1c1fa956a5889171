"""The time line of updates: when each was reserved, started, and how it ended."""

from collections.abc import Iterable
from dataclasses import dataclass, field

from rollbook.processors.dashboard.answers import Step, UpdateLine
from rollbook.processors.dashboard.counting import ACCEPTED, DUPLICATE
from rollbook.processors.dashboard.lean import Head, Rest, Row
from rollbook.schemas.records.decision import FreshnessSnapshot

MOST_UPDATES = 200
SHOWN = 100
_OPEN = (Step.RESERVED, Step.STARTED, Step.IN_DOUBT)
_REFUSED_ROWS = frozenset((b"Reserve", b"Admit"))
_PASSED = frozenset((b"ok", b"reserved", b"idempotent_retry"))


@dataclass(slots=True)
class _Update:
    learner: str
    step: Step = Step.RESERVED
    reserved_ms: int | None = None
    started_ms: int | None = None
    ended_ms: int | None = None
    reserved: int = 0
    refused: int = 0
    consumed: int = 0
    reason: str = ""
    judged: set[int] = field(default_factory=set)
    """Rows that were admitted, by a hash: a later Admit of the same row is answered again, and not judged."""


class Updates:
    """Those of one run, the newest `MOST_UPDATES`; open ones stay."""

    def __init__(self) -> None:
        self._known: dict[str, _Update] = {}

    def take(self, at_ms: int, head: Head, rest: Rest) -> None:
        """A decision about an update, or one that ends many."""
        record_type, outcome = head[3], head[4]
        if outcome == DUPLICATE:
            return
        name = rest.update.decode()
        update = self._known.get(name)
        if outcome != ACCEPTED:
            if update is not None and record_type in _REFUSED_ROWS:
                update.refused += _refused(rest.rows)
            return
        if update is None:
            update = self._known[name] = _Update(rest.learner.decode())
            self._make_room()
        match record_type:
            case b"Reserve":
                update.reserved_ms = at_ms if update.reserved_ms is None else update.reserved_ms
                update.reserved += sum(row[1] == b"reserved" for row in rest.rows)
                update.refused += _refused(rest.rows)
                self._alive(update)
            case b"Admit":
                update.refused += _refused(rest.rows)
                self._alive(update)
            case b"Renew":
                self._alive(update)
            case b"UpdateStarted":
                update.started_ms, update.step = at_ms, Step.STARTED
            case b"Commit":
                self._end(update, at_ms, Step.COMMITTED, "")
                update.consumed += sum(row[1] == b"trained" for row in rest.rows)
            case b"Abort":
                self._end(update, at_ms, Step.ABORTED, head[6].decode())
            case b"LeaseExpired" if head[6] == b"in_doubt":
                update.step = Step.IN_DOUBT
            case b"LeaseExpired":
                self._end(update, at_ms, Step.EXPIRED, head[6].decode())
            case _:
                pass

    def end(self, names: Iterable[str], at_ms: int, step: Step, reason: str) -> None:
        """Updates that another record ended: a new start of their learner, the run's end."""
        for name in names:
            update = self._known.get(name)
            if update is not None:
                self._end(update, at_ms, step, reason)

    def is_judged(self, name: bytes, row: Row) -> bool:
        """Whether an Admit only repeats its first answer about an admitted row; remembers it else."""
        update = self._known.get(name.decode())
        if update is None or row[1] != b"ok":
            return False
        found = hash(row[0])
        if found in update.judged:
            return True
        update.judged.add(found)
        return False

    def lines(self, snapshot: FreshnessSnapshot | None, leases: dict[str, int]) -> tuple[UpdateLine, ...]:
        """The open ones and the newest ended, newest first. `leases`: until when those of open updates run."""
        if snapshot is not None and snapshot.open_update_count <= len(snapshot.open_updates):
            self._agree(snapshot)
        newest = sorted(
            self._known.items(),
            key=lambda found: (found[1].step in _OPEN, found[1].reserved_ms or found[1].started_ms or 0),
            reverse=True,
        )[:SHOWN]
        return tuple(_line(name, update, leases.get(name)) for name, update in newest)

    def _agree(self, snapshot: FreshnessSnapshot) -> None:
        for one in snapshot.updates:
            update = self._known.get(one.update_id)
            if update is not None and one.in_doubt and update.step in _OPEN:
                update.step = Step.IN_DOUBT

    @staticmethod
    def _alive(update: _Update) -> None:
        if update.step is Step.IN_DOUBT:
            update.step = Step.STARTED

    @staticmethod
    def _end(update: _Update, at_ms: int, step: Step, reason: str) -> None:
        update.ended_ms, update.step, update.reason = at_ms, step, reason
        update.judged.clear()

    def _make_room(self) -> None:
        if len(self._known) > MOST_UPDATES:
            ended = (name for name, update in self._known.items() if update.step not in _OPEN)
            del self._known[next(ended, next(iter(self._known)))]


def _refused(rows: list[Row]) -> int:
    return sum(row[1] not in _PASSED for row in rows)


def _line(name: str, update: _Update, lease_until_ms: int | None) -> UpdateLine:
    return UpdateLine(
        update_id=name,
        learner_id=update.learner,
        step=update.step,
        reserved_ms=update.reserved_ms,
        started_ms=update.started_ms,
        ended_ms=update.ended_ms,
        reserved=update.reserved,
        refused=update.refused,
        consumed=update.consumed,
        reason=update.reason,
        lease_until_ms=lease_until_ms if update.ended_ms is None else None,
    )
