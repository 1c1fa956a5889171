"""Which tokens have the highest entropy: those that a policy's loss is confined to (Wang et al. 2025, "Beyond the 80/20
rule", arXiv:2506.01939, eq. 5 and 6)."""

import numpy as np

from rollbook.replay.kernels.array import Array, constant, namespace


def highest(entropy: Array, mask: Array, share: float) -> Array:
    """Where a token counts and its entropy is not below the quantile 1 - `share` of those that count: bool.

    The quantile lies between two neighbours as torch.quantile of torch 2.15 puts it, digit by digit: the share in
    single precision, its place in double. Where the place is a whole one the token there is left out by a last digit.
    """
    xp = namespace(entropy, mask)
    values = np.sort(np.asarray(constant(entropy)[mask]).astype(np.float32))
    if not values.size:
        return xp.zeros_like(mask)
    return mask & (entropy >= _quantile(values, 1 - share))


def _quantile(ordered: np.ndarray[tuple[int], np.dtype[np.float32]], at: float) -> float:
    place = np.float64(np.float32(at)) * (ordered.size - 1)
    below, above = ordered[int(np.floor(place))], ordered[int(np.ceil(place))]
    weight, step = np.float32(place - np.floor(place)), np.float64(np.float32(above - below))
    if weight < 0.5:
        return float(np.float32(below + np.float64(weight) * step))
    return float(np.float32(above - np.float64(np.float32(1) - weight) * step))
