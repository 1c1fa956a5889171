"""How AReaL's recorded functions are recomputed."""

from collections.abc import Mapping
from dataclasses import dataclass, fields, replace
from typing import Any

from rollbook.replay.dialects import areal
from rollbook.replay.dialects.estimate import Rewarded, estimate
from rollbook.replay.dialects.loss import Bounds, Policies, policy_loss
from rollbook.replay.kernels.aggregate import aggregate
from rollbook.replay.kernels.array import Array, namespace
from rollbook.replay.kernels.correction import Reach, gather, is_within
from rollbook.replay.kernels.groups import Level, Singleton, normalize
from rollbook.replay.kernels.kl import PLAIN, approximate_kl
from rollbook.replay.kernels.masked import Masking, count, hide
from rollbook.replay.kernels.value_loss import Distance, value_loss
from rollbook.replay.kernels.whiten import whiten
from rollbook.tests.replay.goldens.case import Adapter, Case, Outputs, Refusal


def kl(case: Case) -> Outputs:
    rule = areal.KL if case.params["apply_clamp"] else PLAIN
    name = case.params["kl_estimator"]
    return {"kl": approximate_kl(case.inputs["log_probs"], case.inputs["log_probs_base"], name, rule)}


@dataclass(frozen=True, slots=True)
class Normalizer:
    """A NormConfig of AReaL's."""

    mean_level: str | None = "batch"
    mean_leave1out: bool = False
    std_level: str | None = "batch"
    std_unbiased: bool = True
    group_size: int = 1
    eps: float = 1e-5


def normalizer(params: Mapping[str, Any]) -> Normalizer:
    return Normalizer(**{field.name: params[field.name] for field in fields(Normalizer) if field.name in params})


def normalization(case: Case) -> Outputs:
    values, how = case.inputs["x"], normalizer(case.params)
    if case.get("masked"):
        return {"normalized": normalize_masked(values, case.inputs["loss_mask"] != 0, how)}
    return {"normalized": normalize_rows(values, how)}


def normalize_rows(values: Array, how: Normalizer) -> Array:
    """Rewards of rows. Rows left over by the size of a group have the mean and the deviation 0."""
    xp = namespace(values)
    rows = values.shape[0]
    groups, whole = xp.arange(rows) // how.group_size, rows // how.group_size * how.group_size
    singleton = Singleton.RAW if how.mean_leave1out else Singleton.ZERO
    ddof = 1 if how.std_unbiased else 0
    rule = replace(areal.GROUP, eps=how.eps, ddof=ddof, leave_one_out=how.mean_leave1out, singleton=singleton)
    precise = xp.astype(values, xp.float64)
    centred = precise
    if how.mean_level is not None:
        over = whole if how.mean_level == "group" else rows
        centring = replace(rule, mean=Level(how.mean_level), std=Level.NONE)
        head = normalize(precise[:over], groups[:over], centring) if over else precise[:0]
        centred = xp.concat([head, precise[over:]])
    if how.mean_level == "group":
        # Taken in double precision, a group's mean is kept in that of the rewards.
        mean = xp.astype(xp.astype(precise - centred, values.dtype), xp.float64)
        centred = precise - mean
    if how.std_level is None:
        return centred
    over = whole if how.std_level == "group" else rows
    scaling = replace(rule, mean=Level.NONE, std=Level(how.std_level))
    head = normalize(centred[:over], groups[:over], scaling) if over else centred[:0]
    return xp.concat([head, centred[over:] / how.eps])


def normalize_masked(values: Array, mask: Array, how: Normalizer) -> Array:
    """Tokens, all of them or those of each group of rows together."""
    xp = namespace(values, mask)
    if not bool(xp.any(mask)):
        return values
    values = xp.astype(values, xp.float64)
    share = xp.astype(mask, xp.float64)
    mean, deviation = xp.zeros_like(values), xp.zeros_like(values)
    for part in parts(values.shape[0], how.mean_level, how.group_size):
        mean[part, :] = mean_of(values[part, :] * share[part, :], share[part, :], how)
    if how.mean_level == "group" and how.mean_leave1out and how.group_size == 1:
        mean = xp.zeros_like(mean)
    centred = (values - mean) * share
    if how.std_level is None:
        return centred
    for part in parts(values.shape[0], how.std_level, how.group_size):
        squares = (values[part, :] * share[part, :] - mean[part, :] * share[part, :]) ** 2
        tokens = float(xp.sum(share[part, :])) - how.std_unbiased
        alone = how.std_level == "group" and how.std_unbiased and how.group_size == 1
        deviation[part, :] = 1.0 if tokens <= 0 or alone else xp.sqrt(xp.sum(squares) / tokens)
    return centred / (deviation + how.eps)


