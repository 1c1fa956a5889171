"""How TRL's recorded training runs are recomputed: the advantages of a generation, the loss of each micro step."""

from collections.abc import Iterator, Mapping
from typing import Any

from rollbook.producers.trl.conventions import loss_name
from rollbook.replay.dialects import trl
from rollbook.replay.dialects.additions import Additions, OffPolicy, Penalty, Uncertain
from rollbook.replay.dialects.estimate import Rewarded, estimate
from rollbook.replay.dialects.loss import Bounds, Policies, mean_entropy, policy_loss
from rollbook.replay.dialects.rules import AdvantageRule
from rollbook.replay.kernels.aggregate import Totals
from rollbook.replay.kernels.array import Array, constant, namespace
from rollbook.replay.kernels.correction import Outside, Reach, Weighting, gather, importance_weights
from rollbook.replay.kernels.surrogate import Gamma
from rollbook.tests.replay.goldens.case import Adapter, Case, Outputs
from rollbook.tests.replay.goldens.compare import cancellation

Raw = Mapping[str, Any]


def cases(document: Raw) -> Iterator[dict[str, Any]]:
    """What a training run recorded, as calls: its advantages, its importance ratios, its losses."""
    if "cases" in document:
        yield from document["cases"]
        return
    params = {**document["config"], **document["effective"]}
    for at, generation in enumerate(document["generations"]):
        common = {"id": f"trl/{document['id']}/generation/{at}", "params": params}
        inputs = {name: generation[name] for name in ("rewards_per_func", "reward_weights", "group_index")}
        outputs = {"advantages": generation["advantages"]}
        yield {**common, "function": _advantages(params), "inputs": inputs, "outputs": outputs}
        if generation["importance_sampling_ratio"] is not None:
            inputs = {
                "old": generation["old_per_token_logps"],
                "sampler": generation["sampling_per_token_logps"],
                "mask": _mask(generation),
            }
            outputs = {"importance_sampling_ratio": generation["importance_sampling_ratio"]}
            yield {**common, "function": "importance_sampling_ratio", "inputs": inputs, "outputs": outputs}
    for step in document["micro_steps"]:
        yield _micro_step(document, step, params)


def _advantages(params: Raw) -> str:
    return "advantages" if params["multi_objective_aggregation"] == "sum_then_normalize" else "advantages, gdpo"


def _loss(params: Raw) -> str:
    """The function's name; an adaptive bonus has one of its own."""
    return "compute_loss, adaptive entropy" if params["use_adaptive_entropy"] else f"compute_loss.{params['loss_type']}"


def _mask(generation: Raw) -> list[list[int]]:
    written = generation["completion_mask"]
    rows = zip(written, generation["tool_mask"] or written, strict=True)
    return [[one * other for one, other in zip(*pair, strict=True)] for pair in rows]


def _micro_step(document: Raw, step: Raw, params: Raw) -> dict[str, Any]:
    generation = document["generations"][step["generation_index"]]
    rows = [generation["row_uid"].index(uid) for uid in step["row_uid"]]

    def chosen(values: list[Any] | None) -> list[Any] | None:
        return None if values is None else [values[row] for row in rows]

    inputs = {
        "per_token_logps": step["per_token_logps"],
        "old": chosen(generation["old_per_token_logps"]),
        "reference": chosen(generation["ref_per_token_logps"]),
        "advantages": chosen(generation["advantages"]),
        "weights": chosen(generation["importance_sampling_ratio"]),
        "mask": chosen(_mask(generation)),
        "entropies": step["entropies"],
        "sampler": chosen(generation["sampling_per_token_logps"]),
    }
    return {
        "id": f"trl/{document['id']}/micro_step/{step['micro_step']}",
        "function": _loss(params),
        "params": {
            **params,
            "num_items_in_batch": generation["num_items_in_batch"],
            "accumulated": step["current_gradient_accumulation_steps"],
        },
        "inputs": {name: value for name, value in inputs.items() if value is not None},
        "outputs": {"loss": step["loss"], "grad_per_token_logps": step["grad_per_token_logps"]},
    }


