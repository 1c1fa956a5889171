"""A step in blocks of whole samples: what a kernel makes on the way then fits into the processor's cache, and takes no
multiple of the step's memory."""

from collections.abc import Iterator

import numpy as np

from rollbook.replay.kernels.array import Array

BLOCK_TOKENS = 1 << 14


def blocks(lengths: Array, tokens: int = BLOCK_TOKENS) -> Iterator[tuple[slice, slice]]:
    """Slices of consecutive samples and of their tokens: at most `tokens`, or one longer sample; at least one block."""
    ends = np.cumsum(np.asarray(lengths), dtype=np.int64)
    first, start = 0, 0
    while True:
        last = max(int(np.searchsorted(ends, start + tokens, side="right")), first + 1)
        end = int(ends[min(last, ends.size) - 1]) if ends.size else 0
        yield slice(first, last), slice(start, end)
        if last >= ends.size:
            return
        first, start = last, end
