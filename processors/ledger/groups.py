"""Which groups can be claimed: counts of each group's members, kept true as trajectories come, change and go."""

from bisect import bisect_left, insort
from collections.abc import Hashable, MutableMapping, Sequence
from typing import Any, TypeAlias, TypeVar

from rollbook.processors.lifecycle import LIVE, PENDING
from rollbook.schemas.records.ledger import TrajectoryState, TrajectoryStatus
from rollbook.schemas.records.rollout import Purpose

K = TypeVar("K", bound=Hashable)

# Asked of every change of a trajectory, several times: on Python 3.11 to look a member up in its enum is a call.
_REWARDED, _TRAIN = TrajectoryStatus.REWARDED, Purpose.TRAIN

IDLE = frozenset(
    {
        TrajectoryStatus.GENERATION_FAILED,
        TrajectoryStatus.REWARD_FAILED,
        TrajectoryStatus.DISCARDED,
        TrajectoryStatus.QUARANTINED,
        TrajectoryStatus.OFFLINE,
    }
)
"""Members that a group has, but neither waits for nor trains on."""

Shape: TypeAlias = tuple[tuple[int, ...], ...]
"""What a claim judges a group by: the versions of all spans of a member, for each member that can be trained on; each
once, sorted."""


class _Group:
    """Counts of one group. Counts and not a scan of its members: some put a whole run into one group."""

    __slots__ = ("apart", "expected", "idle", "living", "members", "offsets", "pending", "places", "ready", "versions")

    def __init__(self, apart: str) -> None:
        self.apart = apart
        self.members: set[str] = set()
        self.places: dict[int, int] = {}
        self.expected: dict[int, int] = {}
        self.idle: dict[int, int] = {}
        """Places whose member ended before it could be said what keeps it apart: a failure, say."""
        self.pending = 0
        self.living = 0
        self.ready: set[str] = set()
        self.offsets: list[int] = []
        """Offsets of the ready members, sorted."""
        self.versions: dict[tuple[int, ...], int] = {}

    def place(self, member: TrajectoryState, by: int) -> None:
        """A member came or went; as long as it is here it keeps its place."""
        add(self.places, member.sample_index, by)
        add(self.expected, member.group_expected, by)

    def count(self, member: TrajectoryState, by: int) -> None:
        """A member is in this state, or no longer."""
        status = member.status
        self.pending += by if status in PENDING else 0
        self.living += by if status in LIVE else 0
        if status in IDLE:
            add(self.idle, member.sample_index, by)
        if is_ready(member):
            add(self.versions, versions_of(member), by)
            if by > 0:
                self.ready.add(member.trajectory_id)
                insort(self.offsets, member.generated_offset)
            else:
                self.ready.remove(member.trajectory_id)
                _remove(self.offsets, member.generated_offset)

    def shape(self, idle: "list[_Group]") -> Shape | None:
        """None unless each place is known (a second attempt at one fills no other), none is awaited, and one member can
        be trained on. `idle`: the groups that this one was kept apart from, whose idle places are its own too."""
        if not self.ready or self.pending:
            return None
        places = len(self.places)
        if idle:
            places = len(set(self.places).union(*(other.idle for other in idle)))
        return tuple(sorted(self.versions)) if places >= max(self.expected) else None


