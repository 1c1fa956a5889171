"""Which groups can be claimed: counts of each group's members, kept true as trajectories come, change and go."""

from collections.abc import Hashable, MutableMapping
from typing import TypeVar

from rollbook.processors.lifecycle import PENDING
from rollbook.schemas.records.ledger import TrajectoryState, TrajectoryStatus
from rollbook.schemas.records.rollout import Purpose

K = TypeVar("K", bound=Hashable)


class _Group:
    """Counts of one group. Counts and not a scan of its members: some put a whole run into one group."""

    __slots__ = ("expected", "members", "pending", "places", "ready")

    def __init__(self) -> None:
        self.members: set[str] = set()
        self.places: dict[int, int] = {}
        self.expected: dict[int, int] = {}
        self.pending = 0
        self.ready = 0

    def count(self, member: TrajectoryState, by: int) -> None:
        add(self.places, member.sample_index, by)
        add(self.expected, member.group_expected, by)
        self.pending += by if member.status in PENDING else 0
        self.ready += by if is_ready(member) else 0

    @property
    def claimable(self) -> bool:
        """Each place is known (a second attempt at one fills no other), none is awaited, one can be trained on."""
        return self.ready > 0 and self.pending == 0 and len(self.places) >= max(self.expected)


class Groups:
    """The groups of a run."""

    def __init__(self) -> None:
        self._groups: dict[str, _Group] = {}
        self._claimable: set[str] = set()

    def change(self, key: str, before: TrajectoryState | None, after: TrajectoryState | None) -> None:
        """A trajectory came, changed or went; it never changes its group."""
        known = after or before
        if known is None:
            return
        group = self._groups.setdefault(known.group_id, _Group())
        if before is not None:
            group.count(before, -1)
            group.members.discard(key)
        if after is not None:
            group.count(after, 1)
            group.members.add(key)
        if group.claimable:
            self._claimable.add(known.group_id)
        else:
            self._claimable.discard(known.group_id)
        if not group.members:
            del self._groups[known.group_id]

    def members(self, group_id: str) -> list[str]:
        """Ids of the known members of a group, sorted."""
        group = self._groups.get(group_id)
        return [] if group is None else sorted(group.members)

    def claimable(self) -> list[str]:
        """Groups that can be claimed, by name."""
        return sorted(self._claimable)


def is_ready(member: TrajectoryState) -> bool:
    """Whether it waits to be trained on."""
    return member.status is TrajectoryStatus.REWARDED and member.purpose is Purpose.TRAIN


def add(counts: MutableMapping[K, int], key: K, by: int) -> None:
    """Count, and forget what is down to nothing."""
    count = counts.get(key, 0) + by
    if count:
        counts[key] = count
    else:
        counts.pop(key, None)
