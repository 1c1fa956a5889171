"""Advantages of GRPO (Shao et al. 2024, arXiv:2402.03300, outcome supervision)."""

from rollbook.replay.kernels.array import Array, namespace


def grpo_advantages(rewards: Array, lengths: Array) -> Array:
    """The normalised reward of a sample, once for each of its response tokens.

    rewards: float32 [samples]; lengths: int64 [samples]; returns float32 [tokens], samples in order.
    """
    xp = namespace(rewards, lengths)
    return xp.repeat(rewards, lengths)
