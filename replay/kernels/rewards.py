"""Rewards relative to their group (GRPO, Shao et al. 2024, arXiv:2402.03300, section 4.1)."""

from rollbook.replay.kernels.array import Array, namespace

STD_EPSILON = 1e-6


def group_rewards(raw_rewards: Array, group_index: Array, group_size: int, *, divide_by_std: bool) -> Array:
    """Each raw reward minus its group's mean, over the group's standard deviation where asked.

    raw_rewards: float32 [samples]; group_index: int64 [samples], members of a group in any order and place.
    Returns float32 [samples]: r - mean(r), or (r - mean(r)) / (std(r, ddof 1) + 1e-6).
    Raises ValueError when a group does not have `group_size` members.
    """
    xp = namespace(raw_rewards, group_index)
    order = xp.argsort(group_index, stable=True)
    if order.shape[0] % group_size:
        raise ValueError(f"{order.shape[0]} samples are not whole groups of {group_size}")
    indices = xp.reshape(xp.take(group_index, order, axis=0), (-1, group_size))
    if xp.any(indices != indices[:, :1]) or xp.any(indices[1:, 0] == indices[:-1, 0]):
        raise ValueError(f"a group does not have {group_size} members")
    grouped = xp.reshape(xp.take(raw_rewards, order, axis=0), (-1, group_size))
    centred = grouped - xp.mean(grouped, axis=1, keepdims=True)
    if divide_by_std:
        centred = centred / (xp.std(grouped, axis=1, correction=1, keepdims=True) + STD_EPSILON)
    return xp.take(xp.reshape(centred, (-1,)), xp.argsort(order, stable=True), axis=0)
