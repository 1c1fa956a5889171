"""The table of the stages is whole, and what it says is what the engine does."""

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner

from rollbook.infra.reference.formulas import FORMULAS
from rollbook.infra.reference.stages import stage_page
from rollbook.replay.bundle.bundle import Bundle
from rollbook.replay.bundle.model import Capability, Expected, StageId
from rollbook.replay.bundle.reading.cohort import read_bundle
from rollbook.replay.commands.replay import app
from rollbook.replay.engine.engine import replay_bundle
from rollbook.replay.engine.result import Outcome, StageResult, Verdict
from rollbook.replay.stages.stage import Origin
from rollbook.replay.stages.table import STAGES, TOKEN_PAYLOADS
from rollbook.replay.stages.topologies import KNOWN_ESTIMATORS
from rollbook.tests.replay.reseal import FIXTURES, Json, edit_bundle

RECOMPUTED = [stage for stage in STAGES.values() if stage.capability is Capability.RECOMPUTE]


@pytest.fixture(scope="module")
def bundle() -> Bundle:
    return read_bundle(FIXTURES / "full-k1")


def outcomes(bundle: Bundle) -> dict[StageId, StageResult]:
    (rank,) = replay_bundle(bundle).ranks
    return {stage.stage: stage for stage in rank.stages}


def configured(bundle: Bundle, **config: Any) -> Bundle:
    changed = bundle.index.config.model_copy(update=config)
    return replace(bundle, index=bundle.index.model_copy(update={"config": changed}))


def test_every_stage_has_a_line_and_a_formula() -> None:
    assert list(STAGES) == list(StageId) == list(FORMULAS)


@pytest.mark.parametrize("stage", RECOMPUTED, ids=lambda stage: stage.id)
def test_a_stage_that_can_be_recomputed_says_from_what_and_against_what(stage: Any) -> None:
    assert stage.inputs
    assert stage.outputs
    assert FORMULAS[stage.id].lines
    assert {one.name for one in stage.inputs if one.origin is Origin.PAYLOAD} <= set(TOKEN_PAYLOADS)
    assert all(f"| `{one.field}` |" in stage_page(stage.id) for one in stage.outputs)


NEEDS = [
    (stage, name)
    for stage in RECOMPUTED
    for config in (read_bundle(FIXTURES / "full-k1").index.config,)
    if stage.unknown(config) is None
    for name in stage.payloads(config)
]


@pytest.mark.parametrize(("stage", "name"), NEEDS, ids=[f"{stage.id}, {name}" for stage, name in NEEDS])
def test_a_stage_without_a_payload_that_it_needs_says_so(bundle: Bundle, stage: Any, name: str) -> None:
    without = {key: tensor for key, tensor in bundle.tensors.items() if key != name}
    found = outcomes(replace(bundle, tensors=without))[stage.id]
    assert found.outcome is Outcome.LACKING
    assert f"payload {name}" in found.reason
    assert replay_bundle(replace(bundle, tensors=without)).verdict is Verdict.UNVERIFIED


def test_a_stage_with_nothing_to_be_compared_with_says_so(bundle: Bundle) -> None:
    found = outcomes(replace(bundle, expected=Expected.of()))
    for stage in (StageId.REWARD_RAW, StageId.REWARD_POST_PROCESS, StageId.LOSS_POLICY):
        assert found[stage].outcome is Outcome.LACKING
        assert "to compare with" in found[stage].reason


def test_a_group_that_is_not_recorded_is_not_made_up(bundle: Bundle) -> None:
    samples = tuple(sample.model_copy(update={"group_index": None}) for sample in bundle.index.samples)
    ungrouped = replace(bundle, index=bundle.index.model_copy(update={"samples": samples}))
    found = outcomes(ungrouped)[StageId.REWARD_POST_PROCESS]
    assert (found.outcome, found.reason) == (Outcome.LACKING, "the bundle does not record group_index")


@pytest.mark.parametrize(("name", "meaning"), KNOWN_ESTIMATORS.items())
def test_an_estimator_without_a_contract_is_unsupported_by_name(bundle: Bundle, name: str, meaning: str) -> None:
    report = replay_bundle(configured(bundle, advantage_estimator=name))
    found = outcomes(configured(bundle, advantage_estimator=name))
    for stage in (StageId.REWARD_POST_PROCESS, StageId.ADVANTAGE_ESTIMATE, StageId.LOSS_POLICY):
        assert found[stage].outcome is Outcome.UNSUPPORTED
        assert f"'{name}' is not supported ({meaning})" in found[stage].reason
    assert report.verdict is Verdict.UNVERIFIED


def test_flattened_agentic_samples_are_unsupported_by_name(bundle: Bundle) -> None:
    found = outcomes(configured(bundle, n_samples_per_prompt=2))[StageId.REWARD_POST_PROCESS]
    assert found.outcome is Outcome.UNSUPPORTED
    assert "flattened agentic samples (group 0 has 4 samples, n_samples_per_prompt is 2)" in found.reason


def test_a_remote_reward_is_recorded_only_and_says_why(tmp_path: Path) -> None:
    def remote(manifest: Json) -> None:
        manifest["stage_contracts"]["reward.raw"]["capability"] = "recorded-only"

    edited = edit_bundle(FIXTURES / "full-k1", tmp_path / "remote", manifest=remote)
    found = outcomes(read_bundle(edited))[StageId.REWARD_RAW]
    assert found.outcome is Outcome.RECORDED_ONLY
    assert "what a remote reward service answered" in found.reason
    assert CliRunner().invoke(app, ["replay", str(edited)]).exit_code == 0


def test_nothing_verified_is_exit_code_4(tmp_path: Path) -> None:
    def only_recorded(manifest: Json) -> None:
        for contract in manifest["stage_contracts"].values():
            contract["capability"] = "recorded-only"

    edited = edit_bundle(FIXTURES / "rollout", tmp_path / "recorded", manifest=only_recorded)
    assert CliRunner().invoke(app, ["replay", str(edited)]).exit_code == 4
