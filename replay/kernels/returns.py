"""What rewards per token come to over a sequence: discounted returns, and generalised advantages from values.

Returns as in REINFORCE++ (Hu et al. 2025, arXiv:2501.03262, section 3); generalised advantage estimation: Schulman et
al. 2016, arXiv:1506.02438, eq. 16. Libraries differ in what a hole of the mask (a tool's answer, say) does to what
lies behind it.
"""

from enum import StrEnum

from rollbook.replay.kernels.array import Array, device, namespace
from rollbook.replay.kernels.masked import Masking, hide


class Hole(StrEnum):
    """What a masked token does to the sums that come from behind it."""

    TOKEN = "token"
    """Nothing: it counts like any other."""
    SKIP = "skip"
    """It is left out: what lies behind it goes on to the token before it undiscounted, and stands at it, too."""
    RESET = "reset"
    """What lies behind it is forgotten before it."""


def discounted_returns(
    rewards: Array,
    mask: Array,
    *,
    gamma: float,
    hole: Hole,
    masking: Masking = Masking.SELECT,
    chunk: int | None = None,
) -> Array:
    """G_t = r_t + gamma * G_{t+1}.

    rewards: float [rows, tokens]; mask: bool [rows, tokens]; returns float [rows, tokens]. What is carried over a hole
    stands at it, unless `masking` multiplies: then the hole has zero. `chunk`: as in `scanned`, where no hole counts.
    """
    if chunk is not None:
        return scanned(rewards, gamma, chunk)
    xp = namespace(rewards, mask)
    running = xp.zeros_like(rewards[:, 0])
    columns = []
    for at in reversed(range(rewards.shape[1])):
        found = rewards[:, at] + gamma * running
        running = _carry(found, running, mask[:, at], hole, masking)
        if hole is not Hole.SKIP:
            columns.append(found)
        elif masking is Masking.MULTIPLY:
            columns.append(hide(found, mask[:, at], masking))
        else:
            columns.append(running)
    return xp.stack(columns[::-1], axis=1)


def generalized_advantages(
    rewards: Array,
    values: Array,
    mask: Array,
    *,
    gamma: float,
    lam: float,
    hole: Hole,
    masking: Masking = Masking.SELECT,
    chunk: int | None = None,
) -> tuple[Array, Array]:
    """A_t = delta_t + gamma * lam * A_{t+1}, delta_t = r_t + gamma * V_{t+1} - V_t; returns are A + V.

    rewards, values: float [rows, tokens]; mask: bool [rows, tokens]. Returns (advantages, returns).
    """
    xp = namespace(rewards, values, mask)
    if chunk is not None:
        behind = xp.concat([values[:, 1:], xp.zeros_like(values[:, :1])], axis=1)
        found = scanned(rewards + gamma * behind - values, gamma * lam, chunk)
        return found, found + values
    ahead, following = xp.zeros_like(values[:, 0]), xp.zeros_like(values[:, 0])
    columns = []
    for at in reversed(range(rewards.shape[1])):
        found = rewards[:, at] + gamma * following - values[:, at] + gamma * lam * ahead
        ahead = _carry(found, ahead, mask[:, at], hole, masking)
        columns.append(ahead if hole is Hole.SKIP else found)
        following = _carry(values[:, at], following, mask[:, at], hole, masking)
    advantages = xp.stack(columns[::-1], axis=1)
    return advantages, advantages + values


def scanned(values: Array, discount: float, chunk: int) -> Array:
    """G_t = v_t + discount * G_{t+1} as a product with the powers of `discount`, `chunk` tokens at a time from the end.

    Only what is not finite shows the difference: its zeros are multiplied, too, and make NaN of tokens behind it.
    """
    xp = namespace(values)
    backwards, parts = xp.flip(values, axis=1), []
    carried = xp.zeros_like(values[:, :1])
    for start in range(0, values.shape[1], chunk):
        part = backwards[:, start : start + chunk]
        at = xp.arange(part.shape[1], device=device(values))
        steps = at[None, :] - at[:, None]
        powers = xp.astype(xp.clip(steps, 0, None), values.dtype)
        matrix = xp.where(steps >= 0, discount**powers, xp.zeros_like(powers))
        found = part @ matrix + carried * discount ** xp.astype(at[None, :] + 1, values.dtype)
        carried = found[:, -1:]
        parts.append(found)
    return xp.flip(xp.concat(parts, axis=1), axis=1)


def _carry(found: Array, running: Array, active: Array, hole: Hole, masking: Masking) -> Array:
    xp = namespace(found, running, active)
    if hole is Hole.TOKEN:
        return found
    if masking is Masking.MULTIPLY:
        share = xp.astype(active, found.dtype)
        return found * share + (running * (1 - share) if hole is Hole.SKIP else 0)
    return xp.where(active, found, running if hole is Hole.SKIP else xp.zeros_like(found))