SCALES: dict[str, AdvantageRule] = {"group": trl.GRPO, "none": trl.CENTRED, "batch": trl.BATCH_SCALED}


def weighted(rewards: Array, weights: Array) -> Array:
    """The weighted sum of a row's rewards; one that a function has no opinion on is left out."""
    xp = namespace(rewards)
    return xp.sum(xp.where(xp.isnan(rewards), xp.zeros_like(rewards), rewards) * weights, axis=1)


def advantages(case: Case) -> Outputs:
    """A row that no function has an opinion on is no part of its group, and has the advantage 0."""
    per_function = case.inputs["rewards_per_func"]
    xp = namespace(per_function)
    known, scale = ~xp.all(xp.isnan(per_function), axis=1), case.params["scale_rewards"]
    advantage = xp.zeros_like(per_function[:, 0])
    if not bool(xp.any(known)):
        return {"advantages": advantage}
    rewards, groups = weighted(per_function, case.inputs["reward_weights"])[known], case.inputs["group_index"][known]
    given = Rewarded(rewards[:, None], xp.ones_like(rewards[:, None], dtype=xp.bool), groups)
    found = estimate(given, SCALES[scale])[0][:, 0]
    advantage[known] = found
    return {"advantages": advantage, "allowed": cancellation(rewards, groups, scale != "none")}


def importance_sampling_ratio(case: Case) -> Outputs:
    """Of tokens, or as a column of rows; a token whose sampler gave no number is not corrected."""
    mask = case.inputs["mask"] != 0
    logs = case.inputs["old"] - case.inputs["sampler"]
    xp = namespace(logs)
    of, what = case.params["vllm_importance_sampling_mode"].split("_")
    known = xp.where(xp.isnan(logs) | ~mask, xp.zeros_like(logs), logs)
    prefix = "vllm_importance_sampling_clip"
    rule = Weighting(
        least=case.params[f"{prefix}_min"],
        most=case.params[f"{prefix}_max"],
        outside=Outside.ZERO if what == "mask" else Outside.TRUNCATE,
    )
    found = importance_weights(gather(known, mask, Reach.SEQ_SUM if of == "sequence" else Reach.TOKEN), rule)
    return {"importance_sampling_ratio": found[:, :1] if of == "sequence" else found}


_KINDS = ("grpo", "bnpo", "dapo", "dr_grpo", "cispo", "sapo", "luspo", "vespo")


def bounds_of(params: Raw) -> Bounds:
    return Bounds(
        low=params["epsilon_low"],
        high=params["epsilon_high"],
        positive=params["sapo_temperature_pos"],
        negative=params["sapo_temperature_neg"],
        most=params["delta"],
        gamma=Gamma(*(params[f"vespo_{name}"] for name in ("k_pos", "lambda_pos", "k_neg", "lambda_neg"))),
    )


def totals_of(params: Raw) -> Totals:
    """A micro-batch's part of its step."""
    if params["loss_type"] not in ("dapo", "cispo", "vespo"):
        return Totals(length=params["max_completion_length"], ranks=1 / params["accumulated"])
    # An optimizer step's share of the tokens of the whole generation, which feeds several.
    share = params["accumulated"] / params["steps_per_generation"]
    return Totals(tokens=max(params["num_items_in_batch"], 1.0) / params["world_size"] * share)


