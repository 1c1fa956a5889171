"""How verl's recorded functions are recomputed."""

import math
from dataclasses import replace
from functools import partial
from typing import Any

from rollbook.replay.dialects import verl
from rollbook.replay.dialects.estimate import Rewarded, estimate
from rollbook.replay.dialects.loss import Bounds, Policies, PolicyLoss, policy_loss, share
from rollbook.replay.dialects.rules import AdvantageRule, LossRule
from rollbook.replay.kernels import surrogate
from rollbook.replay.kernels.aggregate import Mode, Totals, aggregate
from rollbook.replay.kernels.array import constant, namespace
from rollbook.replay.kernels.correction import (
    Outside,
    Reach,
    Weighting,
    gather,
    importance_weights,
    is_within,
    log_weights,
)
from rollbook.replay.kernels.groups import Level
from rollbook.replay.kernels.kl import approximate_kl
from rollbook.replay.kernels.masked import Masking, count, hide, masked_mean, masked_variance
from rollbook.replay.kernels.value_loss import value_loss
from rollbook.replay.kernels.whiten import whiten
from rollbook.tests.replay.goldens.case import Adapter, Case, Outputs, Refusal, labels, plain
from rollbook.tests.replay.goldens.compare import cancellation

MODES = set(Mode)


def mode_of(case: Case) -> Mode:
    if case.get("loss_agg_mode", "token-mean") not in MODES:
        raise Refusal("no such mode")
    return Mode(case.get("loss_agg_mode", "token-mean"))


def totals_of(case: Case) -> Totals:
    mode, ranks = mode_of(case), case.get("dp_size") or 1
    tokens, rows = case.get("batch_num_tokens"), case.get("global_batch_size")
    if ranks > 1 and ((mode is Mode.TOKEN_MEAN and tokens is None) or (mode.startswith("seq") and rows is None)):
        raise Refusal("the totals of all ranks are needed")
    return Totals(tokens=tokens, sequences=rows, length=case.get("loss_scale_factor"), ranks=ranks)


def advantages(rule: AdvantageRule, case: Case) -> Outputs:
    found = case.inputs
    if rule.normalization and case.get("norm_adv_by_std_in_grpo") is False:
        rule = replace(rule, normalization=replace(rule.normalization, std=Level.NONE))
    elif rule.normalization and case.get("epsilon"):
        eps = case.get("epsilon")
        floor = eps if rule.normalization.variance_floor else 0.0
        rule = replace(rule, normalization=replace(rule.normalization, eps=eps, variance_floor=floor))
    index = found.get("index", found.get("uid"))
    given = Rewarded(
        found["token_level_rewards"],
        found["response_mask"] != 0,
        group_index=None if index is None else labels(index, found["token_level_rewards"]),
        values=found.get("values"),
        gamma=case.get("gamma", 1.0),
        lam=case.get("lam", 1.0),
    )
    try:
        advantage, returns = estimate(given, rule)
    except ValueError as error:
        raise Refusal(str(error)) from error
    allowed = 0.0
    if rule.normalization:
        scores = plain(found["token_level_rewards"]).sum(axis=1)
        allowed = cancellation(scores, given.group_index, rule.normalization.std is Level.GROUP)
    return {"advantages": advantage, "returns": returns, "allowed": allowed}


def trainer_advantages(case: Case) -> Outputs:
    rules = {
        "grpo": verl.GRPO,
        "rloo": verl.RLOO,
        "reinforce_plus_plus": verl.REINFORCE_PLUS_PLUS,
        "gae": verl.GAE,
    }
    return advantages(rules[case.params["adv_estimator"]], case)


def kl_penalty(case: Case) -> Outputs:
    try:
        found = approximate_kl(
            case.inputs["logprob"], case.inputs["ref_logprob"], estimator(case.params["kl_penalty"]), verl.KL
        )
    except KeyError as error:
        raise Refusal("no such estimator") from error
    return {"kl": found}


def estimator(name: str) -> str:
    base, plus = name.removesuffix("+"), "+" if name.endswith("+") else ""
    return {"kl": "k1", "mse": "k2"}.get(base, base) + plus


def apply_kl_penalty(case: Case) -> Outputs:
    found = case.inputs
    mask = found["response_mask"] != 0
    xp = namespace(mask)
    as_float = xp.astype(mask, xp.float64)
    name = estimator(case.params["kl_penalty"])
    kl = approximate_kl(found["old_log_probs"], found["ref_log_prob"], name, verl.KL) * as_float
    coef = case.params["kl_coef"]
    now = xp.mean(xp.sum(kl, axis=1) / (xp.sum(as_float, axis=1) + 1e-8))
    after = coef
    if case.params["controller"] == "adaptive":
        error = xp.clip(now / case.params["target_kl"] - 1, -0.2, 0.2)
        after = coef * (1 + error * mask.shape[0] / case.params["horizon"])
    return {
        "token_level_rewards": found["token_level_scores"] - coef * kl,
        "kl_coef_after": after,
        "actor/reward_kl_penalty": now,
        "actor/reward_kl_penalty_coeff": coef,
    }


