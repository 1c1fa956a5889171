"""A claim: the ledger chooses whole groups, in the order asked for, and passes over what does not pass."""

from collections.abc import Iterator, Sequence
from heapq import merge

from rollbook.processors.ledger.groups import Shape
from rollbook.processors.ledger.judge import Asked, Judged, judge
from rollbook.processors.ledger.store import Run
from rollbook.schemas.records.update import Claim, ClaimOrder, ReserveMode
from rollbook.schemas.types import MAX_ITEMS


def choose(run: Run, asked: Asked, claim: Claim) -> tuple[list[Judged], int]:
    """What a claim looks at, as many groups as asked for, and how many groups it passed over on the way."""
    chosen: list[Judged] = []
    groups = 0
    passed_over = 0
    room = MAX_ITEMS - len(asked.update.held)  # a Commit names all that its update holds
    for found, of_this_kind in _in_order(run, asked, claim.order):
        if groups == claim.max_groups or len(chosen) >= room:
            break
        if not _passes(asked, found) or len(chosen) + len(found) > room:
            passed_over += of_this_kind
            continue
        chosen += found
        groups += 1
    return chosen, passed_over


def _in_order(run: Run, asked: Asked, order: ClaimOrder) -> Iterator[tuple[list[Judged], int]]:
    """Groups by version, then offset, each with the number of groups that it stands for.

    Groups of one shape are judged alike, so a shape that does not pass is judged once, however many groups of it
    have gone stale: a trainer that asks again and again must not pay for them each time.
    """
    by_version: dict[int, list[Shape]] = {}
    for shape in run.trajectories.groups.shapes():
        by_version.setdefault(min(versions[0] for versions in shape), []).append(shape)
    for version in sorted(by_version, reverse=order is ClaimOrder.FRESHEST):
        passing: list[Sequence[tuple[int, str]]] = []
        for shape in by_version[version]:
            named = run.trajectories.groups.claimable_of(shape)
            sample = _judged(run, asked, named[0][1])
            if _passes(asked, sample):
                passing.append(named)
            else:
                yield sample, len(named)
        for _, group_id in merge(*passing):  # lazily: a claim of eight groups looks at eight
            yield _judged(run, asked, group_id), 1


def _passes(asked: Asked, found: list[Judged]) -> bool:
    enough = all if asked.record.mode is ReserveMode.ALL else any
    return enough(one.passes for one in found)


def _judged(run: Run, asked: Asked, group_id: str) -> list[Judged]:
    return [judge(run, asked, member.trajectory_id, None) for member in run.trajectories.ready_members(group_id)]
