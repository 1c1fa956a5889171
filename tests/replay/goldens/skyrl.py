"""How SkyRL's recorded functions are recomputed."""

from dataclasses import replace
from functools import partial

from rollbook.replay.dialects import skyrl
from rollbook.replay.dialects.estimate import Rewarded, estimate
from rollbook.replay.dialects.loss import Bounds, Policies, policy_loss
from rollbook.replay.dialects.rules import AdvantageRule, LossRule
from rollbook.replay.kernels.aggregate import aggregate
from rollbook.replay.kernels.array import Array, constant, namespace
from rollbook.replay.kernels.correction import (
    Outside,
    Reach,
    Weighting,
    importance_weights,
    is_within,
    log_weights,
)
from rollbook.replay.kernels.groups import Level
from rollbook.replay.kernels.kl import approximate_kl
from rollbook.replay.kernels.masked import Masking, count, hide
from rollbook.replay.kernels.surrogate import log_ratio, reinforce
from rollbook.replay.kernels.value_loss import value_loss
from rollbook.tests.replay.goldens.case import Adapter, Case, Outputs, Refusal, labels, plain
from rollbook.tests.replay.goldens.compare import cancellation


def advantages(rule: AdvantageRule, case: Case) -> Outputs:
    found = case.inputs
    if rule.normalization and case.get("grpo_norm_by_std") is False:
        rule = skyrl.DR_GRPO
    elif rule.normalization and case.get("epsilon"):
        rule = replace(rule, normalization=replace(rule.normalization, eps=case.get("epsilon")))
    given = Rewarded(
        found["token_level_rewards"],
        found["response_mask"] != 0,
        group_index=labels(found["index"], found["token_level_rewards"]) if "index" in found else None,
        values=found.get("values"),
        gamma=case.get("gamma", 1.0),
        lam=case.get("lambd", 1.0),
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


def kl(case: Case) -> Outputs:
    name = case.params["kl_estimator_type"]
    found = approximate_kl(case.inputs["log_probs"], case.inputs["log_probs_base"], name, skyrl.KL)
    mask = case.inputs.get("loss_mask")
    return {"kl": found if mask is None else hide(found, mask != 0)}


def bounds_of(case: Case) -> Bounds:
    return Bounds(
        low=case.get("cispo_eps_clip_low", case.params["eps_clip_low"]),
        high=case.get("cispo_eps_clip_high", case.params["eps_clip_high"]),
        dual=case.get("clip_ratio_c"),
        positive=case.get("tau_pos", 1.0),
        negative=case.get("tau_neg", 1.05),
    )


def share(where: Array, mask: Array) -> Array:
    xp = namespace(where, mask)
    return xp.sum(xp.astype(where & mask, xp.float64)) / xp.clip(count(mask, xp.zeros(1)), 1.0, None)


def policy(rule: LossRule, case: Case) -> Outputs:
    found = case.inputs
    mask = found["loss_mask"] != 0
    anchor = found["rollout_logprobs"] if case.get("cispo_anchor") == "rollout" else found["old_log_probs"]
    weights, kept = corrected(case, mask)
    given = Policies(found["log_probs"], anchor, found["advantages"], mask, weights=weights)
    loss = policy_loss(given, rule, bounds_of(case))
    summed = aggregate(loss.losses, kept, rule.aggregation)
    # SkyRL asks whether a ratio lies outside, which one that is no number does not.
    clipped = loss.clipped & ~namespace(mask).isnan(loss.ratios)
    return {"loss": summed, "metrics": {"clip_ratio": share(clipped, mask)}}


def corrected(case: Case, mask: Array) -> tuple[Array | None, Array]:
    """(weights, loss mask) against the sampler's log-probs."""
    old, sampler = case.inputs["old_log_probs"], case.inputs["rollout_logprobs"]
    weights = None
    if kind := case.get("tis_ratio_type"):
        reach = Reach.TOKEN if kind == "token" else Reach.SEQ_SUM
        logs = log_weights(old, sampler, mask, reach, limit=skyrl.IMPORTANCE_LIMIT, masking=Masking.MULTIPLY)
        weights = importance_weights(logs, Weighting(most=case.params[f"{kind}_tis_ratio_clip_high"]))
    return weights, mask & accepted(case, mask)


def accepted(case: Case, mask: Array) -> Array:
    xp = namespace(mask)
    old, sampler = case.inputs["old_log_probs"], case.inputs["rollout_logprobs"]
    kept = xp.ones_like(mask)

    def ratios(reach: Reach) -> Array:
        return xp.exp(log_weights(old, sampler, mask, reach, limit=20.0, masking=Masking.MULTIPLY))

    if metric := case.get("sequence_mask_metric"):
        reach, name = (Reach.SEQ_MEAN, "geo") if metric == "geometric" else (Reach.SEQ_SUM, "product")
        found = ratios(reach)
        # Said as what is rejected: a row whose masked tokens hold a NaN stays.
        kept = kept & ~((found < case.params[f"{name}_mask_low"]) | (found > case.params[f"{name}_mask_high"]))
    if (low := case.get("outlier_token_is_threshold_low")) is not None:
        inside = is_within(ratios(Reach.TOKEN), low, case.params["outlier_token_is_threshold_high"])
        kept = kept & xp.all(inside | ~mask, axis=1, keepdims=True)
    if (low := case.get("token_mask_is_threshold_low")) is not None:
        kept = kept & is_within(ratios(Reach.TOKEN), low, case.params["token_mask_is_threshold_high"])
    return kept


def reduced(case: Case) -> Outputs:
    values, mask = case.inputs["advantages"], case.inputs["loss_mask"] != 0
    xp = namespace(values)
    lengths, rows = xp.clip(count(mask, values, axis=1, keepdims=True), 1.0, None), float(values.shape[0])
    nothing = xp.zeros_like(values)
    spans: list[tuple[int, int]]
    match case.params["loss_reduction"]:
        case "token_mean":
            return {"advantages": values / xp.clip(count(mask, values), 1.0, None)}
        case "sequence_mean":
            return {"advantages": values / (rows * lengths)}
        case "seq_mean_token_sum_norm":
            return {"advantages": values / (rows * case.params["max_seq_len"])}
        case "token_mean_legacy":
            size = case.params["micro_batch_size"]
            spans = [(start * size, (start + 1) * size) for start in range(values.shape[0] // size)]
        case "prompt_mean":
            if case.get("prompt_boundaries") is None:
                raise Refusal("the rows of each prompt are needed")
            spans = case.params["prompt_boundaries"]
        case _:
            raise Refusal("no such reduction")
    # Rows of no part have zeros.
    for start, end in spans:
        nothing[start:end] = values[start:end] / (len(spans) * xp.clip(count(mask[start:end], values), 1.0, None))
    return {"advantages": nothing}


def critic(case: Case) -> Outputs:
    found = case.inputs
    mask = found["loss_mask"] != 0
    loss = value_loss(found["values"], found["old_values"], found["returns"], clip=case.params["value_clip"])
    clipped = None if case.params["value_clip"] is None else share(loss.clipped, mask)
    return {"loss": aggregate(loss.losses, mask, skyrl.SEQ_MEAN), "clipfrac": clipped}


def rollout_is(case: Case) -> Outputs:
    """REINFORCE whose weight is the ratio to the sampler, zero outside a band."""
    found, bounds = case.inputs, bounds_of(case)
    mask = found["loss_mask"] != 0
    logs = log_weights(found["log_probs"], found["rollout_logprobs"], mask, Reach.TOKEN, limit=skyrl.IMPORTANCE_LIMIT)
    rule = Weighting(least=1 - bounds.low, most=1 + bounds.high, outside=Outside.ZERO)
    weights = constant(importance_weights(logs, rule))
    loss = aggregate(reinforce(found["log_probs"], found["advantages"]) * weights, mask, skyrl.SUM)
    return {"loss": loss, "metrics": {"clip_ratio": share(weights == 0, mask)}}


def importance_sampling(case: Case) -> Outputs:
    found = case.inputs
    mask = found["loss_mask"] != 0
    xp = namespace(mask)
    ratio = xp.exp(log_ratio(found["log_probs"], found["old_log_probs"]))
    mean = xp.sum(hide(ratio, mask, Masking.MULTIPLY)) / count(mask, ratio)
    return {"loss": aggregate(-ratio * found["advantages"], mask, skyrl.SUM), "metrics": {"importance_ratio": mean}}


ADAPTERS: dict[str, Adapter] = {
    "adv.grpo": partial(advantages, skyrl.GRPO),
    "adv.rloo": partial(advantages, skyrl.RLOO),
    "adv.reinforce++": partial(advantages, skyrl.REINFORCE_PLUS_PLUS),
    "adv.gae": partial(advantages, skyrl.GAE),
    "compute_approx_kl": kl,
    "policy_loss.regular": partial(policy, skyrl.PPO),
    "policy_loss.dual_clip": partial(policy, skyrl.DUAL_CLIP),
    "policy_loss.gspo": partial(policy, skyrl.GSPO),
    "policy_loss.sapo": partial(policy, skyrl.SAPO),
    "policy_loss.cispo": partial(policy, skyrl.CISPO),
    "policy_loss.rollout_is": rollout_is,
    "policy_loss.importance_sampling": importance_sampling,
    "apply_loss_reduction_to_advantages_minibatch": reduced,
    "ppo_critic_loss": critic,
}

_LOGGED = {
    f"metrics.{name}": "figures that SkyRL logs about sampler and trainer, no part of a loss"
    for name in ("is_ratio_", "tis_", "geo_sequence_", "product_sequence_", "outlier_", "token_mask_")
}
_CISPO = {"metrics.cispo/": "figures that SkyRL logs, no part of a loss"}
IGNORED: dict[str, dict[str, str]] = {
    **{f"policy_loss.{name}": _LOGGED for name in ("regular", "dual_clip", "gspo", "sapo")},
    "policy_loss.cispo": {**_LOGGED, **_CISPO},
}
"""Outputs that are not recomputed, by function, and why."""

_LOSS = "a policy loss that format 1.1.0 does not name"
UNSUPPORTED: dict[str, str] = {
    "adv.maxrl": "an estimator that format 1.1.0 does not name",
    **{f"policy_loss.{name}": _LOSS for name in ("dppo", "kl_cov", "clip_cov", "cross_entropy")},
}
