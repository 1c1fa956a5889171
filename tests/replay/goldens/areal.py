"""How AReaL's recorded functions are recomputed."""

from dataclasses import replace
from typing import Any

from rollbook.replay.dialects import areal
from rollbook.replay.dialects.estimate import Rewarded, estimate
from rollbook.replay.dialects.loss import Bounds, Policies, policy_loss
from rollbook.replay.kernels.aggregate import aggregate
from rollbook.replay.kernels.array import Array, namespace
from rollbook.replay.kernels.correction import Reach, gather, is_within
from rollbook.replay.kernels.groups import Level, Singleton, normalize
from rollbook.replay.kernels.kl import PLAIN, approximate_kl
from rollbook.replay.kernels.masked import count, hide
from rollbook.replay.kernels.value_loss import Distance, value_loss
from rollbook.replay.kernels.whiten import whiten
from rollbook.tests.replay.goldens.case import Adapter, Case, Outputs
from rollbook.tests.replay.goldens.compare import cancellation


def kl(case: Case) -> Outputs:
    rule = areal.KL if case.params["apply_clamp"] else PLAIN
    name = case.params["kl_estimator"]
    return {"kl": approximate_kl(case.inputs["log_probs"], case.inputs["log_probs_base"], name, rule)}


def normalization(case: Case) -> Outputs:
    values = case.inputs["x"]
    xp = namespace(values)
    if case.get("masked"):
        mask = case.inputs["loss_mask"] != 0
        return {"normalized": hide(whiten(values, mask, areal.WHITENING), mask)}
    params = case.params
    rule = replace(
        areal.GROUP,
        mean=Level(params["mean_level"] or "none"),
        std=Level(params["std_level"] or "none"),
        eps=params["eps"],
        ddof=1 if params["std_unbiased"] else 0,
        leave_one_out=params["mean_leave1out"],
        singleton=Singleton.FORMULA if params["mean_leave1out"] else Singleton.ZERO,
    )
    groups = xp.arange(values.shape[0]) // params["group_size"]
    return {"normalized": normalize(values, groups, rule), "allowed": cancellation(values, groups, rule.std != "none")}


def masked_normalization(case: Case) -> Outputs:
    rule = replace(areal.WHITENING, ddof=1 if case.params["unbiased"] else 0, eps=case.params["eps"])
    mask = case.inputs["mask"] != 0
    values = case.inputs["x"] * namespace(mask).astype(mask, case.inputs["x"].dtype)
    if float(count(mask, values)) <= rule.ddof:
        return {"out": values * float("nan")}
    return {"out": whiten(values, mask, rule)}


def actor_loss(case: Case) -> Outputs:
    found, params = case.inputs, case.params
    mask, prox, old = found["loss_mask"], found["proximal_logprobs"], found["old_logprobs"]
    xp = namespace(prox)
    weights, within = behaviour(case)
    kept = mask & within if case.get("rs_action") == "mask" else mask
    rule = areal.GSPO if case.get("importance_sampling_level") == "sequence" else areal.PPO
    high = case.get("eps_clip_higher", params["eps_clip"])
    bounds = Bounds(low=params["eps_clip"], high=high, dual=case.get("c_clip"))
    weights = None if weights is None else hide(weights, kept)
    given = Policies(found["logprobs"], prox, found["advantages"], kept, weights=weights)
    loss = policy_loss(given, rule, bounds)
    # Rejected tokens leave the sum but not the count that it is divided by.
    tokens = xp.clip(count(mask, loss.losses), 1.0, None)
    outputs = {
        "loss": xp.sum(hide(loss.losses, kept)) / tokens,
        "stat_loss": loss.losses,
        "stat_importance_weight": hide(loss.ratios, kept),
        "stat_approx_kl": found["logprobs"] - prox,
        "stat_clip_mask": loss.clipped & kept,
        "stat_dual_clip_mask": loss.dual_clipped & kept,
    }
    if weights is not None:
        outputs["stat_behave_approx_kl"] = hide(prox - old, kept)
        outputs["stat_behave_imp_weight"] = weights
        outputs["stat_behave_mask"] = kept & (weights > 0)
        outputs["stat_filtered_fraction"] = count(mask & ~within, loss.losses) / tokens
    return outputs


REACHES = {"sum": Reach.SEQ_SUM, "mean": Reach.SEQ_MEAN, "max": Reach.SEQ_MAX}


