"""The critic's loss in format 1.1.0: hand-computed numbers replay, planted errors are found at their sample, and a
bundle of format 1.0.0 knows the stage as little as before."""

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from rollbook.replay.bundle.convention import Conventions, NamedValueLoss, WholeBatch
from rollbook.replay.bundle.model import Capability, StageId
from rollbook.replay.bundle.reading.cohort import read_cohort, validate
from rollbook.replay.engine.engine import replay_cohort
from rollbook.replay.engine.result import Outcome, ReplayReport, StageResult, Verdict
from rollbook.tests.replay import by_hand
from rollbook.tests.replay.reseal import Json, edit_bundle

# Lengths [2, 3], masks [[1, 1], [1, 0, 1]], clip 0.5. Squares of V - R: 1, 1 | 0.25, -, 4; held within 0.5 of the old
# ones the values are 1, 0.5 | 0.5, -, 0, their squares 1, 2.25 | 0.25, -, 4. Half the larger of each:
LOSSES = (0.5, 1.125, 0.125, 2.0)
VALUES = {
    "values": torch.tensor([1.0, 0.0, 0.5, 9.0, 0.0]),
    "new_values": torch.tensor([1.0, 1.0, 0.5, 7.0, 0.0]),
    "returns": torch.tensor([2.0, 2.0, 1.0, 8.0, 2.0]),
}
ROWS = ((0.5 + 1.125) / 2, (0.125 + 2.0) / 2)
TERMS = {"value_loss": list(ROWS), "value_clipfrac": [0.5, 0.0]}
TOKEN_MEAN, ROW_MEAN = sum(LOSSES) / 4, sum(ROWS) / 2
VERL_TOKENS = ("verl", "0.9.1", "value, token-mean")


def written(path: Path, name: tuple[str, str, str], loss: float, *, terms: bool = True, **given: Any) -> Path:
    framework, version, convention = name
    named = NamedValueLoss(framework=framework, version=version, name=convention, clip=0.5, **given)
    config = by_hand.CONFIG.model_copy(update={"conventions": Conventions(value_loss=named)})
    made = by_hand.writer(path, index=by_hand.index(path.name, config=config))
    for payload, tensor in VALUES.items():
        made.payload(payload, tensor)
    if terms:
        for term, values in TERMS.items():
            made.terms(term, values)
    # A critic's returns are not the advantages of GRPO, under which the example is.
    made.promise(StageId.ADVANTAGE_ESTIMATE, capability=Capability.RECORDED_ONLY)
    made.expect(
        raw_rewards=[1.0, 0.0],
        rewards=[0.5, -0.5],
        loss=by_hand.LOSS,
        value_loss={"value_loss": loss, "value_clipfrac": 0.25},
    )
    made.finalize()
    return path


def replayed(path: Path, xp: Any = np) -> tuple[ReplayReport, StageResult]:
    assert [str(problem) for problem in validate(path).problems] == []
    report = replay_cohort(read_cohort(path), xp=xp)
    return report, next(stage for stage in report.ranks[0].stages if stage.stage is StageId.LOSS_VALUE)


CASES = [
    # convention, what it gives
    (VERL_TOKENS, TOKEN_MEAN),
    (("verl", "0.9.1", "value, seq-mean-token-mean"), ROW_MEAN),
    (("verl", "0.9.1", "value, seq-mean-token-sum"), sum(LOSSES) / 2),
    (("verl", "0.9.1", "value, seq-mean-token-sum-norm"), sum(LOSSES) / 2 / 3),
    (("verl", "0.9.1", "value, token-sum"), sum(LOSSES)),
    (("skyrl", "0.4.0", "value"), ROW_MEAN),
    (("openrlhf", "0.11.2", "value, token mean"), TOKEN_MEAN),
    (("openrlhf", "0.11.2", "value, sequence mean"), ROW_MEAN),
    (("areal", "1.0.4", "value"), TOKEN_MEAN),
    (("areal", "1.0.4", "value, huber"), TOKEN_MEAN),
]