def compute_rewards(case: Case) -> Outputs:
    found = case.inputs
    kl = found["old_log_prob"] - found["ref_log_prob"]
    return {"rewards": found["token_level_scores"] - kl * case.params["kl_ratio"]}


def agg_loss(case: Case) -> Outputs:
    rule = verl.aggregation(mode_of(case))
    return {"loss": aggregate(case.inputs["loss_mat"], case.inputs["loss_mask"], rule, totals_of(case))}


def bounds_of(case: Case) -> Bounds:
    return Bounds(
        low=case.get("clip_ratio_low", case.get("clip_ratio")),
        high=case.get("clip_ratio_high", case.get("clip_ratio")),
        dual=case.get("clip_ratio_c", 3.0),
        positive=case.get("tau_pos", 1.0),
        negative=case.get("tau_neg", 1.05),
    )


LOSSES: dict[str, Any] = {"vanilla": verl.ppo, "gspo": verl.gspo, "sapo": verl.sapo, "cispo": verl.cispo}


def loss_of(case: Case, rule: LossRule) -> PolicyLoss:
    found = case.inputs
    given = Policies(
        found["log_prob"],
        found["old_log_prob"] if "old_log_prob" in found else found["old_log_probs"],
        found["advantages"],
        found["response_mask"],
        weights=found.get("rollout_is_weights"),
    )
    return policy_loss(given, rule, bounds_of(case), totals_of(case))


def metrics_of(case: Case, found: PolicyLoss) -> dict[str, Any]:
    mask = case.inputs["response_mask"]
    return {
        "actor/pg_clipfrac": share(found.clipped, mask, eps=1e-8),
        "actor/ppo_kl": masked_mean(-found.log_ratios, mask, eps=1e-8),
        "actor/pg_clipfrac_lower": share(found.dual_clipped, mask, eps=1e-8),
    }


def policy(name: str, case: Case) -> Outputs:
    found = loss_of(case, LOSSES[name](mode_of(case)))
    return {"loss": found.loss, "loss_mat": found.losses, "metrics": metrics_of(case, found)}


def values(case: Case) -> Outputs:
    found = case.inputs
    mask = found["response_mask"]
    loss = value_loss(
        found["vpreds"], found["values"], found["returns"], clip=case.params["cliprange_value"], factor=1.0
    )
    return {
        "loss": 0.5 * aggregate(loss.losses, mask, verl.aggregation(mode_of(case))),
        "vf_clipfrac": share(loss.clipped, mask, eps=1e-8),
    }


def masked_whiten(case: Case) -> Outputs:
    rule = replace(verl.WHITENING, shift=case.params["shift_mean"])
    try:
        return {"whitened": whiten(case.inputs["values"], case.inputs["mask"] != 0, rule)}
    except ValueError as error:
        raise Refusal(str(error)) from error


def masked_stats(case: Case) -> Outputs:
    values, mask = case.inputs["values"], case.inputs["mask"] != 0
    xp = namespace(values)
    if float(count(mask, values)) <= 1:
        raise Refusal("no variance of one")
    return {
        "mean": masked_mean(values, mask, eps=1e-8),
        "mean_axis": xp.sum(hide(values, mask), axis=1) / (count(mask, values, axis=1) + 1e-8),
        "var_unbiased": masked_variance(values, mask, ddof=1),
        "sum": xp.sum(hide(values, mask)),
    }


def last_rows(case: Case) -> Outputs:
    """A session's reward is that of its last row; every row of the session gets its advantage."""
    rewards, mask = case.inputs["token_level_rewards"], case.inputs["response_mask"] != 0
    xp = namespace(rewards)
    session = [key.rsplit("_", 1)[0] for key in case.inputs["keys"]]
    last = {name: at for at, name in enumerate(session)}
    names = list(last)
    chosen = xp.asarray([last[name] for name in names])
    given = Rewarded(
        xp.take(rewards, chosen, axis=0),
        xp.ones_like(xp.take(mask, chosen, axis=0)),
        labels([name.rsplit("_", 1)[0] for name in names], rewards),
    )
    advantage, _ = estimate(given, verl.GRPO)
    of_row = xp.take(advantage[:, 0], xp.asarray([names.index(name) for name in session]), axis=0)
    spread = of_row[:, None] * xp.astype(mask, of_row.dtype)
    return {"advantages": spread, "returns": spread}


