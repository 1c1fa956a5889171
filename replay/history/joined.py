"""Which offsets follow each other without a gap, of several stretches that may overlap."""

from collections.abc import Iterable

from rollbook.replay.history.source import Bounds


def joined(stretches: Iterable[Bounds]) -> list[Bounds]:
    """The longest that can be made of them, ascending; between two of them there is a gap."""
    found: list[Bounds] = []
    for one in sorted(stretches, key=lambda one: one.first):
        if found and one.first <= found[-1].end:
            found[-1] = Bounds(found[-1].first, max(found[-1].end, one.end))
        else:
            found.append(one)
    return found
