"""Which tokens have the highest entropy: those that a policy's loss is confined to (Wang et al. 2025, "Beyond the 80/20
rule", arXiv:2506.01939, eq. 5 and 6)."""

import numpy as np

from rollbook.replay.kernels.array import Array, constant, namespace


def highest(entropy: Array, mask: Array, share: float) -> Array:
    """Where a token counts and its entropy is not below the quantile 1 - `share` of those that count: bool.

    The quantile is taken in single precision, between two neighbours, as trainers take it (torch.quantile): whether a
    token at the very edge belongs to them depends on its last digit.
    """
    xp = namespace(entropy, mask)
    values = np.sort(np.asarray(constant(entropy)[mask]).astype(np.float32))
    if not values.size:
        return xp.zeros_like(mask)
    return mask & (entropy >= _quantile(values, 1 - share))


def _quantile(ordered: np.ndarray[tuple[int], np.dtype[np.float32]], at: float) -> float:
    place = np.float32(np.float32(at) * np.float32(ordered.size - 1))
    below, above = ordered[int(np.floor(place))], ordered[int(np.ceil(place))]
    weight = np.float64(place - np.floor(place))
    step = np.float64(np.float32(above - below))
    nearer = weight * step + below if weight < 0.5 else (weight - 1) * step + above
    return float(np.float32(nearer))
