"""Which raw reward a diverging normalisation points at.

Normalising spreads one wrong raw reward over its whole group, so the first diverging sample need not be the wrong one.
A sample is to blame when there is a reward that, in its place and with all others as they are, gives what was recorded.
"""

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray
from rollbook.replay.kernels.rewards import STD_EPSILON

Floats = NDArray[np.float64]
_CLOSE = 1e-4


def blame_raw_reward(raw: Floats, recorded: Floats, group_index: Sequence[int], *, divide_by_std: bool) -> int | None:
    """Position of the one sample whose raw reward explains the divergence of the first diverging group; None when no
    single one does, or more than one could. `raw` and `recorded` are float64 [samples]."""
    groups = np.asarray(group_index)
    for group in dict.fromkeys(group_index):
        members = np.flatnonzero(groups == group)
        if _explains(raw[members], recorded[members], divide_by_std):
            continue
        blamed = [at for at in members if _blames(raw, recorded, members, int(at), divide_by_std)]
        return int(blamed[0]) if len(blamed) == 1 else None
    return None


def _blames(raw: Floats, recorded: Floats, members: NDArray[np.intp], at: int, divide_by_std: bool) -> bool:
    others = members[members != at]
    if not others.size:
        return False
    for candidate in _candidates(raw[others], recorded[others], float(recorded[at]), divide_by_std):
        group = np.where(members == at, candidate, raw[members])
        if _explains(group, recorded[members], divide_by_std):
            return True
    return False


def _candidates(raw: Floats, recorded: Floats, of_sample: float, divide_by_std: bool) -> tuple[float, ...]:
    """Rewards that the sample may have had: the others fix mean and scale of raw = mean + scale * recorded."""
    if not divide_by_std:
        return (float(np.mean(raw - recorded)) + of_sample,)
    spread = recorded - recorded.mean()
    if float(np.abs(spread).max()) > _CLOSE:
        scale = float(np.sum(spread * (raw - raw.mean())) / np.sum(spread * spread))
        return (float(raw.mean()) + scale * (of_sample - float(recorded.mean())),)
    # All others equal: any reward on the right side of them normalises to the same numbers.
    side = float(np.sign(of_sample - float(recorded.mean())))
    return (float(raw.mean()) + side * max(1.0, abs(float(raw.mean()))),)


def _explains(raw: Floats, recorded: Floats, divide_by_std: bool) -> bool:
    centred = raw - raw.mean()
    if divide_by_std:
        centred = centred / (raw.std(ddof=1) + STD_EPSILON)
    return bool(np.all(np.abs(centred - recorded) <= _CLOSE * (1 + np.abs(recorded))))
