"""Reductions of token values to samples.

Each sample is summed by itself: sums taken as differences of one running sum over all samples lose a sample's own
digits to whatever large values lie before it.
"""

from collections.abc import Iterator

from rollbook.replay.kernels.array import Array, device, namespace


def sample_means(values: Array, mask: Array, lengths: Array) -> Array:
    """sum(value * mask) / max(sum(mask), 1) for each sample; masked values may be anything.

    values: float32 [..., tokens]; mask: bool [tokens]; lengths: int64 [samples]. Returns float64 [..., samples]: summed
    in double, so that the answer does not depend on how a library orders its additions. A sample with a non-finite
    active value is not finite either, and its neighbours are. Raises ValueError when the lengths are not those of the
    values.
    """
    xp = namespace(values, mask, lengths)
    if int(xp.sum(lengths)) != values.shape[-1]:
        raise ValueError(f"lengths add up to {int(xp.sum(lengths))}, there are {values.shape[-1]} tokens")
    if not values.shape[-1]:
        return xp.zeros((*values.shape[:-1], lengths.shape[0]), dtype=xp.float64, device=device(values))
    starts = xp.cumulative_sum(lengths) - lengths
    zero = xp.zeros((), dtype=values.dtype, device=device(values))
    of_bucket = []
    order = []
    for members, longest in _buckets(lengths):
        within = xp.arange(longest, dtype=lengths.dtype, device=device(lengths))[None, :]
        inside = within < xp.take(lengths, members, axis=0)[:, None]
        at = xp.where(inside, xp.take(starts, members, axis=0)[:, None] + within, xp.zeros_like(within))
        flat = xp.reshape(at, (-1,))
        active = inside & xp.reshape(xp.take(mask, flat, axis=0), at.shape)
        taken = xp.reshape(xp.take(values, flat, axis=-1), (*values.shape[:-1], *at.shape))
        sums = xp.sum(xp.where(active, taken, zero), axis=-1, dtype=xp.float64)
        count = xp.sum(xp.astype(active, xp.int64), axis=-1)
        of_bucket.append(sums / xp.astype(xp.clip(count, 1, None), xp.float64))
        order.append(members)
    return xp.take(xp.concat(of_bucket, axis=-1), xp.argsort(xp.concat(order)), axis=-1)


def _buckets(lengths: Array) -> Iterator[tuple[Array, int]]:
    """The samples by length, in matrices that padding at most doubles: positions of the members, the longest of them.

    One matrix as wide as the longest of all would hold mostly padding where lengths differ; a matrix a sample would
    leave the work to the interpreter.
    """
    xp = namespace(lengths)
    order = xp.argsort(lengths, stable=True)
    sorted_lengths = xp.take(lengths, order, axis=0)
    start, total = 0, int(order.shape[0])
    while start < total:
        shortest = max(int(sorted_lengths[start]), 1)
        end = int(xp.sum(xp.astype(sorted_lengths < 2 * shortest, xp.int64)))
        yield order[start:end], max(int(sorted_lengths[end - 1]), 1)
        start = end
