"""Rewards relative to their group (GRPO, Shao et al. 2024, arXiv:2402.03300, section 4.1)."""

from rollbook.replay.kernels.array import Array, namespace

STD_EPSILON = 1e-6


def group_rewards(raw_rewards: Array, group_index: Array, group_size: int, *, divide_by_std: bool) -> Array:
    """Each raw reward minus its group's mean, over the group's standard deviation where asked.

    raw_rewards: float32 [samples]; group_index: int64 [samples], members of a group in any order and place.
    Returns float32 [samples]: r - mean(r), or (r - mean(r)) / (std(r, ddof 1) + 1e-6); a constant group gives zeros.
    Raises ValueError when a group does not have `group_size` members.
    """
    xp = namespace(raw_rewards, group_index)
    order = xp.argsort(group_index, stable=True)
    if order.shape[0] % group_size:
        raise ValueError(f"{order.shape[0]} samples are not whole groups of {group_size}")
    indices = xp.reshape(xp.take(group_index, order, axis=0), (-1, group_size))
    if xp.any(indices != indices[:, :1]) or xp.any(indices[1:, 0] == indices[:-1, 0]):
        raise ValueError(f"a group does not have {group_size} members")
    grouped = xp.astype(xp.reshape(xp.take(raw_rewards, order, axis=0), (-1, group_size)), xp.float64)
    # In double, and measured from the first member: a mean that is off by one float32 step, divided by the epsilon of
    # a group without spread, would make an advantage of up to a half out of nothing.
    offsets = grouped - grouped[:, :1]
    centred = offsets - xp.mean(offsets, axis=1, keepdims=True)
    if divide_by_std:
        centred = centred / (xp.std(offsets, axis=1, correction=1, keepdims=True) + STD_EPSILON)
    flat = xp.astype(xp.reshape(centred, (-1,)), raw_rewards.dtype)
    return xp.take(flat, xp.argsort(order, stable=True), axis=0)
