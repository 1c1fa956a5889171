"""Which one input a divergence points at, where the recorded results are coarser than the inputs.

Normalising spreads one wrong raw reward over its whole group, and a loss is a handful of sums. An input is to blame
when one value in its place, all others as they are, gives what was recorded; it is named only when no other could.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from rollbook.replay.kernels.rewards import STD_EPSILON

Floats = NDArray[np.float64]
_CLOSE = 1e-4


@dataclass(frozen=True, slots=True)
class Normalizer:
    """How a group's raw rewards, float64 [members], become its rewards; `by_std`: divided by their deviation. Without
    it, `scale` is what a reward less the group's mean is multiplied by, as leaving one out does."""

    rewards: Callable[[Floats], Floats]
    by_std: bool
    scale: Callable[[int], float] = lambda _: 1.0


def group_relative(*, divide_by_std: bool) -> Normalizer:
    """That of format 1.0.0."""

    def rewards(raw: Floats) -> Floats:
        centred: Floats = raw - raw.mean()
        return centred / (raw.std(ddof=1) + STD_EPSILON) if divide_by_std else centred

    return Normalizer(rewards, divide_by_std)


def blame_raw_reward(raw: Floats, recorded: Floats, group_index: Sequence[int], normalizer: Normalizer) -> int | None:
    """Position of the one sample whose raw reward explains the divergence of the first diverging group; None when no
    single one does, or more than one could. `raw` and `recorded` are float64 [samples]."""
    groups = np.asarray(group_index)
    for group in dict.fromkeys(group_index):
        members = np.flatnonzero(groups == group)
        if _explains(raw[members], recorded[members], normalizer):
            continue
        blamed = [at for at in members if _blames(raw, recorded, members, int(at), normalizer)]
        return int(blamed[0]) if len(blamed) == 1 else None
    return None


def _blames(raw: Floats, recorded: Floats, members: NDArray[np.intp], at: int, normalizer: Normalizer) -> bool:
    others = members[members != at]
    if not others.size:
        return False
    scale = normalizer.scale(members.size)
    for candidate in _candidates(raw[others], recorded[others] / scale, float(recorded[at]) / scale, normalizer.by_std):
        group = np.where(members == at, candidate, raw[members])
        if _explains(group, recorded[members], normalizer):
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


def _explains(raw: Floats, recorded: Floats, normalizer: Normalizer) -> bool:
    return bool(np.all(np.abs(normalizer.rewards(raw) - recorded) <= _CLOSE * (1 + np.abs(recorded))))


@dataclass(frozen=True, slots=True)
class LossTokens:
    """Active tokens of a policy loss, float64 [tokens] each: x = old - new, the advantage, and how many active tokens
    the token's sample has. `ids` says which token of the bundle each is."""

    log_ratio: Floats
    advantages: Floats
    active: Floats
    ids: NDArray[np.int64]
    eps_clip: float
    eps_clip_high: float


@dataclass(frozen=True, slots=True)
class LossShift:
    """Recorded minus recomputed, of sums of per-sample means."""

    pg_loss: float
    pg_clipfrac: float
    ppo_kl: float


@dataclass(frozen=True, slots=True)
class LogProbFault:
    """Tokens whose log-probs could be wrong, and by how much log p(old) - log p(new) is off at each."""

    ids: NDArray[np.int64]
    off_by: Floats


def blame_log_prob(tokens: LossTokens, shift: LossShift, resolution: float) -> LogProbFault:
    """The tokens at which one wrong log-prob alone explains the shift.

    The shift of ppo_kl fixes how far x would have to move at each token; where the moves of pg_loss and pg_clipfrac
    then agree with theirs, the token is a candidate. `resolution` is what float32 scalars can tell apart.
    """
    off_by = shift.ppo_kl * tokens.active
    pg_before, clipped_before = _token_loss(tokens, tokens.log_ratio)
    pg_after, clipped_after = _token_loss(tokens, tokens.log_ratio + off_by)
    pg_move = (pg_after - pg_before) / tokens.active
    clip_move = (clipped_after.astype(np.float64) - clipped_before) / tokens.active
    slack = resolution * (1 + np.exp(np.abs(tokens.log_ratio) + np.abs(off_by)) * np.abs(tokens.advantages))
    fits = (np.abs(pg_move - shift.pg_loss) <= slack + _CLOSE * abs(shift.pg_loss)) & (
        np.abs(clip_move - shift.pg_clipfrac) <= resolution + _CLOSE * abs(shift.pg_clipfrac)
    )
    found = np.flatnonzero(fits) if abs(shift.ppo_kl) > resolution else np.zeros(0, np.int64)
    return LogProbFault(tokens.ids[found], off_by[found])


def _token_loss(tokens: LossTokens, log_ratio: Floats) -> tuple[Floats, NDArray[np.bool_]]:
    ratio = np.exp(-log_ratio)
    plain = -ratio * tokens.advantages
    clipped = -np.clip(ratio, 1 - tokens.eps_clip, 1 + tokens.eps_clip_high) * tokens.advantages
    return np.maximum(plain, clipped), clipped > plain
