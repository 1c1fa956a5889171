"""Bundles of format 1.1.0 that name the conventions of their trainer: other frameworks' recorded numbers, written as
bundles, replay stage by stage under the framework's own convention and diverge under another's."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from rollbook.replay.bundle.model import StageId
from rollbook.replay.bundle.reading.cohort import read_cohort, validate
from rollbook.replay.dialects.table import ADVANTAGES
from rollbook.replay.engine.engine import replay_cohort
from rollbook.replay.engine.result import Outcome, ReplayReport, Verdict
from rollbook.replay.engine.selection import Selection
from rollbook.replay.kernels.groups import normalize
from rollbook.tests.replay.goldens.case import numbers, read
from rollbook.tests.replay.goldens.tally import OURS
from rollbook.tests.replay.reseal import FIXTURES, Json, edit_bundle

VERL = {raw["id"].removeprefix("verl/"): raw for raw in read(OURS / "verl-0.9.1.json.gz")}
RULES = {one.name: one.rule for one in ADVANTAGES if one.framework == "verl"}


def named(framework: str, name: str) -> Json:
    version = {"verl": "0.9.1", "slime": "0.3.1", "trl": "1.16.0", "areal": "1.0.4"}.get(framework, "1.0.0")
    return {"framework": framework, "version": version, "name": name}


def samples_of(mask: Any, groups: list[int], raw: Any, rewards: Any, micro_batch: str | None) -> list[Json]:
    return [
        {
            "sample_id": f"s-{row}",
            "group_index": groups[row],
            "response_length": len(row_mask),
            "total_length": len(row_mask) + 1,
            "loss_mask": [int(value) for value in row_mask],
            "raw_reward": float(raw[row]),
            "reward": float(rewards[row]),
            "label_hash": "",
            "micro_batch_id": micro_batch,
        }
        for row, row_mask in enumerate(np.asarray(mask).tolist())
    ]


def flat(values: Any) -> Any:
    return np.asarray(numbers(values), dtype=np.float32).ravel()


def write(base: str, folder: Path, payloads: Mapping[str, Any], conventions: Json, **edits: Any) -> Path:
    """The fixture `base` with other samples, payloads and conventions."""
    samples, config, expected = edits["samples"], edits.get("config", {}), edits["expected"]

    def index(content: Json) -> None:
        content["samples"] = samples
        groups = sorted({f"g-{sample['group_index']}" for sample in samples})
        content["identity"]["semantic_group_ids"] = content["identity"]["normalization_cohort_ids"] = groups
        content["identity"]["micro_batch_ids"] = sorted({one["micro_batch_id"] for one in samples} - {None})
        content["config"] |= {**config, "conventions": conventions}

    def manifest(content: Json) -> None:
        content["format_version"] = "1.1.0"
        contracts = content["stage_contracts"]
        for stage in set(contracts) - set(edits["stages"]):
            del contracts[stage]
        for name in set(content["payloads"]) - set(payloads):
            del content["payloads"][name]

    def results(content: Json) -> None:
        content.clear()
        content.update(expected)

    arrays = {name: (lambda _, value=value: value) for name, value in payloads.items()}
    written = edit_bundle(FIXTURES / base, folder, manifest=manifest, index=index, expected=results, payload=arrays)
    for path in (written / "payloads").glob("*.pt"):
        if path.stem not in payloads:
            path.unlink()
    return written


ESTIMATED = [
    # recorded call, name of its convention
    ("adv.grpo/even-groups/2", "grpo"),
    ("adv.grpo/interleaved/2", "grpo"),
    ("adv.grpo/uneven-singleton-constant/1", "grpo"),
    ("adv.rloo/interleaved/1", "rloo"),
    ("adv.rloo_vectorized/even-groups/1", "rloo_vectorized"),
    ("adv.reinforce_plus_plus/even-groups/1", "reinforce_plus_plus"),
    ("adv.reinforce_plus_plus/interleaved/1", "reinforce_plus_plus"),
    ("adv.reinforce_plus_plus_baseline/even-groups/1", "reinforce_plus_plus_baseline"),
    ("adv.gae/even-groups/1", "gae"),
    ("adv.gae/interleaved/3", "gae"),
]


def rollout(call: str, name: str, folder: Path) -> Path:
    raw = VERL[call]
    inputs, params = raw["inputs"], raw["params"]
    scores = np.asarray(inputs["token_level_rewards"]).sum(axis=1)
    labels = inputs.get("index", [str(row) for row in range(len(scores))])
    groups = [sorted(set(labels)).index(label) for label in labels]
    if params.get("norm_adv_by_std_in_grpo") is False:
        name = f"{name} without std"
    rule = RULES[name].normalization
    rewards = scores if rule is None else normalize(scores, np.asarray(groups), rule)
    payloads = {"advantages": flat(raw["outputs"]["advantages"]), "returns": flat(raw["outputs"]["returns"])}
    if name == "gae":
        payloads["values"] = flat(inputs["values"])
    return write(
        "rollout",
        folder,
        payloads,
        {"advantages": named("verl", name), "gamma": params.get("gamma", 1.0), "lam": params.get("lam", 1.0)},
        samples=samples_of(inputs["response_mask"], groups, scores, rewards, None),
        expected={"reward.post_process": {"rewards": [float(np.float32(value)) for value in rewards]}},
        stages={"reward.post_process", "advantage.estimate"},
        config={"n_samples_per_prompt": groups.count(0)},
    )


LOST = [
    # recorded call, name of its convention
    ("policy_loss.vanilla/trail-small/1", "vanilla, token-mean"),
    ("policy_loss.vanilla/trail-large/1", "vanilla, token-mean"),
    ("policy_loss.vanilla/trail-large/global-batch/2", "vanilla, token-sum"),
    ("policy_loss.gspo/trail-large/1", "gspo, token-mean"),
    ("policy_loss.cispo/holes-large/1", "cispo, token-mean"),
    ("policy_loss.sapo/trail-large/1", "sapo"),
]


def step(call: str, name: str, folder: Path, *, framework: str = "verl", **conventions: Any) -> Path:
    raw = VERL[call]
    inputs, params, metrics = raw["inputs"], raw["params"], raw["outputs"]["metrics"]
    mask = inputs["response_mask"]
    tensors = {"log_probs": "log_prob", "old_log_probs": "old_log_prob", "advantages": "advantages"}
    payloads = {name: flat(inputs[theirs]) for name, theirs in tensors.items()}
    payloads["entropy"] = np.zeros_like(payloads["log_probs"])
    if "rollout_log_probs" in conventions:
        payloads["rollout_log_probs"] = conventions.pop("rollout_log_probs")
    whole = {
        "tokens": "batch_num_tokens",
        "sequences": "global_batch_size",
        "length": "loss_scale_factor",
        "ranks": "dp_size",
    }
    given = {ours: float(params[theirs]) for ours, theirs in whole.items() if params.get(theirs)}
    zeros = [0.0] * len(mask)
    return write(
        "loss-only",
        folder,
        payloads,
        {"loss": named(framework, name), "eps_clip_c": params["clip_ratio_c"], "whole_batch": given, **conventions},
        samples=samples_of(mask, [0] * len(mask), zeros, zeros, "mb-0000"),
        expected={
            "loss.policy": {
                "loss": raw["outputs"]["loss"],
                "pg_loss": raw["outputs"]["loss"],
                "entropy_loss": 0.0,
                "pg_clipfrac": metrics["actor/pg_clipfrac"],
                "ppo_kl": metrics["actor/ppo_kl"],
            }
        },
        stages={"loss.policy"},
        config={"eps_clip": params["clip_ratio_low"], "eps_clip_high": params["clip_ratio_high"]},
    )


def replayed(path: Path, selection: Selection | None = None, xp: Any = np) -> ReplayReport:
    assert [str(problem) for problem in validate(path).problems] == []
    return replay_cohort(read_cohort(path), selection, xp)


def first(report: ReplayReport) -> StageId | None:
    return None if report.first_divergence is None else report.first_divergence.stage


@pytest.mark.parametrize("xp", [np, torch], ids=["numpy", "torch"])
@pytest.mark.parametrize(("call", "name"), ESTIMATED, ids=[case[0] for case in ESTIMATED])
def test_recorded_advantages_replay_under_their_convention(tmp_path: Path, call: str, name: str, xp: Any) -> None:
    report = replayed(rollout(call, name, tmp_path / "bundle"), xp=xp)
    assert (report.verdict, first(report)) == (Verdict.PASSED, None)


@pytest.mark.parametrize("xp", [np, torch], ids=["numpy", "torch"])
@pytest.mark.parametrize(("call", "name"), LOST, ids=[case[0] for case in LOST])
def test_a_recorded_loss_replays_under_its_convention(tmp_path: Path, call: str, name: str, xp: Any) -> None:
    report = replayed(step(call, name, tmp_path / "bundle"), xp=xp)
    assert (report.verdict, first(report)) == (Verdict.PASSED, None)


def test_another_convention_diverges_at_its_stage(tmp_path: Path) -> None:
    estimated = write_other(tmp_path / "advantages")
    assert first(replayed(estimated)) is StageId.REWARD_POST_PROCESS
    lost = step("policy_loss.vanilla/trail-large/1", "ppo", tmp_path / "loss", framework="slime")
    assert first(replayed(lost)) is StageId.LOSS_POLICY


def write_other(folder: Path) -> Path:
    written = rollout("adv.grpo/even-groups/2", "grpo", folder / "own")

    def other(content: Json) -> None:
        content["config"]["conventions"]["advantages"] = named("trl", "scale_rewards group")

    return edit_bundle(written, folder / "other", index=other)


def test_a_convention_that_is_not_known_is_unsupported_by_name(tmp_path: Path) -> None:
    report = replayed(step("policy_loss.vanilla/trail-small/1", "no such", tmp_path / "bundle"))
    (result,) = (stage for stage in report.ranks[0].stages if stage.stage is StageId.LOSS_POLICY)
    assert (report.verdict, result.outcome) == (Verdict.UNVERIFIED, Outcome.UNSUPPORTED)
    assert "conventions.loss 'verl 0.9.1 no such' is not known" in result.reason


def test_estimates_from_values_need_values(tmp_path: Path) -> None:
    whole = rollout("adv.gae/even-groups/1", "gae", tmp_path / "whole")

    def without(content: Json) -> None:
        del content["payloads"]["values"]

    (whole / "payloads" / "values.pt").unlink()
    problems = [str(problem) for problem in validate(edit_bundle(whole, tmp_path / "part", manifest=without)).problems]
    assert any("values" in problem for problem in problems)


def test_a_part_of_what_was_whitened_together_is_not_recomputed(tmp_path: Path) -> None:
    path = rollout("adv.reinforce_plus_plus/even-groups/1", "reinforce_plus_plus", tmp_path / "bundle")
    report = replayed(path, Selection(samples=("s-0",)))
    (result,) = (stage for stage in report.ranks[0].stages if stage.stage is StageId.ADVANTAGE_ESTIMATE)
    assert result.outcome is Outcome.SKIPPED


def test_conventions_are_no_key_of_format_1_0_0(tmp_path: Path) -> None:
    path = step("policy_loss.vanilla/trail-small/1", "vanilla, token-mean", tmp_path / "new")
    old = edit_bundle(path, tmp_path / "old", manifest=lambda content: content.update(format_version="1.0.0"))
    (problem,) = validate(old).problems
    assert "config.conventions" in str(problem)
    assert "unknown key in format 1.0.0" in str(problem)


def test_weights_and_rejection_change_the_loss_as_their_formulas_say(tmp_path: Path) -> None:
    call, name = "policy_loss.vanilla/trail-small/1", "vanilla, token-mean"
    old = flat(VERL[call]["inputs"]["old_log_prob"])
    plain = VERL[call]["outputs"]["loss"]
    doubled = step(
        call, name, tmp_path / "doubled", rollout_log_probs=old - np.float32(np.log(2)), corrections=[{"most": 5.0}]
    )
    assert actual(doubled) == pytest.approx(2 * plain, rel=1e-5)
    truncated = step(
        call, name, tmp_path / "truncated", rollout_log_probs=old - np.float32(np.log(8)), corrections=[{"most": 3.0}]
    )
    assert actual(truncated) == pytest.approx(3 * plain, rel=1e-5)
    sampler = old.copy()
    sampler[0] -= np.log(8)
    rejected = step(
        call, name, tmp_path / "rejected", rollout_log_probs=sampler, corrections=[{"most": 3.0, "outside": "reject"}]
    )
    mask = np.asarray(VERL[call]["inputs"]["response_mask"])
    mask[0, 0] = False
    assert actual(rejected) == pytest.approx(np.asarray(VERL[call]["outputs"]["loss_mat"])[mask].mean(), rel=1e-5)


def actual(path: Path) -> float:
    found: dict[str, float] = {}
    replay_cohort(
        read_cohort(path), watch=lambda compared: found.update({compared.result.field: float(compared.actual[0])})
    )
    return found["pg_loss"]


def part_of_cohort(folder: Path) -> Path:
    """The first row of each of two groups of three was consumed; the others are there for their rewards only."""
    whole = rollout("adv.grpo/even-groups/2", "grpo", folder / "whole")

    def index(content: Json) -> None:
        content["cohort"] = [
            {key: sample[key] for key in ("sample_id", "group_index", "raw_reward")}
            for sample in content["samples"]
            if sample["sample_id"] not in ("s-0", "s-3")
        ]
        content["samples"] = [sample for sample in content["samples"] if sample["sample_id"] in ("s-0", "s-3")]

    def expected(content: Json) -> None:
        rewards = content["reward.post_process"]["rewards"]
        content["reward.post_process"]["rewards"] = [rewards[0], rewards[3]]

    def rows(values: Any) -> Any:
        return values.reshape(6, -1)[[0, 3]].ravel()

    edits = {"advantages": rows, "returns": rows}
    return edit_bundle(whole, folder / "part", index=index, expected=expected, payload=edits)


def test_a_cohort_may_be_larger_than_what_was_consumed(tmp_path: Path) -> None:
    report = replayed(part_of_cohort(tmp_path))
    assert (report.verdict, first(report)) == (Verdict.PASSED, None)


def test_a_reward_of_the_rest_of_the_cohort_matters(tmp_path: Path) -> None:
    def other(content: Json) -> None:
        content["cohort"][0]["raw_reward"] += 1

    path = edit_bundle(part_of_cohort(tmp_path), tmp_path / "other", index=other)
    assert first(replayed(path)) is StageId.REWARD_POST_PROCESS
    assert replayed(path, Selection(groups=("1",))).verdict is Verdict.PASSED


def test_a_member_is_consumed_or_not(tmp_path: Path) -> None:
    def twice(content: Json) -> None:
        content["cohort"][0]["sample_id"] = "s-0"

    problems = validate(edit_bundle(part_of_cohort(tmp_path), tmp_path / "twice", index=twice)).problems
    assert ["sample_id 's-0' twice" in str(problem) for problem in problems] == [True]


def stated_alone(folder: Path, conventions: Json) -> Path:
    """The fixture with conventions that name no loss, and a sampler that gave each token half the probability."""

    def index(content: Json) -> None:
        content["config"]["conventions"] = conventions

    def manifest(content: Json) -> None:
        content["format_version"] = "1.1.0"

    old = read_cohort(FIXTURES / "full-k1").bundles[0].tensors["old_log_probs"]
    sampler = {"rollout_log_probs": lambda _: old - np.float32(np.log(2))}
    return edit_bundle(FIXTURES / "full-k1", folder, index=index, manifest=manifest, payload=sampler)


def test_corrections_and_totals_without_a_named_loss_are_of_the_formats_own(tmp_path: Path) -> None:
    plain = actual(FIXTURES / "full-k1")
    doubled = stated_alone(tmp_path / "doubled", {"corrections": [{"most": 5.0}]})
    averaged = stated_alone(tmp_path / "averaged", {"whole_batch": {"ranks": 3}})
    nothing = stated_alone(tmp_path / "nothing", {"whole_batch": {"ranks": 1}})
    assert actual(doubled) == pytest.approx(2 * plain, rel=1e-5)
    assert actual(averaged) == pytest.approx(3 * plain, rel=1e-5)
    assert [replayed(one).verdict for one in (doubled, averaged, nothing)] == ["diverges", "diverges", "pass"]


def test_corrections_whose_bounds_are_swapped_are_refused(tmp_path: Path) -> None:
    swapped = stated_alone(tmp_path / "swapped", {"corrections": [{"least": 2.0, "most": 0.5}]})
    (problem,) = validate(swapped).problems
    assert "config.conventions.corrections.0: least 2 is above most 0.5" in str(problem)


@pytest.mark.parametrize("xp", [np, torch], ids=["numpy", "torch"])
@pytest.mark.parametrize(("off", "agrees"), [(1e-7, True), (2.5e-5, False)])
def test_a_mean_of_many_rows_is_allowed_no_more_than_a_mean_may_be_rounded(
    tmp_path: Path, off: float, agrees: bool, xp: Any
) -> None:
    """The sum of 256 rows may be rounded 256 times as far as their mean."""
    rows, tokens = 256, 4
    mask = np.ones((rows, tokens), bool)
    samples = samples_of(mask, [0] * rows, np.zeros(rows), np.zeros(rows), "mb-0000")
    zeros = np.zeros(rows * tokens, np.float32)
    scalars = {"loss": 0.0, "pg_loss": 0.0, "entropy_loss": 1.0 + off, "pg_clipfrac": 0.0, "ppo_kl": 0.0}
    path = write(
        "loss-only",
        tmp_path / "bundle",
        {"old_log_probs": zeros, "log_probs": zeros, "advantages": zeros, "entropy": zeros + np.float32(1)},
        {"loss": named("verl", "vanilla, token-mean")},
        samples=samples,
        config={"entropy_coef": 0.0},
        expected={"loss.policy": scalars},
        stages={"loss.policy"},
    )
    assert (replayed(path, xp=xp).verdict is Verdict.PASSED) is agrees
