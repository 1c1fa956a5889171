"""How verl's recorded functions are recomputed: advantages and rewards here, losses in verl_losses."""

from dataclasses import replace
from functools import partial

from rollbook.replay.dialects import verl
from rollbook.replay.dialects.estimate import Rewarded, estimate
from rollbook.replay.dialects.rules import AdvantageRule
from rollbook.replay.kernels.array import namespace
from rollbook.replay.kernels.groups import Level
from rollbook.replay.kernels.kl import approximate_kl
from rollbook.replay.kernels.masked import count, hide, masked_mean, masked_variance
from rollbook.replay.kernels.whiten import whiten
from rollbook.tests.replay.goldens import verl_losses
from rollbook.tests.replay.goldens.case import Adapter, Case, Outputs, Refusal, labels, plain
from rollbook.tests.replay.goldens.compare import cancellation
from rollbook.tests.replay.goldens.verl_losses import estimator


def advantages(rule: AdvantageRule, case: Case) -> Outputs:
    found = case.inputs
    if rule.normalization and case.get("norm_adv_by_std_in_grpo") is False:
        rule = replace(rule, normalization=replace(rule.normalization, std=Level.NONE))
    elif rule.normalization and case.get("epsilon"):
        rule = replace(rule, normalization=replace(rule.normalization, eps=case.get("epsilon")))
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
        allowed = cancellation(
            scores, given.group_index, rule.normalization.std is Level.GROUP or rule.whitening is not None
        )
    return {"advantages": advantage, "returns": returns, "allowed": allowed}


def trainer_advantages(case: Case) -> Outputs:
    rules = {
        "grpo": verl.GRPO,
        "grpo_vectorized": verl.GRPO_VECTORIZED,
        "rloo": verl.RLOO,
        "rloo_vectorized": verl.RLOO_VECTORIZED,
        "reinforce_plus_plus": verl.REINFORCE_PLUS_PLUS,
        "reinforce_plus_plus_baseline": verl.REINFORCE_PLUS_PLUS_BASELINE,
        "gae": verl.GAE,
    }
    return advantages(rules[case.params["adv_estimator"]], case)


def apply_kl_penalty(case: Case) -> Outputs:
    found = case.inputs
    mask = found["response_mask"] != 0
    xp = namespace(mask)
    as_float = xp.astype(mask, xp.float64)
    name = estimator(case.params["kl_penalty"])
    kl = approximate_kl(found["old_log_probs"], found["ref_log_prob"], name, verl.KL) * as_float
    coef = case.params["kl_coef"]
    now = xp.mean(xp.sum(hide(kl, mask), axis=1) / (xp.sum(as_float, axis=1) + 1e-8))
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
    """A session's reward is that of its last row; every row of the session gets its advantage. Other
    estimators see every row."""
    keys = [key.rsplit("_", 2) for key in case.inputs["keys"]]
    prompts = [prompt for prompt, _, _ in keys]
    if case.params["adv_estimator"] != "grpo":
        return trainer_advantages(replace(case, inputs={**case.inputs, "uid": case.inputs.get("uid", prompts)}))
    rewards, mask = case.inputs["token_level_rewards"], case.inputs["response_mask"] != 0
    xp = namespace(rewards)
    last: dict[str, tuple[int, int]] = {}
    for row, (prompt, session, index) in enumerate(keys):
        name = f"{prompt}_{session}"
        if name not in last or last[name][0] < int(index):
            last[name] = int(index), row
    rows = [row for _, row in last.values()]
    chosen = xp.asarray(rows)
    of_last = {
        "token_level_rewards": xp.take(rewards, chosen, axis=0),
        "response_mask": xp.take(mask, chosen, axis=0),
        "index": [prompts[row] for row in rows],
    }
    found = advantages(verl.GRPO, replace(case, inputs=of_last))
    names = list(last)
    # A last row without tokens has no advantage to give.
    first = xp.argmax(xp.astype(of_last["response_mask"], xp.int64), axis=1)
    of_row = found["advantages"][xp.arange(len(rows)), first]
    at = xp.asarray([names.index(f"{prompt}_{session}") for prompt, session, _ in keys])
    spread = xp.take(of_row, at, axis=0)[:, None] * xp.astype(mask, of_row.dtype)
    return {"advantages": spread, "returns": spread, "allowed": found["allowed"]}


ADAPTERS: dict[str, Adapter] = {
    "adv.grpo": partial(advantages, verl.GRPO),
    "adv.grpo_vectorized": partial(advantages, verl.GRPO_VECTORIZED),
    "adv.rloo": partial(advantages, verl.RLOO),
    "adv.rloo_vectorized": partial(advantages, verl.RLOO_VECTORIZED),
    "adv.reinforce_plus_plus": partial(advantages, verl.REINFORCE_PLUS_PLUS),
    "adv.reinforce_plus_plus_baseline": partial(advantages, verl.REINFORCE_PLUS_PLUS_BASELINE),
    "adv.gae": partial(advantages, verl.GAE),
    "trainer.compute_advantage": trainer_advantages,
    "trainer.compute_advantage_for_multi_trajectories": last_rows,
    "trainer.apply_kl_penalty": apply_kl_penalty,
    "compute_rewards": compute_rewards,
    "masked_whiten": masked_whiten,
    "masked_stats": masked_stats,
    **verl_losses.ADAPTERS,
}
IGNORED: dict[str, dict[str, str]] = {
    "rollout_correction": {"metrics": "figures that verl logs about sampler and trainer, no part of a loss"},
    "policy_loss.bypass_mode": {"metrics.rollout_corr/": "figures that verl logs, no part of a loss"},
}
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
