"""What became of whole groups: a mean over what was trained on says nothing of the members that failed on the way."""

from collections import Counter
from collections.abc import Collection
from dataclasses import dataclass

from rollbook.processors.ledger.store import Run


@dataclass(frozen=True, slots=True)
class Survivorship:
    """The members of some groups by state. `unknown` were expected, and never came or are forgotten."""

    groups: int
    expected: int
    members: dict[str, int]
    unknown: int


def survivorship(run: Run, group_ids: Collection[str]) -> Survivorship:
    """Of these groups as they stand. A second attempt at a place is a member of its own, and fills no other place."""
    wanted = set(group_ids)
    states: Counter[str] = Counter()
    places: dict[str, set[int]] = {}
    expected: dict[str, int] = {}
    for member in run.trajectories.values() if wanted else ():
        if member.group_id in wanted:
            states[member.status.value] += 1
            places.setdefault(member.group_id, set()).add(member.sample_index)
            expected[member.group_id] = max(member.group_expected, expected.get(member.group_id, 0))
    missing = sum(max(0, many - len(places[group_id])) for group_id, many in expected.items())
    return Survivorship(len(wanted), sum(expected.values()), dict(sorted(states.items())), missing)
