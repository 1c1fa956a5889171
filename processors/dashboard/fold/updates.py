"""The time line of updates: when each was reserved, started, and how it ended."""

from collections.abc import Iterable
from dataclasses import dataclass, field

from rollbook.processors.dashboard.answers import Step, UpdateLine
from rollbook.processors.dashboard.fold.counting import ACCEPTED, DUPLICATE, GATES, PASSED
from rollbook.processors.dashboard.fold.lean import Head, Rest, Row
from rollbook.schemas.records.decision import FreshnessSnapshot

MOST_UPDATES = 200
SHOWN = 100
_OPEN = (Step.RESERVED, Step.STARTED, Step.IN_DOUBT)


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
    sequence: int = 0
    """Of the last decision about it."""
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
        name = rest.update.decode(errors="replace")
        update = self._known.get(name)
        if outcome != ACCEPTED:
            if update is not None and record_type in GATES:
                update.refused += _refused(rest.rows)
            return
        if update is None:
            update = self._known[name] = _Update(rest.learner.decode(errors="replace"))
            self._make_room()
        update.sequence = head[1]
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
                self._end(update, at_ms, Step.ABORTED, head[6].decode(errors="replace"))
            case b"LeaseExpired" if head[6] == b"in_doubt":
                update.step = Step.IN_DOUBT
            case b"LeaseExpired":
                self._end(update, at_ms, Step.EXPIRED, head[6].decode(errors="replace"))
            case _:
                pass

    def end(self, names: Iterable[str], at_ms: int, step: Step, reason: str) -> None:
        """Updates that another record ended: a new start of their learner, the run's end."""
        for name in names:
            update = self._known.get(name)
            if update is not None:
                self._end(update, at_ms, step, reason)

    def first_judged(self, name: bytes, rows: list[Row]) -> list[Row]:
        """Of rows that an Admit judged those that are not answered again: what is admitted is judged once."""
        update = self._known.get(name.decode(errors="replace"))
        if update is None:
            return rows
        first: list[Row] = []
        for row in rows:
            if row[1] == b"ok":
                found = hash(row[0])
                if found in update.judged:
                    continue
                update.judged.add(found)
            first.append(row)
        return first

    def agree(self, snapshot: FreshnessSnapshot, at_ms: int) -> None:
        """What a snapshot says: which updates are in doubt, and, where it lists all that are open, which are not: a
        decision that ends very many names only the first of them."""
        listed = {one.update_id: one for one in snapshot.updates}
        is_whole = snapshot.open_update_count == len(listed)
        for name, update in self._known.items():
            if update.step not in _OPEN or snapshot.sequence < update.sequence:
                continue
            if name in listed:
                update.step = Step.IN_DOUBT if listed[name].in_doubt else update.step
            elif is_whole:
                self._end(update, at_ms, Step.ABORTED, "")

    def end_all(self, at_ms: int) -> None:
        """The run is closed."""
        self.end(
            [name for name, update in self._known.items() if update.step in _OPEN], at_ms, Step.ABORTED, "RunClosed"
        )

    def lines(self, leases: dict[str, int]) -> tuple[UpdateLine, ...]:
        """The open ones and the newest ended, newest first. `leases`: until when those of open updates run."""
        newest = sorted(self._known.items(), key=lambda found: _order(found[1]), reverse=True)[:SHOWN]
        return tuple(_line(name, update, leases.get(name)) for name, update in newest)

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
    return sum(row[1] not in PASSED for row in rows)


def _order(update: _Update) -> tuple[bool, int]:
    return update.step in _OPEN, update.reserved_ms or update.started_ms or update.ended_ms or 0


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
