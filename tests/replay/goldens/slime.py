"""How slime's recorded functions are recomputed."""

from dataclasses import replace
from typing import Any

from rollbook.replay.dialects import slime
from rollbook.replay.dialects.estimate import Rewarded, estimate
from rollbook.replay.dialects.loss import Bounds, Policies, policy_loss
from rollbook.replay.dialects.rules import AdvantageRule, LossRule
from rollbook.replay.kernels.aggregate import aggregate
from rollbook.replay.kernels.array import Array, constant, namespace
from rollbook.replay.kernels.correction import Outside, Weighting, importance_weights
from rollbook.replay.kernels.groups import normalize
from rollbook.replay.kernels.kl import approximate_kl
from rollbook.replay.kernels.masked import Masking, count, hide
from rollbook.replay.kernels.surrogate import sequence_mean
from rollbook.replay.kernels.whiten import Whitening, whiten
from rollbook.tests.replay.goldens.case import Adapter, Case, Outputs, Refusal
from rollbook.tests.replay.goldens.compare import cancellation


def kl(case: Case) -> Outputs:
    found = case.inputs
    return {"kl": weighted_kl(case, found["log_probs"], found["log_probs_base"], found.get("importance_ratio"))}


def weighted_kl(case: Case, log_probs: Array, reference: Array, ratio: Array | None) -> Array:
    """The estimate times the importance ratio where there is one; low_var_kl is clamped after that."""
    xp = namespace(log_probs)
    name = case.params["kl_loss_type"]
    estimate_of = approximate_kl(log_probs, reference, name)
    if ratio is not None:
        estimate_of = ratio * estimate_of
    if name in slime.KL.limited and slime.KL.value_limit is not None:
        estimate_of = xp.clip(estimate_of, -slime.KL.value_limit, slime.KL.value_limit)
    return estimate_of


_NORMALIZED = ("grpo", "gspo", "cispo", "reinforce_plus_plus_baseline")


def post_process_rewards(case: Case) -> Outputs:
    raw = case.inputs["raw_rewards"]
    xp = namespace(raw)
    name, size = case.params["advantage_estimator"], case.params["n_samples_per_prompt"]
    if name not in _NORMALIZED or not case.params["rewards_normalization"]:
        return {"rewards": raw}
    whole = size * case.params["rollout_batch_size"] == raw.shape[0]
    groups = xp.arange(raw.shape[0]) // (size if whole else raw.shape[0])
    divided = name != "reinforce_plus_plus_baseline" and case.params["grpo_std_normalization"]
    rule = slime.REWARDS if divided else slime.CENTRED_REWARDS
    return {"rewards": normalize(raw, groups, rule), "allowed": cancellation(raw, groups, divided)}


def inside(case: Case) -> Array:
    """Where a row has a token at all."""
    lengths = case.inputs["response_lengths"]
    width = case.inputs["log_probs"].shape[1]
    return namespace(lengths).arange(width)[None, :] < lengths[:, None]


def advantages(case: Case) -> Outputs:
    found, name, coefficient = case.inputs, case.params["advantage_estimator"], case.params["kl_coef"]
    xp = namespace(found["rewards"])
    there = inside(case)
    mask = (found["loss_masks"] != 0) & there
    estimate_of = xp.zeros_like(found["log_probs"])
    if coefficient != 0:
        estimate_of = weighted_kl(case, found["log_probs"], found["ref_log_probs"], None)
    columns = xp.arange(there.shape[1])[None, :]
    end = columns == found["response_lengths"][:, None] - 1
    rewards = found["rewards"][:, None]
    repeated = xp.broadcast_to(rewards, there.shape)
    nothing = xp.zeros_like(estimate_of)
    penalty = xp.where(there, -coefficient * estimate_of, nothing)
    rule, tokens = RULES[name], penalty
    if name in ("grpo", "gspo", "cispo"):
        advantage, returns = repeated, repeated
    elif name == "reinforce_plus_plus_baseline":
        advantage = repeated + penalty
        returns = advantage
    else:
        if name == "reinforce_plus_plus":
            if not bool(xp.all(xp.any(mask, axis=1))):
                raise Refusal("a row whose tokens are all masked")
            penalty = hide(penalty, mask, Masking.MULTIPLY)
            end = columns == xp.max(xp.where(mask, columns + 0 * xp.astype(mask, xp.int64), -1), axis=1)[:, None]
        tokens = penalty + xp.where(end, repeated, nothing)
        values = xp.where(there, found["values"], nothing) if "values" in found else None
        gamma, lam = case.params["gamma"], case.params["lambd"]
        advantage, returns = estimate(Rewarded(tokens, mask, values=values, gamma=gamma, lam=lam), rule)
    if case.params["normalize_advantages"]:
        advantage = whitened(advantage, mask, slime.WHITENING)
    return {"advantages": advantage[there], "returns": returns[there], "kl": estimate_of[there]}