@pytest.mark.parametrize("xp", [np, torch], ids=["numpy", "torch"])
@pytest.mark.parametrize(("name", "loss"), CASES, ids=[" ".join(case[0]) for case in CASES])
def test_hand_computed_numbers_replay(tmp_path: Path, name: tuple[str, str, str], loss: float, xp: Any) -> None:
    report, stage = replayed(written(tmp_path / "bundle", name, loss), xp)
    assert (report.verdict, stage.outcome) == (Verdict.PASSED, Outcome.PASSED)
    assert stage.verified_values == 6


def test_a_whole_batch_divides_instead(tmp_path: Path) -> None:
    path = written(tmp_path / "bundle", VERL_TOKENS, sum(LOSSES) / 10, whole_batch=WholeBatch(tokens=10))
    assert replayed(path)[1].outcome is Outcome.PASSED


@pytest.mark.parametrize(("at", "sample"), [(0, "s-0"), (4, "s-1")])
def test_a_planted_error_is_found_at_its_sample(tmp_path: Path, at: int, sample: str) -> None:
    def off(old: Any) -> Any:
        old[at] += 3
        return old

    right = written(tmp_path / "right", VERL_TOKENS, TOKEN_MEAN)
    report, stage = replayed(edit_bundle(right, tmp_path / "off", payload={"new_values": off}))
    first = report.first_divergence
    assert first is not None
    assert (first.stage, first.field, first.point.sample_id) == (StageId.LOSS_VALUE, "sample_value_loss", sample)
    assert "which token it is cannot be told" in stage.reason


def test_a_wrong_scalar_is_told_from_wrong_terms(tmp_path: Path) -> None:
    with_terms = replayed(written(tmp_path / "terms", VERL_TOKENS, 1.0))[1]
    assert "every sample's own terms agree: the scalar is wrong, or what it was divided by" in with_terms.reason
    without = replayed(written(tmp_path / "scalars", VERL_TOKENS, 1.0, terms=False))[1]
    assert "record each row's terms" in without.reason


def test_a_masked_value_may_be_anything(tmp_path: Path) -> None:
    def off(old: Any) -> Any:
        old[3] = 1e30
        return old

    right = written(tmp_path / "right", VERL_TOKENS, TOKEN_MEAN)
    assert replayed(edit_bundle(right, tmp_path / "off", payload={"new_values": off}))[1].outcome is Outcome.PASSED


def test_a_name_that_is_not_known_is_unsupported(tmp_path: Path) -> None:
    report, stage = replayed(written(tmp_path / "bundle", ("verl", "0.9.1", "no such"), TOKEN_MEAN))
    assert stage.outcome is Outcome.UNSUPPORTED
    assert "conventions.value_loss 'verl 0.9.1 no such' is not known" in stage.reason
    assert report.verdict is Verdict.PASSED


def test_it_is_no_key_of_format_1_0_0(tmp_path: Path) -> None:
    made = by_hand.writer(tmp_path / "plain")
    made.finalize()

    def expected(content: Json) -> None:
        content["loss.value"] = {"value_loss": 1.0}

    old = edit_bundle(tmp_path / "plain", tmp_path / "old", expected=expected)
    assert ["expected.json: loss.value: unknown key in format 1.0.0" in str(one) for one in validate(old).problems] == [
        True
    ]


def test_a_bundle_without_it_says_nothing_of_it(tmp_path: Path) -> None:
    named = Conventions(gamma=0.9)
    config = by_hand.CONFIG.model_copy(update={"conventions": named})
    by_hand.writer(tmp_path / "bundle", index=by_hand.index("bundle", config=config)).finalize()
    assert "value_loss" not in json.loads((tmp_path / "bundle" / "index.json").read_text())["config"]["conventions"]
    assert "loss.value" not in json.loads((tmp_path / "bundle" / "expected.json").read_text())
