"""Which groups can be claimed: counts of each group's members, kept true as trajectories come, change and go."""

from bisect import bisect_left, insort
from collections.abc import Hashable, MutableMapping, Sequence
from typing import Any, TypeAlias, TypeVar

from rollbook.processors.lifecycle import PENDING
from rollbook.schemas.records.ledger import TrajectoryState, TrajectoryStatus
from rollbook.schemas.records.rollout import Purpose

K = TypeVar("K", bound=Hashable)


Shape: TypeAlias = tuple[tuple[int, ...], ...]
"""What a claim judges a group by: the versions of all spans of a member, for each member that can be trained on; each
once, sorted."""


class _Group:
    """Counts of one group. Counts and not a scan of its members: some put a whole run into one group."""

    __slots__ = ("expected", "members", "offsets", "pending", "places", "ready", "versions")

    def __init__(self) -> None:
        self.members: set[str] = set()
        self.places: dict[int, int] = {}
        self.expected: dict[int, int] = {}
        self.pending = 0
        self.ready: set[str] = set()
        self.offsets: list[int] = []
        """Offsets of the ready members, sorted."""
        self.versions: dict[tuple[int, ...], int] = {}

    def count(self, member: TrajectoryState, by: int) -> None:
        add(self.places, member.sample_index, by)
        add(self.expected, member.group_expected, by)
        self.pending += by if member.status in PENDING else 0
        if is_ready(member):
            add(self.versions, versions_of(member), by)
            if by > 0:
                self.ready.add(member.trajectory_id)
                insort(self.offsets, member.generated_offset)
            else:
                self.ready.remove(member.trajectory_id)
                _remove(self.offsets, member.generated_offset)

    @property
    def shape(self) -> Shape | None:
        """None unless each place is known (a second attempt at one fills no other), none is awaited, and one member can
        be trained on."""
        complete = self.ready and not self.pending and len(self.places) >= max(self.expected)
        return tuple(sorted(self.versions)) if complete else None


class Groups:
    """The groups of a run."""

    def __init__(self) -> None:
        self._groups: dict[str, _Group] = {}
        self._claimable: dict[Shape, list[tuple[int, str]]] = {}
        """(first offset, group) by shape, sorted: a claim takes from the front and never looks at the others."""

    def change(self, key: str, before: TrajectoryState | None, after: TrajectoryState | None) -> None:
        """A trajectory came, changed or went; a reward that is kept apart takes it to another group."""
        for member, by in ((before, -1), (after, 1)):
            if member is not None:
                self._count(key, member, by)

    def _count(self, key: str, member: TrajectoryState, by: int) -> None:
        name = f"{member.group_id}\x1f{member.apart}" if member.apart else member.group_id
        group = self._groups.setdefault(name, _Group())
        before = _place(name, group)
        group.count(member, by)
        if by > 0:
            group.members.add(key)
        else:
            group.members.discard(key)
        self._move(before, _place(name, group))
        if not group.members:
            del self._groups[name]

    def _move(self, before: "_Place | None", after: "_Place | None") -> None:
        if before == after:
            return
        if before is not None:
            shape, entry = before
            alike = self._claimable[shape]
            _remove(alike, entry)
            if not alike:
                del self._claimable[shape]
        if after is not None:
            shape, entry = after
            insort(self._claimable.setdefault(shape, []), entry)

    def members(self, group_id: str) -> list[str]:
        """Ids of the known members of a group, sorted."""
        group = self._groups.get(group_id)
        return [] if group is None else sorted(group.members)

    def ready(self, group_id: str) -> list[str]:
        """Ids of the members that can be trained on, sorted."""
        group = self._groups.get(group_id)
        return [] if group is None else sorted(group.ready)

    def shapes(self) -> list[Shape]:
        """The shapes of groups that can be claimed, sorted."""
        return sorted(self._claimable)

    def claimable_of(self, shape: Shape) -> Sequence[tuple[int, str]]:
        """(first offset of a member to train on, group) of the groups of this shape that can be claimed, sorted."""
        return self._claimable[shape]


_Place: TypeAlias = tuple[Shape, tuple[int, str]]
"""Where a group that can be claimed stands: by shape, then by offset."""


def _place(name: str, group: _Group) -> _Place | None:
    shape = group.shape
    return None if shape is None else (shape, (group.offsets[0], name))


def _remove(ordered: list[Any], value: object) -> None:
    at = bisect_left(ordered, value)
    assert ordered[at] == value, "what is removed was put there"
    del ordered[at]


def is_ready(member: TrajectoryState) -> bool:
    """Whether it waits to be trained on."""
    return member.status is TrajectoryStatus.REWARDED and member.purpose is Purpose.TRAIN


def versions_of(member: TrajectoryState) -> tuple[int, ...]:
    """The versions of all its model spans, sorted."""
    return tuple(ref.version for ref in member.policies)


def add(counts: MutableMapping[K, int], key: K, by: int) -> None:
    """Count, and forget what is down to nothing."""
    count = counts.get(key, 0) + by
    if count:
        counts[key] = count
    else:
        counts.pop(key, None)