class Groups:
    """The groups of a run."""

    def __init__(self) -> None:
        self._groups: dict[str, _Group] = {}
        self._parts: dict[str, dict[str, _Group]] = {}
        """By group id: what it has fallen into, by name; only of groups with members kept apart."""
        self._claimable: dict[Shape, list[tuple[int, str]]] = {}
        """(first offset, group) by shape, sorted: a claim takes from the front and never looks at the others."""

    def change(self, before: TrajectoryState | None, after: TrajectoryState | None) -> None:
        """A trajectory came, changed or went; a reward that is kept apart takes it to another group."""
        if before is not None and after is not None and before.apart == after.apart:
            self._recount(before, after)
        else:
            for member, by in ((before, -1), (after, 1)):
                if member is not None:
                    self._count(member, by)

    def _recount(self, before: TrajectoryState, after: TrajectoryState) -> None:
        """A member changed that stays where it is."""
        name = _name(after)
        group = self._groups[name]
        touched = self._touched(name, group, after.group_id)
        group.count(before, -1)
        group.count(after, 1)
        self._move(touched, after.group_id)

    def _count(self, member: TrajectoryState, by: int) -> None:
        """A member came or went."""
        name = _name(member)
        group = self._groups.get(name) or self._new(name, member)
        touched = self._touched(name, group, member.group_id)
        group.place(member, by)
        group.count(member, by)
        if by > 0:
            group.members.add(member.trajectory_id)
        else:
            group.members.discard(member.trajectory_id)
        self._move(touched, member.group_id)
        if not group.members:
            self._remove(name, member.group_id)

    def _new(self, name: str, member: TrajectoryState) -> _Group:
        group = self._groups[name] = _Group(member.apart)
        if member.apart:
            parts = self._parts.setdefault(member.group_id, {})
            whole = self._groups.get(member.group_id)
            parts.update({name: group} if whole is None else {member.group_id: whole, name: group})
        elif member.group_id in self._parts:
            self._parts[member.group_id][name] = group
        return group

    def _remove(self, name: str, group_id: str) -> None:
        del self._groups[name]
        parts = self._parts.get(group_id)
        if parts is not None:
            del parts[name]
            if not any(group.apart for group in parts.values()):
                del self._parts[group_id]

    def _touched(self, name: str, group: _Group, group_id: str) -> "list[tuple[str, _Group, _Place | None]]":
        """The group, and those kept apart from it, whose completeness its members can change; each with its place."""
        own = (name, group, self._place(name, group, group_id))
        parts = self._parts.get(group_id)
        if parts is None:
            return [own]
        others = [(n, one) for n, one in parts.items() if _is_apart_from(one, group)]
        return [own, *((n, one, self._place(n, one, group_id)) for n, one in others)]

    def _place(self, name: str, group: _Group, group_id: str) -> "_Place | None":
        if not group.ready:
            return None
        parts = self._parts.get(group_id)
        shape = group.shape([] if parts is None else [one for one in parts.values() if _is_apart_from(group, one)])
        return None if shape is None else (shape, (group.offsets[0], name))

    def _move(self, touched: "list[tuple[str, _Group, _Place | None]]", group_id: str) -> None:
        """Each of them from its place before to that of now."""
        for name, group, before in touched:
            after = self._place(name, group, group_id)
            if before == after:
                continue
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

    def needs(self, member: TrajectoryState) -> bool:
        """Whether the group of a member that has ended would no longer be whole without it, while others of it live."""
        parts = self._parts.get(member.group_id) or {member.group_id: self._groups[member.group_id]}
        own = self._groups[_name(member)]
        if own.places[member.sample_index] > 1 or not any(part.living for part in parts.values()):
            return False
        return len(own.places) <= max(own.expected)

    def awaits(self, group_id: str, place: int) -> bool:
        """Whether members of the group live, and none is known at this place."""
        found = self._groups.get(group_id)
        parts = self._parts.get(group_id) or ({} if found is None else {group_id: found})
        return any(part.living for part in parts.values()) and not any(place in part.places for part in parts.values())

    def shapes(self) -> list[Shape]:
        """The shapes of groups that can be claimed, sorted."""
        return sorted(self._claimable)

    def claimable_of(self, shape: Shape) -> Sequence[tuple[int, str]]:
        """(first offset of a member to train on, group) of the groups of this shape that can be claimed, sorted."""
        return self._claimable[shape]


_Place: TypeAlias = tuple[Shape, tuple[int, str]]
"""Where a group that can be claimed stands: by shape, then by offset."""


def _name(member: TrajectoryState) -> str:
    return f"{member.group_id}\x1f{member.apart}" if member.apart else member.group_id


def _is_apart_from(part: _Group, whole: _Group) -> bool:
    """Whether the members of one were kept apart from the other: by their contract first, then by their reward."""
    return part is not whole and part.apart.startswith(whole.apart)


def _remove(ordered: list[Any], value: object) -> None:
    at = bisect_left(ordered, value)
    assert ordered[at] == value, "what is removed was put there"
    del ordered[at]


def is_ready(member: TrajectoryState) -> bool:
    """Whether it waits to be trained on."""
    return member.status is _REWARDED and member.purpose is _TRAIN


def versions_of(member: TrajectoryState) -> tuple[int, ...]:
    """The versions of all its model spans, sorted."""
    return tuple([ref.version for ref in member.policies])


def add(counts: MutableMapping[K, int], key: K, by: int) -> None:
    """Count, and forget what is down to nothing."""
    count = counts.get(key, 0) + by
    if count:
        counts[key] = count
    else:
        counts.pop(key, None)