def compute_loss(case: Case) -> Outputs:
    found, params = case.inputs, case.params
    mask, new = found["mask"] != 0, found["per_token_logps"]
    old = found.get("old", constant(new))
    xp = namespace(new)
    rule = trl.LOSSES[loss_name(params["loss_type"], params["importance_sampling_level"])]
    penalty = None
    if params["beta"]:
        by_ratio = params["use_bias_correction_kl"]
        penalty = Penalty(found["reference"], "k3", params["beta"], by_ratio=by_ratio, rule=trl.KL)
    off_policy, uncertain, entropies = None, None, found["entropies"]
    if (threshold := params["off_policy_mask_threshold"]) is not None:
        behavior = found.get("sampler", constant(old))
        off_policy = OffPolicy(xp.where(xp.isnan(behavior), constant(new), behavior), threshold)
    if params["top_entropy_quantile"] < 1:
        uncertain = Uncertain(entropies, params["top_entropy_quantile"])
    spread = xp.broadcast_to(found["advantages"][:, None], new.shape)
    given = Policies(new, old, spread, mask, weights=_spread(found.get("weights"), new))
    totals, additions = totals_of(params), Additions(penalty, off_policy, uncertain)
    loss = policy_loss(given, rule, bounds_of(params), totals, additions)
    bonus = params["entropy_coef"] / params["accumulated"] * mean_entropy(entropies, given, loss.uncertain)
    return {"loss": loss.loss - bonus}


def _spread(weights: Array | None, like: Array) -> Array | None:
    """Weights of rows, a column, as those of their tokens."""
    return None if weights is None else namespace(like).broadcast_to(weights, like.shape)


def score_group(case: Case) -> Outputs:
    """A conversation's forks share its reward; one without any reward has the advantage 0."""
    per_function = case.inputs["rewards_per_func"]
    xp = namespace(per_function)
    known = ~xp.all(xp.isnan(per_function), axis=0)
    rewards = weighted(per_function.T, xp.ones_like(per_function[:, 0]))
    of = rewards[known]
    advantage, spread = xp.zeros_like(rewards), xp.full_like(rewards, xp.nan)
    if of.shape[0]:
        given = Rewarded(of[:, None], xp.ones_like(of[:, None], dtype=xp.bool), xp.zeros_like(of, dtype=xp.int64))
        advantage[known] = estimate(given, trl.ASYNC_GRPO)[0][:, 0]
        spread[:] = xp.std(of, correction=0)
    forks = case.params["forks_per_conversation"]
    rows = xp.asarray([row for row, times in enumerate(forks) for _ in range(times)])
    return {
        "advantages": advantage[rows],
        "reward": xp.where(known, rewards, xp.full_like(rewards, xp.nan))[rows],
        "reward_std": spread[rows],
        "n_rows": sum(forks),
        "allowed": cancellation(of, xp.zeros_like(of), True) if of.shape[0] else 0.0,
    }


def async_loss(case: Case) -> Outputs:
    found, params = case.inputs, case.params
    new = found["log_probs"][None, :]
    xp = namespace(new)
    mask = xp.ones_like(new, dtype=xp.bool)
    given = Policies(new, found["old_log_probs"][None, :], found["advantages"][None, :], mask)
    bounds = Bounds(low=params["epsilon_low"], high=params["epsilon_high"])
    tokens = max(params["global_n_tokens"] / params["world_size"], 1.0) * params["gradient_accumulation_steps"]
    loss = policy_loss(given, trl.ASYNC_LOSS, bounds, Totals(tokens=tokens))
    return {"loss": loss.loss}


ADAPTERS: dict[str, Adapter] = {
    "advantages": advantages,
    "importance_sampling_ratio": importance_sampling_ratio,
    **{f"compute_loss.{kind}": compute_loss for kind in _KINDS},
    "score_group": score_group,
    "compute_loss": async_loss,
}
UNSUPPORTED: dict[str, str] = {
    "staleness_drop": "a queue's decision, which the ledger's rules take, not replay",
    "compute_loss, adaptive entropy": "whether its bonus was on is the state of a controller that is not recorded",
    "advantages, gdpo": "an estimator of each function's rewards, of which format 1.1.0 has the sum",
}
IGNORED: dict[str, dict[str, str]] = {
    "score_group": {"model_version": "labels of the rows, no numbers", "group_id": "labels of the rows, no numbers"},
    "compute_loss": {"metrics": "figures that TRL logs, no part of the loss"},
}