def behaviour(case: Case) -> tuple[Array | None, Array]:
    """(weights of the proximal policy over the sampler, where its metric is within bounds).

    A whole row's weight is the geometric mean of its tokens', whatever the metric gathers them by.
    """
    mask = case.inputs["loss_mask"]
    logs = case.inputs["proximal_logprobs"] - case.inputs["old_logprobs"]
    xp = namespace(logs)
    if "rs_level" not in case.params:
        return None, mask
    of_rows, metric = case.params["rs_level"] == "sequence", case.params["rs_metric"]
    reach = REACHES[case.get("rs_agg", "mean")] if of_rows else Reach.TOKEN
    if metric == "ratio":
        weights = xp.exp(gather(logs, mask, Reach.SEQ_MEAN if of_rows else Reach.TOKEN))
        value = xp.exp(gather(logs, mask, reach))
    else:
        weights = xp.exp(logs)
        value = gather(approximate_kl(logs, xp.zeros_like(logs), metric.removeprefix("kl_")), mask, reach)
    low, high = case.get("rs_lower"), case.params["rs_upper"]
    return xp.clip(weights, low, high) if case.params["rs_action"] == "clamp" else weights, is_within(value, low, high)


def sapo(case: Case) -> Outputs:
    found = case.inputs
    rule = areal.SEQUENCE_SAPO if case.params["importance_sampling_level"] == "sequence" else areal.SAPO
    given = Policies(found["logprobs"], found["proximal_logprobs"], found["advantages"], found["loss_mask"])
    loss = policy_loss(given, rule, Bounds(positive=case.params["tau_pos"], negative=case.params["tau_neg"]))
    return {"loss": loss.loss, "stat_loss": loss.losses}


def critic(case: Case) -> Outputs:
    found = case.inputs
    distance = Distance.SQUARED if case.params["loss_fn_type"] == "mse" else Distance.HUBER
    clip = case.params["value_eps_clip"]
    loss = value_loss(found["value"], found["old_value"], found["target_value"], clip=clip, distance=distance)
    return {
        "loss": aggregate(loss.losses, found["loss_mask"], areal.TOKEN_MEAN),
        "stat_clip_mask": loss.clipped & found["loss_mask"],
    }


def advantages(case: Case) -> Outputs:
    found, params = case.inputs, case.params
    xp = namespace(found["rewards"])
    mask = xp.roll(found["loss_mask"], -1, axis=1) != 0
    share = xp.astype(mask, found["rewards"].dtype)
    log_probs = xp.roll(found["logprobs"], -1, axis=1) * share
    rewards = xp.clip(
        (found["rewards"] + params["reward_bias"]) * params["reward_scaling"],
        -params["reward_clip"],
        params["reward_clip"],
    )
    groups = xp.arange(rewards.shape[0]) // params["group_size"]
    divided = False
    if params["reward_norm"]:
        divided = params["reward_norm"][1] is not None
        rewards = normalize(rewards, groups, areal.GROUP if divided else areal.CENTRED)
    lengths = xp.sum(found["attention_mask"], axis=1)
    if params["mask_no_eos_with_zero"]:
        rewards = xp.where(lengths == mask.shape[1], xp.zeros_like(rewards), rewards)
    kl_rewards = (
        -params["kl_ctl"] * approximate_kl(log_probs, found["ref_logp"] * share, params["kl_estimator"]) * share
    )
    at = xp.arange(mask.shape[1])[None, :]
    end = at == lengths[:, None] - 2
    total = kl_rewards + xp.where(end, rewards[:, None] + xp.zeros_like(kl_rewards), xp.zeros_like(kl_rewards))
    given = Rewarded(
        total,
        mask,
        values=xp.zeros_like(total),
        gamma=params["discount"],
        lam=params["gae_lambda"],
    )
    advantage, returns = estimate(given, areal.GAE)
    if params["adv_norm"]:
        advantage = hide(whiten(advantage, mask, areal.WHITENING), mask)
    return {
        "advantages": advantage,
        "returns": returns,
        "kl_rewards": kl_rewards,
        "tot_rewards": total,
        "loss_mask": share,
        "logprobs": log_probs,
        "allowed": cancellation(found["rewards"], groups, divided),
    }


ADAPTERS: dict[str, Adapter] = {
    "KLEstimator": kl,
    "Normalization": normalization,
    "masked_normalization": masked_normalization,
    "ppo_actor_loss_fn": actor_loss,
    "sapo_loss_fn": sapo,
    "ppo_critic_loss_fn": critic,
    "PPOActor._compute_advantages": advantages,
}
UNSUPPORTED: dict[str, str] = {
    "compute_prox_logp_approximations": "makes up log-probs that nothing computed; a bundle records them",
    "apply_m2po_masking": "a rejection by second moments that format 1.1.0 does not name",
    "reward_overlong_penalty": "shapes a reward, which a bundle records as raw",
}
IGNORED: dict[str, dict[str, Any]] = {}
