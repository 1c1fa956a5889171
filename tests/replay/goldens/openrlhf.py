"""How OpenRLHF's recorded functions are recomputed."""

from dataclasses import replace
from typing import Any

from rollbook.replay.dialects import openrlhf
from rollbook.replay.dialects.estimate import Rewarded, estimate, placed_at_end
from rollbook.replay.dialects.loss import Bounds, Policies, policy_loss
from rollbook.replay.kernels.aggregate import Totals, aggregate
from rollbook.replay.kernels.array import Array, constant, namespace
from rollbook.replay.kernels.correction import Reach, Weighting, gather, importance_weights, is_within
from rollbook.replay.kernels.groups import Normalization, by_group, normalize
from rollbook.replay.kernels.kl import approximate_kl
from rollbook.replay.kernels.masked import Masking, count, masked_mean
from rollbook.replay.kernels.value_loss import value_loss
from rollbook.replay.kernels.whiten import whiten
from rollbook.tests.replay.goldens.case import Adapter, Case, Outputs, Refusal
from rollbook.tests.replay.goldens.compare import cancellation

NORMALIZATIONS: dict[str, Normalization] = {
    "rloo": openrlhf.RLOO,
    "reinforce_baseline": openrlhf.CENTRED,
    "group_norm": openrlhf.GROUP_NORM,
    "dr_grpo": openrlhf.CENTRED,
    "flash_reinforce": openrlhf.BATCH_CENTRED,
}
WHITENED = {"gae", "reinforce", "reinforce_baseline"}


def rewards_of(case: Case, rewards: Array, kl: Array, mask: Array) -> Array:
    """A clipped reward at the row's end, and the KL's penalty at each token."""
    xp = namespace(rewards)
    if clip := case.get("reward_clip_range"):
        rewards = xp.clip(rewards, clip[0], clip[1])
    return placed_at_end(rewards, mask) - max(case.params["kl_coef"], 0.0) * kl


def compute_reward(case: Case) -> Outputs:
    found = case.inputs
    return {"reward": rewards_of(case, found["r"], found["kl"], found["action_mask"] != 0)}


def advantages(case: Case) -> Outputs:
    found, name = case.inputs, case.params["estimator"]
    raw, mask = found["rewards"], found["action_mask"] != 0
    xp = namespace(raw)
    groups = found["index"] // case.params["n_samples_per_prompt"]
    rewards = normalize(raw, groups, NORMALIZATIONS[name]) if name in NORMALIZATIONS else raw
    tokens = rewards_of(case, rewards, found["kl"], mask)
    share = xp.astype(mask, tokens.dtype)
    rule = openrlhf.GAE if name == "gae" else openrlhf.RETURNS
    given = Rewarded(
        tokens * share,
        mask,
        values=found["values"] * share,
        gamma=1.0 if name in NORMALIZATIONS else case.params["gamma"],
        lam=case.params["lambd"],
    )
    advantage, returns = estimate(given, rule)
    if name in WHITENED and case.params["no_std_norm"]:
        advantage = advantage - masked_mean(advantage, mask)
    elif name in WHITENED:
        advantage = whiten(advantage, mask, openrlhf.WHITENING)
    return {
        "advantages": advantage,
        "returns": returns,
        "info_return": xp.sum(tokens, axis=1),
        "group_reward_std": by_group(raw, groups, lambda members: xp.std(members, axis=1, correction=1, keepdims=True)),
        "allowed": cancellation(raw, groups, name in ("group_norm", "reinforce_baseline")),
    }


MOST_RATIO = 10.0
"""Of the weight of an unbiased gradient (KL_IS_WEIGHT_CLIP in openrlhf/models/utils.py)."""


def kl(case: Case) -> Outputs:
    """An unbiased gradient is that of k2, times the ratio to the old policy where there is one."""
    found, name = case.inputs, case.params["kl_estimator"]
    estimate_of = approximate_kl(found["log_probs"], found["log_probs_base"], name, openrlhf.KL)
    if case.params["unbiased_gradient"]:
        xp = namespace(estimate_of)
        gradient = approximate_kl(found["log_probs"], found["log_probs_base"], "k2")
        if "log_probs_old" in found:
            ratio = xp.exp(found["log_probs"] - found["log_probs_old"])
            gradient = gradient * constant(xp.clip(ratio, None, MOST_RATIO))
        estimate_of = constant(estimate_of) + gradient - constant(gradient)
    return {"kl": estimate_of}


def totals_of(case: Case) -> Totals:
    return Totals(
        tokens=case.get("batch_num_tokens"), sequences=case.get("global_batch_size"), ranks=case.get("dp_size") or 1
    )