def parts(rows: int, level: str | None, size: int) -> list[slice]:
    if level is None:
        return []
    return [slice(0, rows)] if level == "batch" else [slice(at * size, (at + 1) * size) for at in range(rows // size)]


def mean_of(hidden: Array, share: Array, how: Normalizer) -> Array | float:
    xp = namespace(hidden)
    tokens, total = float(xp.sum(share)), xp.sum(hidden)
    if tokens <= how.mean_leave1out:
        return 0.0
    if not how.mean_leave1out:
        return total / tokens
    others = (total - hidden) / xp.clip(tokens - share, 1.0, None)
    return xp.where(share > 0, others, xp.zeros_like(others) + total / tokens)


def masked_normalization(case: Case) -> Outputs:
    """In double precision, the variance that of squares and sums."""
    rule = replace(areal.WHITENING, ddof=1 if case.params["unbiased"] else 0, eps=case.params["eps"], one_pass=True)
    mask = case.inputs["mask"] != 0
    xp = namespace(mask)
    values = hide(xp.astype(case.inputs["x"], xp.float64), mask, Masking.MULTIPLY)
    if float(count(mask, values)) <= rule.ddof:
        return {"out": values * float("nan")}
    return {"out": whiten(values, mask, rule)}


def actor_loss(case: Case) -> Outputs:
    found, params = case.inputs, case.params
    mask, prox, old = found["loss_mask"], found["proximal_logprobs"], found["old_logprobs"]
    xp = namespace(prox)
    if (dual := case.get("c_clip")) is not None and dual <= 1:
        raise Refusal("a dual clip of 1 or less")
    weights, within = behaviour(case)
    kept = mask & within if case.get("rs_action") == "mask" else mask
    rule = areal.GSPO if case.get("importance_sampling_level") == "sequence" else areal.PPO
    high = case.get("eps_clip_higher", params["eps_clip"])
    bounds = Bounds(low=params["eps_clip"], high=high, dual=dual)
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
        outputs["stat_behave_approx_kl"] = hide(prox - old, kept & (weights > 0))
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
    raw = case.inputs["proximal_logprobs"] - case.inputs["old_logprobs"]
    xp = namespace(raw)
    # A ratio that is no number corrects nothing; a KL that is none is rejected.
    logs = xp.where(xp.isfinite(raw), raw, xp.zeros_like(raw))
    if "rs_level" not in case.params:
        return None, mask
    of_rows, metric = case.params["rs_level"] == "sequence", case.params["rs_metric"]
    reach = REACHES[case.get("rs_agg", "mean")] if of_rows else Reach.TOKEN
    if metric == "ratio":
        weights = xp.exp(gather(logs, mask, Reach.SEQ_MEAN if of_rows else Reach.TOKEN))
        value = xp.exp(gather(logs, mask, reach))
    else:
        weights = xp.exp(logs)
        value = gather(approximate_kl(raw, xp.zeros_like(raw), metric.removeprefix("kl_")), mask, reach)
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
        "loss": aggregate(loss.losses, found["loss_mask"], areal.VALUE_MEAN),
        "stat_clip_mask": loss.clipped & found["loss_mask"],
    }


def advantages(case: Case) -> Outputs:
    found, params = case.inputs, case.params
    xp = namespace(found["rewards"])
    mask = xp.roll(found["loss_mask"], -1, axis=1) != 0
    share = xp.astype(mask, found["rewards"].dtype)
    is_recomputed = params["recompute_logprob"] and not params["use_decoupled_loss"]
    log_probs = share * (found["prox_logp"] if is_recomputed else xp.roll(found["logprobs"], -1, axis=1))
    rewards = xp.clip(
        (found["rewards"] + params["reward_bias"]) * params["reward_scaling"],
        -params["reward_clip"],
        params["reward_clip"],
    )
    if params["reward_norm"]:
        rewards = xp.astype(normalize_rows(rewards, levels(params, "reward_norm")), rewards.dtype)
    lengths = xp.sum(found["attention_mask"], axis=1)
    if params["mask_no_eos_with_zero"]:
        rewards = xp.where(lengths == mask.shape[1], xp.zeros_like(rewards), rewards)
    kl_rewards = -params["kl_ctl"] * approximate_kl(
        log_probs, found["ref_logp"] * share, params["kl_estimator"], areal.KL
    )
    at = xp.arange(mask.shape[1])[None, :]
    nothing = xp.zeros_like(kl_rewards)
    total = xp.where(at == lengths[:, None] - 1, nothing, kl_rewards)
    end = at == xp.clip(lengths[:, None] - 2, 0, None)
    total = total + xp.where(end, rewards[:, None] + nothing, nothing)
    # The last column is no token that was acted at: nothing comes from behind it.
    inner = Rewarded(
        total[:, :-1], mask[:, :-1], values=nothing[:, :-1], gamma=params["discount"], lam=params["gae_lambda"]
    )
    advantage = xp.concat([estimate(inner, areal.GAE)[0], nothing[:, :1]], axis=1)
    returns = advantage
    if params["adv_norm"]:
        advantage = normalize_masked(advantage, mask, levels(params, "adv_norm"))
    return {
        "advantages": advantage,
        "returns": returns,
        "kl_rewards": kl_rewards,
        "tot_rewards": total,
        "loss_mask": share,
        "logprobs": log_probs,
    }


def levels(params: Mapping[str, Any], name: str) -> Normalizer:
    return Normalizer(mean_level=params[name][0], std_level=params[name][1], group_size=params["group_size"])


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
