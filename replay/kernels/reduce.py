"""Reductions of token values to samples."""

from rollbook.replay.kernels.array import Array, namespace


def sample_means(values: Array, mask: Array, lengths: Array) -> Array:
    """sum(value * mask) / max(sum(mask), 1) for each sample; masked values may be anything.

    values: float32 [tokens]; mask: bool [tokens]; lengths: int64 [samples]. Returns float64 [samples]: summed in
    double, so that the answer does not depend on how a library orders its additions. A sample with a non-finite
    active value gets NaN, and its neighbours do not.
    """
    xp = namespace(values, mask, lengths)
    usable = mask & xp.isfinite(values)
    ends = xp.cumulative_sum(lengths, include_initial=True)

    def per_sample(token_values: Array, dtype: Array) -> Array:
        running = xp.cumulative_sum(token_values, dtype=dtype, include_initial=True)
        at_ends = xp.take(running, ends, axis=0)
        return at_ends[1:] - at_ends[:-1]

    active = per_sample(mask, xp.int64)
    spoiled = per_sample(mask & ~usable, xp.int64)
    sums = per_sample(xp.where(usable, values, xp.zeros_like(values)), xp.float64)
    means = sums / xp.astype(xp.clip(active, 1, None), xp.float64)
    return xp.where(spoiled > 0, xp.full_like(means, float("nan")), means)
