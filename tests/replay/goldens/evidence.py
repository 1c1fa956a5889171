"""Recorded calls of other frameworks as what a search for their convention is given."""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from rollbook.replay.dialects.additions import Additions, Penalty
from rollbook.replay.dialects.estimate import Rewarded, placed_at_end
from rollbook.replay.dialects.loss import Bounds, Policies
from rollbook.replay.kernels.aggregate import Totals
from rollbook.replay.recognition.search import LossGiven
from rollbook.tests.replay.goldens import trl
from rollbook.tests.replay.goldens.case import Case, case_of, labels, numbers, read
from rollbook.tests.replay.goldens.tally import OURS

Floats = NDArray[np.float64]


@dataclass(frozen=True, slots=True)
class Estimated:
    """Advantages that a framework computed."""

    id: str
    framework: str
    given: Rewarded
    recorded: Floats


@dataclass(frozen=True, slots=True)
class Lost:
    """A policy loss that a framework computed."""

    id: str
    framework: str
    given: LossGiven
    recorded: float


def _cases(framework: str) -> Iterator[tuple[Case, Mapping[str, Any]]]:
    for path in sorted(OURS.glob(f"{framework}-*.json.gz")):
        recorded = read(path)
        for raw in recorded if isinstance(recorded, list) else trl.cases(recorded):
            if "raises" not in raw:
                yield case_of(raw, np), raw["outputs"]


def estimated(framework: str) -> Iterator[Estimated]:
    for case, outputs in _cases(framework):
        if (given := _GIVEN[framework](case)) is not None:
            recorded = outputs.get("advantages", outputs.get("rewards", outputs.get("normalized")))
            values = np.asarray(numbers(recorded), dtype=np.float64)
            yield Estimated(case.id, framework, given, values.reshape(given.mask.shape))


def lost(framework: str) -> Iterator[Lost]:
    for case, outputs in _cases(framework):
        if (given := _LOST[framework](case)) is not None:
            yield Lost(case.id, framework, given, float(numbers(outputs["loss"])))


def _of_tokens(case: Case) -> Rewarded | None:
    if not case.function.startswith("adv.") or "token_level_rewards" not in case.inputs:
        return None
    if case.function.removeprefix("adv.") not in _SUPPORTED or case.get("epsilon", 1e-6) != 1e-6:
        return None
    found = case.inputs
    rewards = found["token_level_rewards"]
    return Rewarded(
        rewards,
        found["response_mask"] != 0,
        labels(found["index"], rewards) if "index" in found else np.arange(rewards.shape[0]),
        values=found.get("values"),
        gamma=case.get("gamma", 1.0),
        lam=case.get("lam", case.get("lambd", 1.0)),
    )


_SUPPORTED = {
    "grpo", "grpo_vectorized", "rloo", "rloo_vectorized", "reinforce_plus_plus", "reinforce_plus_plus_baseline",
    "reinforce++", "gae",
}  # fmt: skip


def _of_rows(rewards: Floats, groups: NDArray[np.int64]) -> Rewarded:
    return Rewarded(rewards[:, None], np.ones((rewards.size, 1), dtype=np.bool_), groups)


