"""The kernels as the stages call them: from the chain's arrays to results by name, and what float32 may do to these."""

import numpy as np

from rollbook.replay.kernels.advantages import grpo_advantages
from rollbook.replay.kernels.array import namespace
from rollbook.replay.kernels.kl import token_kl
from rollbook.replay.kernels.policy_loss import clip_doubt, policy_loss
from rollbook.replay.kernels.rewards import group_rewards
from rollbook.replay.stages import conventional
from rollbook.replay.stages.batch import Chain
from rollbook.replay.stages.blocks import blocks
from rollbook.replay.stages.rounding import group_rounding, sum_rounding
from rollbook.replay.stages.stage import Results, Roundings


def mask_lengths(chain: Chain) -> Results:
    """How many tokens each mask has."""
    xp = namespace(chain.batch.lengths)
    return {"mask_lengths": xp.asarray([len(sample.loss_mask) for sample in chain.batch.samples], dtype=xp.int64)}


def raw_rewards(chain: Chain) -> Results:
    """The rewards as the index has them."""
    return {"raw_rewards": chain.batch.raw_rewards}


def grouped_rewards(chain: Chain) -> Results:
    """Rewards relative to their group."""
    config = chain.batch.config
    if conventional.names_advantages(config):
        return conventional.rewards(chain)
    raw, groups = chain.batch.with_cohort()
    rewards = group_rewards(raw, groups, config.n_samples_per_prompt, divide_by_std=config.grpo_std_normalization)
    return {"rewards": rewards[: chain.batch.raw_rewards.shape[0]]}


def reward_rounding(chain: Chain, _: Results) -> Roundings:
    """Of rewards whose group lies far from zero."""
    batch = chain.batch
    raw, groups = (np.asarray(one) for one in batch.with_cohort())
    counts = np.ones(raw.shape, np.bool_) if batch.measure is None else np.asarray(batch.measure.counts)
    allowed = np.zeros(raw.shape)
    divide = batch.config.grpo_std_normalization
    if counts.any():
        allowed[counts] = group_rounding(raw[counts], groups[counts], divide_by_std=divide).allowed
    if batch.measure is None:
        return {"rewards": allowed[: batch.raw_rewards.shape[0]]}
    like = np.asarray(batch.measure.like)
    return {"rewards": np.where(like < 0, 0.0, allowed[like])}


def distance(chain: Chain) -> Results:
    """The distance of each token to the reference policy."""
    config = chain.batch.config
    old = chain.tokens("old_log_probs")
    if config.kl_coef == 0:
        return {"kl": namespace(old).zeros_like(old)}
    ref = chain.tokens("ref_log_probs")
    parts = [token_kl(old[at], ref[at], config.kl_loss_type) for _, at in blocks(chain.batch.lengths)]
    return {"kl": namespace(old).concat(parts)}


def advantages(chain: Chain) -> Results:
    """Each sample's reward, once per token, or what a named convention makes of it."""
    if conventional.names_advantages(chain.batch.config):
        return conventional.advantages(chain)
    found = grpo_advantages(chain.rewards, chain.batch.lengths)
    return {"advantages": found, "returns": found}


def policy_terms(chain: Chain) -> Results:
    """The scalars of the loss, and each sample's share of them."""
    config = chain.batch.config
    if conventional.names_loss(config):
        return conventional.policy_terms(chain)
    found = [
        policy_loss(
            chain.tokens("old_log_probs")[tokens],
            chain.tokens("log_probs")[tokens],
            chain.tokens("advantages")[tokens],
            chain.tokens("entropy")[tokens],
            chain.batch.mask[tokens],
            chain.batch.lengths[samples],
            eps_clip=config.eps_clip,
            eps_clip_high=config.eps_clip_high,
            entropy_coef=config.entropy_coef,
        )
        for samples, tokens in blocks(chain.batch.lengths)
    ]
    xp = namespace(found[0].loss)
    terms = {
        f"sample_{name}": xp.concat([getattr(one.terms, name) for one in found])
        for name in ("pg_loss", "entropy_loss", "pg_clipfrac", "ppo_kl")
    }
    scalars = {
        name: xp.sum(xp.stack([getattr(one, name) for one in found]), dtype=xp.float64)
        for name in ("loss", "pg_loss", "entropy_loss", "pg_clipfrac", "ppo_kl")
    }
    return {**terms, **{name: xp.astype(value, found[0].loss.dtype) for name, value in scalars.items()}}


def loss_rounding(chain: Chain, results: Results) -> Roundings:
    """Of the scalars: in a batch of whole groups the terms cancel, and with them the digits of a float32 sum. Of the
    share that is clipped: whole tokens, where an exponential's last digit decides."""
    batch = chain.batch
    config = batch.config
    names = ("pg_loss", "entropy_loss", "pg_clipfrac", "ppo_kl")
    terms = {name: results[f"sample_{name}"] for name in names}
    doubt = [
        clip_doubt(
            chain.tokens("old_log_probs")[tokens],
            chain.tokens("log_probs")[tokens],
            batch.mask[tokens],
            batch.lengths[samples],
            eps_clip=config.eps_clip,
            eps_clip_high=config.eps_clip_high,
        )
        for samples, tokens in blocks(batch.lengths)
    ]
    clipped = np.concatenate([np.asarray(one).astype(np.float64) for one in doubt])
    doubtful: float = clipped.sum()
    if conventional.names_loss(config):  # a mean, or divided by totals: not the sum of its terms
        terms = {name: results[f"absolute_{name}"] for name in names}
        doubtful = conventional.clip_share(chain, clipped)
    sums = {name: sum_rounding(terms[name]) for name in names}
    return {
        **sums,
        "loss": sum_rounding(terms["pg_loss"], config.entropy_coef * terms["entropy_loss"]),
        "pg_clipfrac": sums["pg_clipfrac"] + doubtful,
        "sample_pg_clipfrac": clipped,
    }
