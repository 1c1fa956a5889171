"""Which offsets follow each other without a gap, of several stretches that may overlap."""

from collections.abc import Iterable, Sequence

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


def gap_in(wanted: Bounds, stretches: Sequence[Bounds]) -> Bounds | None:
    """The first offsets that are wanted and in none of the `joined` stretches."""
    first = next((one.end for one in stretches if one.first <= wanted.first < one.end), wanted.first)
    if first >= wanted.end:
        return None
    return Bounds(first, min([wanted.end, *(one.first for one in stretches if one.first > first)]))