def _slime(case: Case) -> Rewarded | None:
    if case.function != "post_process_rewards":
        return None
    raw, size = case.inputs["raw_rewards"], case.params["n_samples_per_prompt"]
    even = size * case.params["rollout_batch_size"] == raw.size
    return _of_rows(raw, np.arange(raw.size) // size if even else np.minimum(np.arange(raw.size), 1))


def _areal(case: Case) -> Rewarded | None:
    if case.function != "Normalization" or case.get("masked") or case.params["eps"] != 1e-5:
        return None
    values = case.inputs["x"]
    return _of_rows(values, np.arange(values.size) // case.params["group_size"])


def _openrlhf(case: Case) -> Rewarded | None:
    if case.function != "adv.compute_advantages_and_returns":
        return None
    if case.params["kl_coef"] or case.params["reward_clip_range"]:
        return None
    found, mask = case.inputs, case.inputs["action_mask"] != 0
    name = case.params["estimator"]
    return Rewarded(
        placed_at_end(found["rewards"], mask),
        mask,
        found["index"] // case.params["n_samples_per_prompt"],
        values=found["values"] if name == "gae" else None,
        gamma=case.params["gamma"] if name in ("gae", "reinforce") else 1.0,
        lam=case.params["lambd"],
    )


def _trl(case: Case) -> Rewarded | None:
    if case.function == "advantages":
        rewards = trl.weighted(case.inputs["rewards_per_func"], case.inputs["reward_weights"])
        return _of_rows(rewards, case.inputs["group_index"])
    if case.function != "score_group" or max(case.params["forks_per_conversation"]) > 1:
        return None
    rewards = np.asarray(case.inputs["rewards_per_func"]).sum(axis=0)
    if np.isnan(rewards).any():
        return None
    return _of_rows(rewards, np.zeros(rewards.size, dtype=np.int64))


_GIVEN = {
    "verl": _of_tokens,
    "skyrl": _of_tokens,
    "slime": _slime,
    "areal": _areal,
    "openrlhf": _openrlhf,
    "trl": _trl,
}


def _verl_loss(case: Case) -> LossGiven | None:
    if case.function not in {f"policy_loss.{name}" for name in ("vanilla", "gspo", "sapo", "cispo")}:
        return None
    found, get = case.inputs, case.get
    policies = Policies(
        found["log_prob"],
        found["old_log_prob"],
        found["advantages"],
        found["response_mask"],
        weights=found.get("rollout_is_weights"),
    )
    bounds = Bounds(
        low=get("clip_ratio_low"),
        high=get("clip_ratio_high"),
        dual=get("clip_ratio_c"),
        positive=get("tau_pos", 1.0),
        negative=get("tau_neg", 1.05),
    )
    totals = Totals(get("batch_num_tokens"), get("global_batch_size"), get("loss_scale_factor"), get("dp_size") or 1)
    return LossGiven(policies, bounds, totals)


def _skyrl_loss(case: Case) -> LossGiven | None:
    plain = not any("tis" in name or "mask" in name or "outlier" in name for name in case.params)
    if case.function.removeprefix("policy_loss.") not in {"regular", "dual_clip", "gspo", "sapo", "cispo"} or not plain:
        return None
    found, get = case.inputs, case.get
    old = found["rollout_logprobs"] if get("cispo_anchor") == "rollout" else found["old_log_probs"]
    policies = Policies(found["log_probs"], old, found["advantages"], found["loss_mask"] != 0)
    bounds = Bounds(
        low=get("cispo_eps_clip_low", get("eps_clip_low")),
        high=get("cispo_eps_clip_high", get("eps_clip_high")),
        dual=get("clip_ratio_c"),
        positive=get("tau_pos", 1.0),
        negative=get("tau_neg", 1.05),
    )
    return LossGiven(policies, bounds)


def _slime_loss(case: Case) -> LossGiven | None:
    get = case.get
    extras = ("use_rollout_logprobs", "use_opsm", "use_tis", "use_kl_loss", "entropy_coef")
    if case.function != "policy_loss_function" or any(get(name) for name in extras):
        return None
    found = case.inputs
    there = np.arange(found["log_probs"].shape[1])[None, :] < found["response_lengths"][:, None]
    new, old, advantages = (np.where(there, found[name], 0.0) for name in ("log_probs", "old_log_probs", "advantages"))
    policies = Policies(new, old, advantages, (found["loss_masks"] != 0) & there)
    return LossGiven(policies, Bounds(low=get("eps_clip"), high=get("eps_clip_high"), dual=get("eps_clip_c")))


def _areal_loss(case: Case) -> LossGiven | None:
    if case.function not in ("ppo_actor_loss_fn", "sapo_loss_fn") or case.get("rs_level"):
        return None
    found, get = case.inputs, case.get
    policies = Policies(found["logprobs"], found["proximal_logprobs"], found["advantages"], found["loss_mask"])
    low = get("eps_clip", 0.2)
    bounds = Bounds(
        low=low,
        high=get("eps_clip_higher", low),
        dual=get("c_clip"),
        positive=get("tau_pos", 1.0),
        negative=get("tau_neg", 1.05),
    )
    return LossGiven(policies, bounds)


def _openrlhf_loss(case: Case) -> LossGiven | None:
    get = case.get
    if case.function != "PolicyLoss" or get("is_correction_level", "off") != "off":
        return None
    found = case.inputs
    policies = Policies(found["log_probs"], found["old_log_probs"], found["advantages"], found["action_mask"])
    totals = Totals(tokens=get("batch_num_tokens"), sequences=get("global_batch_size"), ranks=get("dp_size") or 1)
    return LossGiven(policies, Bounds(get("clip_eps_low"), get("clip_eps_high"), get("dual_clip")), totals)


def _trl_loss(case: Case) -> LossGiven | None:
    if not case.function.startswith("compute_loss."):
        return None
    found, params = case.inputs, case.params
    spread = np.broadcast_to(found["advantages"][:, None], found["old"].shape)
    policies = Policies(found["per_token_logps"], found["old"], spread, found["mask"] != 0, found.get("weights"))
    bounds = Bounds(
        low=params["epsilon_low"],
        high=params["epsilon_high"],
        positive=params["sapo_temperature_pos"],
        negative=params["sapo_temperature_neg"],
        most=params["delta"],
    )
    totals = Totals(length=params["max_completion_length"], ranks=1 / params["accumulated"])
    if params["loss_type"] in ("dapo", "cispo"):
        share = params["accumulated"] / params["steps_per_generation"]
        totals = Totals(tokens=params["num_items_in_batch"] * share)
    penalty = Penalty(found["reference"], "k3", params["beta"], by_ratio=params["use_bias_correction_kl"])
    return LossGiven(policies, bounds, totals, Additions(penalty))


_LOST = {
    "verl": _verl_loss,
    "skyrl": _skyrl_loss,
    "slime": _slime_loss,
    "areal": _areal_loss,
    "openrlhf": _openrlhf_loss,
    "trl": _trl_loss,
}