def correction(case: Case, train: Any, sampler: Any, mask: Any) -> tuple[Any, Any]:
    """(weights or None, loss mask after rejection)."""
    xp = namespace(train)
    if not bool(xp.any(mask)):
        raise Refusal("no token counts")
    weights = None
    if level := case.get("rollout_is"):
        weights = weights_of(case, log_weights(train, sampler, mask, REACHES[level], limit=20.0), mask, level)
    kept = mask
    options = [option for option in (case.get("rollout_rs") or "").split(",") if option]
    thresholds = str(case.get("rollout_rs_threshold")).split(",")
    for option, threshold in zip(options, thresholds * (len(options) if len(thresholds) == 1 else 1), strict=True):
        kept = kept & accepted(option, threshold, xp.clip(train - sampler, -20, 20), mask)
    return weights, kept


REACHES = {"token": Reach.TOKEN, "sequence": Reach.SEQ_SUM}


def weights_of(case: Case, logs: Any, mask: Any, level: str) -> Any:
    xp = namespace(logs)
    bounds = [float(part) for part in str(case.params["rollout_is_threshold"]).split("_")]
    rule = Weighting(most=bounds[-1])
    if len(bounds) == 2:
        rule = Weighting(least=bounds[0], most=bounds[1], outside=Outside.ZERO)
    weights = hide(importance_weights(logs, rule), mask, Masking.MULTIPLY)
    if float(xp.sum(weights)) == 0:
        raise Refusal("a mean of zero")
    if case.get("rollout_is_batch_normalize"):
        used = xp.any(mask, axis=1)
        rows = xp.sum(weights, axis=1) / (count(mask, weights, axis=1) + 1e-8)
        weights = weights / (masked_mean(weights, mask, eps=1e-8) if level == "token" else masked_mean(rows, used))
    return weights


def accepted(option: str, threshold: str, log_ratios: Any, mask: Any) -> Any:
    """Where a token stays. Of k1 the bounds are those of sampler / trainer, of the others there is an upper one."""
    xp = namespace(log_ratios)
    reach, name = option.rsplit("_", 1)
    bounds = [float(part) for part in threshold.split("_")]
    if name == "k1":
        least, most = (1 / bounds[0], bounds[0]) if len(bounds) == 1 else bounds
        value = gather(-log_ratios, mask, Reach(reach))
        return is_within(value, math.log(least), math.log(most))
    if len(bounds) == 2:
        raise Refusal("an upper bound only")
    estimate_of = {"k2": log_ratios**2 / 2, "k3": xp.exp(log_ratios) - 1 - log_ratios}
    return is_within(gather(estimate_of[name], mask, Reach(reach)), None, bounds[0])


def rollout_correction(case: Case) -> Outputs:
    found = case.inputs
    mask = found["response_mask"] != 0
    weights, kept = correction(case, found["old_log_prob"], found["rollout_log_prob"], mask)
    return {"rollout_is_weights": weights, "modified_response_mask": kept}


def bypass(case: Case) -> Outputs:
    """The sampler's log-probs are the old ones: the clipped ratio corrects by itself, REINFORCE takes the weights."""
    found = case.inputs
    weights, kept = correction(case, constant(found["log_prob"]), found["old_log_prob"], found["response_mask"])
    is_ppo = case.params["loss_type"] == "ppo_clip"
    given = replace(case, inputs={**found, "response_mask": kept, "rollout_is_weights": None if is_ppo else weights})
    loss = loss_of(given, (verl.ppo if is_ppo else verl.reinforce)(mode_of(case)))
    metrics = metrics_of(given, loss)
    if not is_ppo:
        metrics = {"actor/ppo_kl": metrics["actor/ppo_kl"]}
    return {"loss": loss.loss, "loss_mat": loss.losses, "metrics": metrics}


def geo_mean(case: Case) -> Outputs:
    found, bounds = case.inputs, bounds_of(case)
    old = found["old_log_prob"] if "old_log_prob" in found else found["old_log_probs"]
    mask, ratios = found["response_mask"], found["log_prob"] - old
    xp = namespace(ratios)
    losses, _ = surrogate.geometric(ratios, found["advantages"], mask, low=bounds.low, high=bounds.high)
    if "rollout_is_weights" in found:
        logs = xp.log(found["rollout_is_weights"] + 1e-10)
        losses = losses * xp.exp(surrogate.sequence_mean(logs, mask, floor=0.0, eps=1e-8))[:, 0]
    outside = ratios != xp.clip(ratios, -bounds.low, bounds.high)
    metrics = {
        "actor/pg_clipfrac": share(outside & (found["advantages"] > 0), mask, eps=1e-8),
        "actor/ppo_kl": masked_mean(-ratios, mask, eps=1e-8),
        "actor/pg_clipfrac_lower": share(outside & (found["advantages"] < 0), mask, eps=1e-8),
    }
    return {"loss": xp.mean(losses), "metrics": metrics}


