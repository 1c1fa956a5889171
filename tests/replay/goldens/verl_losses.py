"""How verl's recorded losses, corrections and reductions are recomputed."""

import math
from dataclasses import replace
from functools import partial
from typing import Any

from rollbook.replay.dialects import verl
from rollbook.replay.dialects.loss import Bounds, Policies, PolicyLoss, policy_loss, share
from rollbook.replay.dialects.rules import LossRule
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
from rollbook.replay.kernels.kl import approximate_kl
from rollbook.replay.kernels.masked import Masking, count, hide, masked_mean
from rollbook.replay.kernels.value_loss import value_loss
from rollbook.tests.replay.goldens.case import Adapter, Case, Outputs, Refusal

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


LOSSES: dict[str, Any] = {
    "vanilla": verl.ppo,
    "gspo": verl.gspo,
    "sapo": verl.sapo,
    "cispo": verl.cispo,
    "gpg": verl.reinforce,
}


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
    metrics = {} if name == "gpg" else metrics_of(case, found)
    return {"loss": found.loss, "loss_mat": found.losses, "metrics": metrics}


def values(case: Case) -> Outputs:
    found = case.inputs
    mask = found["response_mask"]
    loss = value_loss(
        found["vpreds"],
        found["values"],
        found["returns"],
        clip=case.params["cliprange_value"],
        factor=1.0,
        between=True,
    )
    return {
        "loss": 0.5 * aggregate(loss.losses, mask, verl.aggregation(mode_of(case))),
        "vf_clipfrac": share(loss.clipped, mask, eps=1e-8),
    }


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
    if options and len(thresholds) not in (1, len(options)):
        raise Refusal("a threshold for each option, or one for all")
    for option, threshold in zip(options, thresholds * (len(options) if len(thresholds) == 1 else 1), strict=True):
        kept = kept & accepted(option, threshold, xp.clip(train - sampler, -20, 20), mask)
    return weights, kept


REACHES = {"token": Reach.TOKEN, "sequence": Reach.SEQ_SUM}


def weights_of(case: Case, logs: Any, mask: Any, level: str) -> Any:
    xp = namespace(logs)
    bounds = bounds_in(case.get("rollout_is_threshold", 2.0))
    rule = Weighting(most=bounds[-1])
    if len(bounds) == 2:
        rule = Weighting(least=bounds[0], most=bounds[1], outside=Outside.ZERO)
    weights = hide(importance_weights(logs, rule), mask, Masking.MULTIPLY)
    if float(xp.sum(weights)) == 0:
        raise Refusal("a mean of zero")
    if case.get("rollout_is_batch_normalize"):
        used = xp.any(mask, axis=1)
        rows = xp.sum(weights, axis=1) / (count(mask, weights, axis=1) + 1e-8)
        mean = masked_mean(weights, mask, eps=1e-8) if level == "token" else masked_mean(rows, used)
        weights = weights / mean if float(mean) > 1e-8 else weights
    return weights


def bounds_in(threshold: object) -> list[float]:
    """Of "upper" or "lower_upper"."""
    try:
        bounds = [float(part) for part in str(threshold).split("_")]
    except ValueError as error:
        raise Refusal("no number") from error
    if min(bounds) <= 0 or (bounds != sorted(bounds) and len(bounds) == 2):
        raise Refusal("bounds are positive, the lower one first")
    return bounds


def accepted(option: str, threshold: str, log_ratios: Any, mask: Any) -> Any:
    """Where a token stays. Of k1 the bounds are those of sampler / trainer, of the others there is an upper one."""
    xp = namespace(log_ratios)
    reach, name = option.rsplit("_", 1)
    bounds = bounds_in(threshold)
    if name == "k1":
        least, most = (1 / bounds[0], bounds[0]) if len(bounds) == 1 else bounds
        if least > most:
            raise Refusal("no bound below the other")
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
    if "entropy" in found:
        entropy = aggregate(found["entropy"], mask, rule, totals)
        metrics["actor/entropy_loss"] = entropy
        loss = loss - case.get("entropy_coeff", 0.0) * entropy
    if not case.get("use_kl_loss"):
        return {"loss": loss, "metrics": metrics}
    kl = approximate_kl(found["log_prob"], found["ref_log_prob"], estimator(case.params["kl_loss_type"]), verl.KL)
    of_kl = aggregate(kl, mask, rule, totals)
    metrics |= {"kl_loss": of_kl, "kl_coef": case.params["kl_loss_coef"]}
    return {"loss": loss + case.params["kl_loss_coef"] * of_kl, "metrics": metrics}


ADAPTERS: dict[str, Adapter] = {
    "kl_penalty": kl_penalty,
    "agg_loss": agg_loss,
    **{f"policy_loss.{name}": partial(policy, name) for name in LOSSES},
    "value_loss": values,
    "rollout_correction": rollout_correction,
    "policy_loss.bypass_mode": bypass,
    "policy_loss.geo_mean": geo_mean,
    "workers.ppo_loss": ppo_loss,
}
