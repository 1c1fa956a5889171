"""One planted error each, checksums recomputed: the right first stage, sample and token."""

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from rollbook.replay.bundle.bundle import Bundle
from rollbook.replay.bundle.model import StageId
from rollbook.replay.bundle.reading.cohort import read_bundle, validate
from rollbook.replay.bundle.writing.drafts import Draft
from rollbook.replay.bundle.writing.writer import write_bundle
from rollbook.replay.engine.blame import blame_raw_reward, group_relative
from rollbook.replay.engine.engine import replay_bundle
from rollbook.replay.engine.result import Divergence, Verdict
from rollbook.replay.kernels.policy_loss import policy_loss
from rollbook.replay.kernels.rewards import group_rewards
from rollbook.tests.replay.reseal import FIXTURES, Json, edit_bundle

Tensor = np.ndarray[Any, np.dtype[Any]]
# Of the fixtures: where the response of each sample starts in a flat payload.
STARTS = [0, 3, 4, 9, 11, 15, 21, 22]


@pytest.fixture(scope="session", params=["full-k1", "full-nostd-kl0"])
def recorded(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A fixture written again as our trainers record it: with each sample's own terms of the loss."""
    bundle = read_bundle(FIXTURES / request.param)
    target = tmp_path_factory.mktemp("recorded") / request.param
    return write_bundle(target, Draft.of(with_terms(bundle)))


def with_terms(bundle: Bundle) -> Bundle:
    samples, config, tensors = bundle.index.samples, bundle.index.config, bundle.tensors
    found = policy_loss(
        tensors["old_log_probs"],
        tensors["log_probs"],
        tensors["advantages"],
        tensors["entropy"],
        np.frombuffer(b"".join(sample.loss_mask for sample in samples), np.bool_),
        np.asarray([sample.response_length for sample in samples]),
        eps_clip=config.eps_clip,
        eps_clip_high=config.eps_clip_high,
        entropy_coef=config.entropy_coef,
    )
    names = ("pg_loss", "entropy_loss", "pg_clipfrac", "ppo_kl")
    return replace(bundle, terms={name: getattr(found.terms, name) for name in names})


def bump(at: int, by: float = 0.25) -> Callable[[Tensor], Tensor]:
    def edit(tensor: Tensor) -> Tensor:
        changed = tensor.copy()
        changed[at] += by
        return changed

    return edit


def raw_reward(position: int, value: float) -> Callable[[Json], None]:
    def edit(index: Json) -> None:
        index["samples"][position]["raw_reward"] = value

    return edit


def expected_raw(position: int, value: float) -> Callable[[Json], None]:
    def edit(expected: Json) -> None:
        expected["reward.raw"]["raw_rewards"][position] = value

    return edit


def first_divergence(tmp_path: Path, bundle: Path, **edit: Any) -> Divergence:
    edited = edit_bundle(bundle, tmp_path / "edited", **edit)
    assert validate(edited).valid
    report = replay_bundle(read_bundle(edited))
    assert report.verdict is Verdict.DIVERGES
    assert report.first_divergence is not None
    return report.first_divergence


def test_the_recorded_bundle_passes(recorded: Path) -> None:
    report = replay_bundle(read_bundle(recorded))
    assert report.verdict is Verdict.PASSED
    loss = next(stage for stage in report.ranks[0].stages if stage.stage is StageId.LOSS_POLICY)
    assert loss.verified_values == 4 * 8 + 5


@pytest.mark.parametrize("position", range(8))
def test_a_raw_reward_in_the_index_only(tmp_path: Path, recorded: Path, position: int) -> None:
    first = first_divergence(tmp_path, recorded, index=raw_reward(position, 7.5))
    assert (first.stage, first.point.sample_id) == (StageId.REWARD_RAW, f"s-{position}")
    assert (first.point.actual, first.diverging_samples) == (7.5, 1)


@pytest.mark.parametrize("value", [-2.5, 0.125, 7.5])
@pytest.mark.parametrize("position", range(8))
def test_a_raw_reward_in_index_and_expected(tmp_path: Path, recorded: Path, position: int, value: float) -> None:
    edit: dict[str, Any] = {"index": raw_reward(position, value), "expected": expected_raw(position, value)}
    first = first_divergence(tmp_path, recorded, **edit)
    assert (first.stage, first.point.sample_id) == (StageId.REWARD_POST_PROCESS, f"s-{position}")


def test_a_reward_in_the_index_only(tmp_path: Path, recorded: Path) -> None:
    def edit(index: Json) -> None:
        index["samples"][3]["reward"] += 0.5

    first = first_divergence(tmp_path, recorded, index=edit)
    assert (first.stage, first.field, first.point.sample_id) == (StageId.REWARD_POST_PROCESS, "reward", "s-3")


@pytest.mark.parametrize(("sample", "offset"), [(0, 0), (4, 2), (7, 6)])
def test_an_old_log_prob(tmp_path: Path, recorded: Path, sample: int, offset: int) -> None:
    first = first_divergence(tmp_path, recorded, payload={"old_log_probs": bump(STARTS[sample] + offset)})
    assert first.point.sample_id == f"s-{sample}"
    if recorded.name == "full-k1":
        assert (first.stage, first.point.token_offset) == (StageId.ADVANTAGE_KL, offset)
    else:
        assert first.stage == StageId.LOSS_POLICY


@pytest.mark.parametrize("sample", [0, 1, 2, 3, 4, 7])
def test_a_log_prob(tmp_path: Path, recorded: Path, sample: int) -> None:
    first = first_divergence(tmp_path, recorded, payload={"log_probs": bump(STARTS[sample])})
    assert (first.stage, first.point.sample_id) == (StageId.LOSS_POLICY, f"s-{sample}")
    assert first.diverging_samples == 1


def test_a_log_prob_of_a_masked_token_has_no_part_in_the_loss(tmp_path: Path, recorded: Path) -> None:
    edited = edit_bundle(recorded, tmp_path / "edited", payload={"log_probs": bump(STARTS[6])})
    assert replay_bundle(read_bundle(edited)).verdict is Verdict.PASSED


@pytest.mark.parametrize(
    ("payload", "stage", "token"),
    [
        ("kl", StageId.ADVANTAGE_KL, 1),
        ("advantages", StageId.ADVANTAGE_ESTIMATE, 1),
        ("entropy", StageId.LOSS_POLICY, None),
        ("log_probs", StageId.LOSS_POLICY, 1),
    ],
)
def test_a_value_of_a_payload(tmp_path: Path, recorded: Path, payload: str, stage: StageId, token: int | None) -> None:
    first = first_divergence(tmp_path, recorded, payload={payload: bump(STARTS[4] + 1)})
    assert (first.stage, first.point.sample_id, first.point.token_offset) == (stage, "s-4", token)


def test_a_log_prob_beyond_what_floats_hold_spoils_no_other_sample(tmp_path: Path, recorded: Path) -> None:
    first = first_divergence(tmp_path, recorded, payload={"log_probs": bump(STARTS[4] + 1, by=500)})
    assert (first.point.sample_id, first.diverging_samples) == ("s-4", 1)


@pytest.mark.parametrize(("sample", "offset"), [(0, 1), (2, 3), (4, 2), (7, 6)])
@pytest.mark.parametrize("payload", ["log_probs", "old_log_probs"])
@pytest.mark.parametrize("name", ["loss-only", "full-nostd-kl0"])
def test_from_scalars_alone_the_token_is_inferred(
    tmp_path: Path, name: str, payload: str, sample: int, offset: int
) -> None:
    edit = {payload: bump(STARTS[sample] + offset, by=-1.0)}
    first = first_divergence(tmp_path, FIXTURES / name, payload=edit)
    assert (first.stage, first.point.sample_id) == (StageId.LOSS_POLICY, f"s-{sample}")
    assert first.point.token_offset == offset
    assert "would alone explain it" in first.reason


def test_what_scalars_cannot_tell_is_not_guessed(tmp_path: Path) -> None:
    first = first_divergence(tmp_path, FIXTURES / "full-k1", payload={"entropy": bump(0)})
    assert (first.stage, first.point.sample_id) == (StageId.LOSS_POLICY, None)
    assert "record each row's terms" in first.reason


@settings(max_examples=60, deadline=None)
@given(at=st.sampled_from([at for at in range(29) if at not in (5, 15, 16, 17, 21)]), by=st.floats(-2, 2))
def test_a_token_is_never_blamed_wrongly(at: int, by: float) -> None:
    bundle = read_bundle(FIXTURES / "loss-only")
    tensors = {**bundle.tensors, "log_probs": bump(at, by)(bundle.tensors["log_probs"])}
    tampered = replace(bundle, tensors=tensors)
    first = replay_bundle(tampered).first_divergence
    sample = max(position for position, start in enumerate(STARTS) if start <= at)
    if first is not None and first.point.sample_id is not None:
        assert first.point.sample_id == f"s-{sample}"
        assert first.point.token_offset in (at - STARTS[sample], None)


def test_a_wrong_scalar_is_told_from_a_wrong_sample(tmp_path: Path, recorded: Path) -> None:
    def edit(expected: Json) -> None:
        expected["loss.policy"]["pg_loss"] += 0.5

    first = first_divergence(tmp_path, recorded, expected=edit)
    assert (first.stage, first.field, first.point.sample_id) == (StageId.LOSS_POLICY, "pg_loss", None)
    assert "the scalar is wrong" in first.reason


def test_returns_are_compared_where_they_are_recorded(tmp_path: Path, recorded: Path) -> None:
    advantages = read_bundle(recorded).tensors["advantages"]
    good = edit_bundle(recorded, tmp_path / "good", payload={"returns": lambda _: advantages})
    assert replay_bundle(read_bundle(good)).verdict is Verdict.PASSED
    first = first_divergence(tmp_path, recorded, payload={"returns": lambda _: bump(5)(advantages)})
    assert (first.stage, first.field, first.point.sample_id) == (StageId.ADVANTAGE_ESTIMATE, "returns", "s-2")


def test_the_bundle_decides_how_close_is_equal(tmp_path: Path, recorded: Path) -> None:
    def loosen(manifest: Json) -> None:
        manifest["comparison_policy"]["tolerances"]["advantage.kl"] = {"atol": 0.5, "rtol": 0.0}

    edited = edit_bundle(recorded, tmp_path / "loose", payload={"kl": bump(0)}, manifest=loosen)
    assert replay_bundle(read_bundle(edited)).verdict is Verdict.PASSED

    def exactly(manifest: Json) -> None:
        manifest["comparison_policy"]["exact_fields"] = ["kl"]

    first = first_divergence(tmp_path, recorded, payload={"kl": bump(0, by=1e-6)}, manifest=exactly)
    assert first.stage == StageId.ADVANTAGE_KL


UNVERIFIED = [
    # edit of index, edit of manifest, why
    (
        {"index": lambda index: index["config"].update(advantage_estimator="gae")},
        "'gae' is not supported (PPO with a critic), only grpo; format 1.1.0 names others",
    ),
    ({"index": lambda index: index["config"].update(kl_loss_type="k9", kl_coef=0.1)}, "'k9' is not supported"),
    (
        {"index": lambda index: index["identity"]["rank"].update(cp=2)},
        "(cp 2) are not part of format 1.0.0; record context_parallel",
    ),
]


@pytest.mark.parametrize(("edit", "why"), UNVERIFIED, ids=[case[1] for case in UNVERIFIED])
def test_what_the_kernels_do_not_compute_is_no_pass(tmp_path: Path, edit: dict[str, Any], why: str) -> None:
    report = replay_bundle(read_bundle(edit_bundle(FIXTURES / "full-k1", tmp_path / "edited", **edit)))
    assert report.verdict is Verdict.UNVERIFIED
    assert any(why in stage.reason for stage in report.ranks[0].stages)


@pytest.mark.parametrize("capability", ["recorded-only", "inspect-only", "unsupported"])
def test_nothing_verified_is_no_pass(tmp_path: Path, capability: str) -> None:
    def edit(manifest: Json) -> None:
        manifest["stage_contracts"]["loss.policy"]["capability"] = capability

    bundle = read_bundle(edit_bundle(FIXTURES / "loss-only", tmp_path / "edited", manifest=edit))
    assert replay_bundle(bundle).verdict is Verdict.UNVERIFIED


def test_no_contract_and_only_a_structural_stage_are_no_pass(tmp_path: Path) -> None:
    def only_sample(manifest: Json) -> None:
        manifest["stage_contracts"] = {"sample": manifest["stage_contracts"]["sample"]}

    for edit in (only_sample, lambda manifest: manifest.update(stage_contracts={})):
        bundle = edit_bundle(FIXTURES / "full-k1", tmp_path / str(id(edit)), manifest=edit)
        assert replay_bundle(read_bundle(bundle)).verdict is Verdict.UNVERIFIED


def test_replay_on_torch_gives_the_same_answer(recorded: Path) -> None:
    import array_api_compat.torch as xp

    bundle = read_bundle(recorded)
    writable = replace(bundle, tensors={name: tensor.copy() for name, tensor in bundle.tensors.items()})
    assert isinstance(xp.asarray(writable.tensors["kl"]), torch.Tensor)
    assert replay_bundle(writable, xp=xp).verdict is Verdict.PASSED


@settings(max_examples=60, deadline=None)
@given(
    rewards=st.lists(st.sampled_from([0.0, 0.25, 0.5, 1.0, 2.0, -1.0]), min_size=3, max_size=8),
    position=st.integers(0, 7),
    value=st.sampled_from([-3.0, 0.75, 5.0]),
    divide=st.booleans(),
)
def test_blame_never_names_an_innocent(rewards: list[float], position: int, value: float, divide: bool) -> None:
    position %= len(rewards)
    groups = np.zeros(len(rewards), np.int64)
    recorded = group_rewards(np.asarray(rewards), groups, len(rewards), divide_by_std=divide)
    tampered = np.asarray([value if at == position else reward for at, reward in enumerate(rewards)])
    blamed = blame_raw_reward(tampered, recorded, groups.tolist(), group_relative(divide_by_std=divide))
    assert blamed in (position, None)