def ppo_loss(case: Case) -> Outputs:
    """The policy's loss, minus entropy, plus the KL to the reference, each reduced alike."""
    found, name = case.inputs, case.params["loss_mode"]
    mask, rule, totals = found["response_mask"], verl.aggregation(mode_of(case)), totals_of(case)
    outputs = geo_mean(case) if name == "geo_mean" else policy(name, case)
    loss, metrics = outputs["loss"], dict(outputs["metrics"])
    metrics["actor/pg_loss"] = loss
    if coefficient := case.get("entropy_coeff"):
        entropy = aggregate(found["entropy"], mask, rule, totals)
        metrics["actor/entropy_loss"] = entropy
        loss = loss - coefficient * entropy
    kl = approximate_kl(found["log_prob"], found["ref_log_prob"], estimator(case.params["kl_loss_type"]), verl.KL)
    of_kl = aggregate(kl, mask, rule, totals)
    metrics |= {"kl_loss": of_kl, "kl_coef": case.params["kl_loss_coef"]}
    return {"loss": loss + case.params["kl_loss_coef"] * of_kl, "metrics": metrics}


ADAPTERS: dict[str, Adapter] = {
    "adv.grpo": partial(advantages, verl.GRPO),
    "adv.grpo_vectorized": partial(advantages, verl.GRPO_VECTORIZED),
    "adv.rloo": partial(advantages, verl.RLOO),
    "adv.rloo_vectorized": partial(advantages, verl.RLOO_VECTORIZED),
    "adv.reinforce_plus_plus": partial(advantages, verl.REINFORCE_PLUS_PLUS),
    "adv.reinforce_plus_plus_baseline": partial(advantages, verl.REINFORCE_PLUS_PLUS_BASELINE),
    "adv.gae": partial(advantages, verl.GAE),
    "trainer.compute_advantage": trainer_advantages,
    "kl_penalty": kl_penalty,
    "trainer.apply_kl_penalty": apply_kl_penalty,
    "compute_rewards": compute_rewards,
    "agg_loss": agg_loss,
    **{f"policy_loss.{name}": partial(policy, name) for name in LOSSES},
    "value_loss": values,
    "masked_whiten": masked_whiten,
    "masked_stats": masked_stats,
    "trainer.compute_advantage_for_multi_trajectories": last_rows,
    "rollout_correction": rollout_correction,
    "policy_loss.bypass_mode": bypass,
    "policy_loss.geo_mean": geo_mean,
    "workers.ppo_loss": ppo_loss,
}

IGNORED: dict[str, dict[str, str]] = {
    "rollout_correction": {"metrics": "figures that verl logs about sampler and trainer, no part of a loss"},
    "policy_loss.bypass_mode": {"metrics.rollout_corr/": "figures that verl logs, no part of a loss"},
}
"""Outputs that are not recomputed, by function, and why."""

_ESTIMATOR = "an estimator that format 1.1.0 does not name"
_LOSS = "a policy loss that format 1.1.0 does not name"
_LOGITS = "starts from logits, which no bundle holds"
UNSUPPORTED: dict[str, str] = {
    "adv.opo": _ESTIMATOR,
    "adv.gpg": _ESTIMATOR,
    "adv.grpo_passk": _ESTIMATOR,
    "adv.remax": _ESTIMATOR,
    "adv.optimal_token_baseline": _ESTIMATOR,
    "adv.tir_optimal_token_baseline": _ESTIMATOR,
    "adv.gdpo": _ESTIMATOR,
    "policy_loss.dppo_tv": _LOSS,
    "policy_loss.dppo_kl": _LOSS,
    "policy_loss.gpg": _LOSS,
    "policy_loss.clip_cov": _LOSS,
    "policy_loss.kl_cov": _LOSS,
    "policy_loss.dro": _LOSS,
    "entropy_from_logits": _LOGITS,
    "logprobs_from_logits_v2": _LOGITS,
    "logprobs_from_logits_naive": _LOGITS,
    "sum_pi_squared_from_logits": _LOGITS,
    "entropy_loss": _LOGITS,
    "reward_manager.dapo_overlong": "shapes a reward, which a bundle records as raw",
    "pf_ppo_weights": "draws samples, before what a bundle records",
}