RULES: dict[str, AdvantageRule] = {
    **dict.fromkeys(("grpo", "gspo", "cispo"), slime.REPEAT),
    "reinforce_plus_plus_baseline": slime.REPEAT,
    "reinforce_plus_plus": slime.RETURNS,
    "ppo": slime.GAE,
}
LOSSES: dict[str, LossRule] = {"grpo": slime.PPO, "gspo": slime.GSPO, "cispo": slime.CISPO}


def policy(case: Case) -> Outputs:
    found, params = case.inputs, case.params
    xp = namespace(found["log_probs"])
    there = inside(case)
    mask = (found["loss_masks"] != 0) & there
    cut = {
        name: xp.where(there, value, xp.zeros_like(value)) for name, value in found.items() if value.shape == mask.shape
    }
    old = cut["rollout_log_probs"] if params["use_rollout_logprobs"] else cut["old_log_probs"]
    sampled = cut["log_probs"] if params["use_rollout_logprobs"] else old
    rule = LOSSES.get(params["advantage_estimator"], slime.PPO)
    if params["calculate_per_token_loss"]:
        rule = replace(rule, aggregation=slime.SUM)
    if rule.dual and params["eps_clip_c"] is not None and params["eps_clip_c"] <= 1:
        raise Refusal("a dual clip of 1 or less")
    bounds = Bounds(low=params["eps_clip"], high=params["eps_clip_high"], dual=params["eps_clip_c"])
    loss = policy_loss(Policies(cut["log_probs"], old, cut["advantages"], mask), rule, bounds)
    losses, metrics = loss.losses, {}

    def reduced(values: Array) -> Array:
        return aggregate(xp.astype(values, losses.dtype), mask, rule.aggregation)

    if params["use_opsm"]:
        dropped = (cut["advantages"] < 0) & (sequence_mean(old - cut["log_probs"], mask) > params["opsm_delta"])
        losses = losses * xp.astype(~dropped, losses.dtype)
        rows = xp.clip(count(mask, losses, axis=1), 1.0, None)
        metrics["opsm_clipfrac"] = xp.sum(xp.sum(xp.astype(dropped, losses.dtype), axis=1) / rows)
    if params["use_tis"]:
        raw = xp.exp(cut["old_log_probs"] - cut["rollout_log_probs"])
        weighting = Weighting(
            least=params["tis_clip_low"],
            most=params["tis_clip"],
            outside=Outside.ZERO if case.get("icepop") else Outside.TRUNCATE,
        )
        weights = importance_weights(cut["old_log_probs"] - cut["rollout_log_probs"], weighting)
        losses = losses * weights
        outside = weights != raw
        metrics |= {"tis": reduced(raw), "tis_clipfrac": reduced(outside), "tis_abs": reduced(xp.abs(raw - 1))}
        metrics["ois"] = reduced(loss.ratios)
    pg_loss, entropy = reduced(losses), reduced(cut["entropy"])
    total = pg_loss - params["entropy_coef"] * entropy
    if params["use_kl_loss"]:
        ratio = xp.exp(cut["log_probs"] - old) if params["use_unbiased_kl"] else None
        of_kl = reduced(weighted_kl(case, cut["log_probs"], cut["ref_log_probs"], ratio))
        metrics["kl_loss"] = of_kl
        total = total + params["kl_loss_coef"] * of_kl
    metrics |= {
        "loss": total,
        "pg_loss": pg_loss,
        "entropy_loss": entropy,
        "pg_clipfrac": reduced(loss.clipped),
        "ppo_kl": reduced(kl_of(loss.log_ratios, mask, case)),
        "train_rollout_logprob_abs_diff": reduced(xp.abs(sampled - cut["rollout_log_probs"])),
    }
    return {"loss": total, "metrics": metrics}


def kl_of(log_ratios: Array, mask: Array, case: Case) -> Array:
    if case.params["advantage_estimator"] == "gspo":
        return 0 * log_ratios - constant(sequence_mean(log_ratios, mask))
    return -log_ratios


def masked_whiten(case: Case) -> Outputs:
    rule = replace(slime.WHITENING, shift=case.params["shift_mean"], eps=case.params["epsilon"])
    return {"whitened": whitened(case.inputs["values"], case.inputs["mask"] != 0, rule)}


def whitened(values: Array, mask: Array, rule: Whitening) -> Array:
    try:
        return whiten(values, mask, rule)
    except ValueError as error:
        raise Refusal(str(error)) from error


ADAPTERS: dict[str, Adapter] = {
    "compute_approx_kl": kl,
    "post_process_rewards": post_process_rewards,
    "compute_advantages_and_returns": advantages,
    "policy_loss_function": policy,
    "distributed_masked_whiten": masked_whiten,
}
UNSUPPORTED: dict[str, str] = {}
IGNORED: dict[str, dict[str, Any]] = {}
