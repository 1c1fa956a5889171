"""What left TRL's rollout queue: rows in their order, their groups, and which of them TRL dropped again. Pure.

TRL hands a row's arrays from its queue to its packer as they are, so that the array of token ids names the row.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

from rollbook.producers.identity import new_id, new_identity
from rollbook.producers.trl.facts import RowFacts
from rollbook.schemas.records.common import TrajectoryIdentity

_REMEMBERED = 256
"""Groups that may be under way at once: one that is older is not waited for any more."""


@dataclass(frozen=True, slots=True)
class Arrival:
    """One training row. TRL's `group` and `version` (the oldest that its group may be of), and how many turns its
    conversation has: one turn is one row, of several turns TRL does not tell which rows are of one conversation."""

    number: int
    row: RowFacts
    group: int
    version: int
    turns: int

    @property
    def trajectory_id(self) -> str:
        return self.row.trajectory_id


@dataclass(frozen=True, slots=True)
class Formed:
    """A micro-batch in the packer's order (None: nothing of the row is trained on), and what was passed over for good
    before it."""

    rows: tuple[Arrival | None, ...]
    passed_over: tuple[Arrival, ...]


@dataclass(slots=True)
class _Group:
    group_id: str
    rows: list[RowFacts] = field(default_factory=list)
    forks: bool = False
    is_closed: bool = False


class Intake:
    """`size`: TRL's num_generations."""

    def __init__(self, size: int) -> None:
        self._size = size
        self._groups: dict[int, _Group] = {}
        self._by_id: dict[str, _Group] = {}
        self._waiting: dict[int, tuple[object, Arrival | None]] = {}
        self._number = 0

    def arrived(self, tokens: object, group: int, make: Callable[[TrajectoryIdentity, int], Arrival | None]) -> None:
        """A row left the queue; `tokens` names it."""
        known = self._groups.get(group) or self._new(group)
        place = len(known.rows)
        identity = new_identity(known.group_id, place, max(self._size, place + 1))
        arrival = make(identity, self._number)
        self._waiting[id(tokens)] = tokens, arrival
        if arrival is None:
            return
        self._number += 1
        known.rows.append(arrival.row)
        known.forks = known.forks or arrival.turns > 1
        for other in self._groups.values():
            other.is_closed = other.is_closed or (other.forks and other is not known)

    def formed(self, tokens: Sequence[object]) -> Formed:
        """These rows are a micro-batch. Rows keep their order, so that an older one that is in none was dropped."""
        rows = tuple(self._waiting.pop(id(one), (None, None))[1] for one in tokens)
        newest = max((row.number for row in rows if row is not None), default=-1)
        older = [key for key, (_, row) in self._waiting.items() if row is not None and row.number < newest]
        passed_over = tuple(row for key in older if (row := self._waiting.pop(key)[1]) is not None)
        return Formed(rows, passed_over)

    def left(self) -> tuple[Arrival, ...]:
        """Rows that are in no micro-batch."""
        return tuple(row for _, row in self._waiting.values() if row is not None)

    def is_settled(self, group_id: str) -> bool:
        """Whether nothing more is expected of the group."""
        group = self._by_id.get(group_id)
        return group is None or group.is_closed or (len(group.rows) >= self._size and not group.forks)

    def members(self, group_id: str) -> tuple[RowFacts, ...]:
        """The group's rows, where they are the conversations that TRL normalised together; else none."""
        group = self._by_id.get(group_id)
        return tuple(group.rows) if group is not None and len(group.rows) == self._size else ()

    def _new(self, group: int) -> _Group:
        made = _Group(new_id())
        self._groups[group] = self._by_id[made.group_id] = made
        if len(self._groups) > _REMEMBERED:
            oldest = self._groups.pop(next(iter(self._groups)))
            del self._by_id[oldest.group_id]
        return made
