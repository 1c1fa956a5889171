"""A bound on padding: conventions are computed of rows laid side by side, as long as the longest of them."""

from collections.abc import Sequence
from typing import Final

MOST_CELLS: Final = 2**23
"""Of samples times the longest: a matrix of so many is 64 MiB, and a dozen are needed at once. Of a step with more
tokens than that, more."""
_MOST_PADDING = 8


def too_uneven(lengths: Sequence[int]) -> str | None:
    """Why samples of these lengths, in tokens, are not laid side by side, or None."""
    longest = max(lengths, default=0)
    if len(lengths) * longest <= max(MOST_CELLS, _MOST_PADDING * sum(lengths)):
        return None
    return f"{len(lengths)} samples of up to {longest} tokens are too uneven to be laid side by side"