def policy(case: Case) -> Outputs:
    found = case.inputs
    mask = found["action_mask"]
    if (dual := case.get("dual_clip")) is not None and dual <= 1:
        raise Refusal("a dual clip of 1 or less")
    if case.params["policy_loss_type"] not in ("ppo", "gspo"):
        raise Refusal("no such loss")
    rule = openrlhf.GSPO if case.params["policy_loss_type"] == "gspo" else openrlhf.PPO
    if case.get("token_level_loss") is False:
        rule = replace(rule, aggregation=openrlhf.SEQ_MEAN)
    bounds = Bounds(low=case.params["clip_eps_low"], high=case.params["clip_eps_high"], dual=dual)
    weights, sampler_kl, filtered = corrected(case, mask)
    # GSPO corrects by measuring against the sampler itself.
    is_sampler = rule is openrlhf.GSPO and case.get("is_correction_level", "off") != "off"
    old = found["rollout_log_probs"] if is_sampler else found["old_log_probs"]
    given = Policies(found["log_probs"], old, found["advantages"], mask, weights=weights)
    loss = policy_loss(given, rule, bounds, totals_of(case))
    xp = namespace(mask)
    return {
        "loss": loss.loss,
        "clip_ratio": masked_mean(xp.astype(loss.clipped, loss.losses.dtype), mask),
        "ppo_kl": masked_mean(found["old_log_probs"] - found["log_probs"], mask, masking=Masking.MULTIPLY),
        "vllm_kl": sampler_kl,
        "is_filter_ratio": filtered,
    }


def corrected(case: Case, mask: Array) -> tuple[Array | None, Array | None, Array | None]:
    """(weights, KL to the sampler, share that was dropped)."""
    level, mode = case.get("is_correction_level", "off"), case.get("is_correction_mode", "mask")
    gating = case.get("is_correction_gating", "ratio")
    low, high = case.get("is_correction_threshold", [0.5, 5.0])
    old, sampler = case.inputs["old_log_probs"], case.inputs["rollout_log_probs"]
    if gating != "ratio" and level != "off" and low > 0:
        raise Refusal("an upper bound only")
    if mode == "clip" and (level == "seq" or gating != "ratio"):
        raise Refusal("truncates ratios of tokens only")
    if level not in ("off", "token", "seq") or mode not in ("mask", "clip") or gating not in GATES:
        raise Refusal("no such correction")
    if level == "off" or case.params["policy_loss_type"] == "gspo":
        return None, None, None
    xp = namespace(old)
    reach = Reach.TOKEN if level == "token" else Reach.SEQ_MEAN
    sampler_kl = masked_mean(sampler - old, mask, masking=Masking.MULTIPLY)
    logs = old - sampler
    if mode == "clip":
        outside = masked_mean(xp.astype(~is_within(xp.exp(logs), low, high), old.dtype), mask)
        return importance_weights(logs, Weighting(least=low, most=high)), sampler_kl, outside
    metric, least = bernoulli_kl(sampler, old), None
    if gating == "ratio":
        metric, least = logs, low
    elif gating == "tv":
        metric = xp.abs(xp.subtract(*probabilities(old, sampler)))
    metric = gather(metric, mask, reach, Masking.MULTIPLY, floor=0.0)
    kept = is_within(xp.exp(metric) if gating == "ratio" else metric, least, high)
    dropped = xp.astype(~kept, old.dtype)
    share = xp.mean(dropped[:, 0]) if level == "seq" else masked_mean(dropped, mask)
    return xp.where(kept, xp.exp(logs), xp.zeros_like(logs)), sampler_kl, share


GATES = ("ratio", "binary_kl", "tv")
_LEAST = 1e-6


def probabilities(one: Array, other: Array) -> tuple[Array, Array]:
    xp = namespace(one, other)
    return xp.clip(xp.exp(one), _LEAST, 1 - _LEAST), xp.clip(xp.exp(other), _LEAST, 1 - _LEAST)


def bernoulli_kl(one: Array, other: Array) -> Array:
    xp = namespace(one)
    p, q = probabilities(one, other)
    return p * (xp.log(p) - xp.log(q)) + (1 - p) * (xp.log(1 - p) - xp.log(1 - q))


def values(case: Case) -> Outputs:
    found = case.inputs
    loss = value_loss(found["values"], found["old_values"], found["returns"], clip=case.params["clip_eps"])
    rule = openrlhf.TOKEN_MEAN if case.params["token_level_loss"] else openrlhf.SEQ_MEAN
    return {"loss": aggregate(loss.losses, found["action_mask"], rule)}


def aggregate_loss(case: Case) -> Outputs:
    rule = openrlhf.TOKEN_MEAN if case.params["token_level_loss"] else openrlhf.SEQ_MEAN
    return {"loss": aggregate(case.inputs["loss"], case.inputs["loss_mask"], rule, totals_of(case))}


def masked_normalize(case: Case) -> Outputs:
    """Each row by itself, its variance a mean of squares."""
    found = case.inputs
    mask = found["mask"] != 0
    xp = namespace(mask)
    values, share = found["tensor"], xp.astype(mask, found["tensor"].dtype)
    rows = xp.clip(count(mask, values, axis=1, keepdims=True), 1.0, None)
    centred = values * share
    centred = centred - xp.sum(centred, axis=1, keepdims=True) / rows
    variance = xp.sum(centred * centred * share, axis=1, keepdims=True) / rows
    return {"out": share * centred * (1 / xp.sqrt(xp.clip(variance, case.params["eps"], None)))}


ADAPTERS: dict[str, Adapter] = {
    "adv.compute_advantages_and_returns": advantages,
    "compute_approx_kl": kl,
    "compute_reward": compute_reward,
    "masked_normalize": masked_normalize,
    "PolicyLoss": policy,
    "ValueLoss": values,
    "aggregate_loss": aggregate_loss,
}
UNSUPPORTED: dict[str, str] = {
    "apply_overlong_penalty": "shapes a reward, which a bundle records as raw",
    "apply_stop_properly_penalty": "shapes a reward, which a bundle records as raw",
}
IGNORED: dict[str, dict[str, Any]] = {}
