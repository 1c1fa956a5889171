"""Which groups can be claimed: counts of each group's members, kept true as trajectories come, change and go."""

from collections.abc import Hashable, MutableMapping
from typing import TypeAlias, TypeVar

from rollbook.processors.lifecycle import PENDING
from rollbook.schemas.records.ledger import TrajectoryState, TrajectoryStatus
from rollbook.schemas.records.rollout import Purpose

K = TypeVar("K", bound=Hashable)


Shape: TypeAlias = tuple[tuple[int, ...], ...]
"""What a claim judges a group by: the versions of all spans of a member, for each member that can be trained on; each
once, sorted."""


class _Group:
    """Counts of one group. Counts and not a scan of its members: some put a whole run into one group."""

    __slots__ = ("expected", "members", "pending", "places", "ready", "versions")

    def __init__(self) -> None:
        self.members: set[str] = set()
        self.places: dict[int, int] = {}
        self.expected: dict[int, int] = {}
        self.pending = 0
        self.ready: dict[str, int] = {}
        self.versions: dict[tuple[int, ...], int] = {}

    def count(self, member: TrajectoryState, by: int) -> None:
        add(self.places, member.sample_index, by)
        add(self.expected, member.group_expected, by)
        self.pending += by if member.status in PENDING else 0
        if is_ready(member):
            add(self.versions, versions_of(member), by)
            if by > 0:
                self.ready[member.trajectory_id] = member.generated_offset
            else:
                del self.ready[member.trajectory_id]

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
        self._claimable: dict[Shape, set[str]] = {}

    def change(self, key: str, before: TrajectoryState | None, after: TrajectoryState | None) -> None:
        """A trajectory came, changed or went; a reward that is kept apart takes it to another group."""
        for member, by in ((before, -1), (after, 1)):
            if member is not None:
                self._count(key, member, by)

    def _count(self, key: str, member: TrajectoryState, by: int) -> None:
        name = f"{member.group_id}\x1f{member.apart}" if member.apart else member.group_id
        group = self._groups.setdefault(name, _Group())
        shape = group.shape
        group.count(member, by)
        if by > 0:
            group.members.add(key)
        else:
            group.members.discard(key)
        self._move(name, shape, group.shape)
        if not group.members:
            del self._groups[name]

    def _move(self, group_id: str, before: Shape | None, after: Shape | None) -> None:
        if before == after:
            return
        if before is not None:
            alike = self._claimable[before]
            alike.remove(group_id)
            if not alike:
                del self._claimable[before]
        if after is not None:
            self._claimable.setdefault(after, set()).add(group_id)

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

    def claimable_of(self, shape: Shape) -> list[tuple[int, str]]:
        """(first offset of a member to train on, group) of the groups of this shape that can be claimed, sorted."""
        return sorted((min(self._groups[name].ready.values()), name) for name in self._claimable[shape])


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
