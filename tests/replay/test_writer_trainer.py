"""A trainer writes its own bundles: the page that says how, what an independent reader finds, what is refused."""

import re
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from rollbook.replay.bundle.model import Capability, Config, StageId, World
from rollbook.replay.bundle.problems import BadBundle
from rollbook.replay.bundle.reading.cohort import read_bundle, read_cohort, validate
from rollbook.replay.bundle.writing.bundle_writer import BundleWriter
from rollbook.replay.bundle.writing.drafts import Draft
from rollbook.replay.bundle.writing.rows import Origin, index_of
from rollbook.replay.bundle.writing.writer import write_bundle, write_cohort
from rollbook.replay.engine.engine import replay_cohort
from rollbook.replay.engine.result import Verdict
from rollbook.schemas.errors import BadInput
from rollbook.tests.replay import independent_reader
from rollbook.tests.replay.by_hand import CONFIG, LOSS, PRODUCER, TENSORS, index, rows, writer
from rollbook.tests.replay.reseal import FIXTURES

PAGE = Path(__file__).parents[2] / "docs" / "write-a-bundle.md"
GOOD = ["full-k1", "full-k2", "full-k3", "full-low_var_kl", "full-nostd-kl0", "loss-only", "rollout", "pr65"]


def test_the_page_writes_a_bundle_that_replays(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (code,) = re.findall(r"```python\n(.*?)```", PAGE.read_text(), re.DOTALL)
    assert len(code.splitlines()) <= 30
    monkeypatch.chdir(tmp_path)
    exec(compile(code, str(PAGE), "exec"), {})
    assert validate(Path("bundles/step-7-0")).valid
    report = replay_cohort(read_cohort(Path("bundles/step-7-0")))
    assert report.verdict is Verdict.PASSED
    assert {stage.stage for stage in report.ranks[0].stages if stage.verified_values} >= {"loss.policy", "advantage.kl"}


@pytest.mark.parametrize("name", GOOD)
def test_the_independent_reader_accepts_the_fixtures_and_what_we_write_of_them(tmp_path: Path, name: str) -> None:
    theirs = independent_reader.read(FIXTURES / name)
    ours = independent_reader.read(write_bundle(tmp_path / "again", Draft.of(read_bundle(FIXTURES / name))))
    assert ours[0]["index"] == theirs[0]["index"]
    if name != "rollout":
        recorded = ours[0]["expected"]["loss.policy"]
        assert independent_reader.loss(ours[0]) == pytest.approx(recorded, rel=2e-5, abs=2e-6)


def test_the_independent_reader_accepts_several_ranks(tmp_path: Path) -> None:
    drafts = {bundle.rank: Draft.of(bundle) for bundle in read_cohort(FIXTURES / "two-rank").bundles}
    assert len(independent_reader.read(write_cohort(tmp_path / "again", drafts))) == 2


def test_the_independent_reader_accepts_what_a_trainer_writes(tmp_path: Path) -> None:
    finalized = writer(tmp_path / "step-7-0").finalize(ranks=[0])
    assert (finalized.published, finalized.missing_ranks) == (True, ())
    (found,) = independent_reader.read(tmp_path / "step-7-0")
    assert independent_reader.loss(found) == pytest.approx(LOSS, abs=1e-6)
    assert torch.equal(found["tensors"]["kl"], TENSORS["kl"])


def test_nothing_is_on_disk_before_finalize_and_it_may_be_called_again(tmp_path: Path) -> None:
    made = writer(tmp_path / "b")
    assert list(tmp_path.iterdir()) == []
    assert made.finalize() == made.finalize()
    with pytest.raises(BadInput, match="written already"):
        made.payload("returns", TENSORS["kl"])


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float64, torch.float32])
def test_any_width_of_float_and_any_shape_is_taken(tmp_path: Path, dtype: torch.dtype) -> None:
    made = BundleWriter(tmp_path / "b", index=index("b"), producer=PRODUCER)
    given = TENSORS["log_probs"].to(dtype).requires_grad_()
    made.payload("log_probs", given[None, :])
    made.finalize()
    assert np.array_equal(read_bundle(tmp_path / "b").tensors["log_probs"], given.detach().float().numpy())


def test_what_was_given_is_copied(tmp_path: Path) -> None:
    mine = TENSORS["kl"].clone()
    made = BundleWriter(tmp_path / "b", index=index("b"), producer=PRODUCER)
    made.payload("kl", mine)
    mine.zero_()
    made.finalize()
    assert np.array_equal(read_bundle(tmp_path / "b").tensors["kl"], TENSORS["kl"].numpy())


def test_promises_are_of_what_was_recorded(tmp_path: Path) -> None:
    made = BundleWriter(tmp_path / "b", index=index("b"), producer=PRODUCER)
    made.payload("advantages", TENSORS["advantages"])
    made.expect(raw_rewards=[1.0, 0.0])
    made.finalize()
    contracts = read_bundle(tmp_path / "b").manifest.stage_contracts
    assert set(contracts) == {"sample", "reward.raw", "advantage.estimate"}


def test_what_no_kernel_computes_is_promised_as_unsupported(tmp_path: Path) -> None:
    shards = index("b", origin=Origin(world=World(cp=2)))
    writer(tmp_path / "b", index=shards).finalize()
    contracts = read_bundle(tmp_path / "b").manifest.stage_contracts
    assert contracts[StageId.LOSS_POLICY].capability is Capability.UNSUPPORTED
    assert contracts[StageId.REWARD_RAW].capability is Capability.RECOMPUTE


def test_a_promise_that_is_not_kept_is_refused(tmp_path: Path) -> None:
    made = BundleWriter(tmp_path / "b", index=index("b"), producer=PRODUCER)
    made.promise(StageId.LOSS_POLICY)
    assert any("payloads.old_log_probs: missing" in str(problem) for problem in made.check())
    with pytest.raises(BadBundle, match="missing"):
        made.finalize()
    assert list(tmp_path.iterdir()) == []


def test_a_rollout_has_no_loss(tmp_path: Path) -> None:
    writer(tmp_path / "b", index=index("b", step_id=None)).finalize()
    report = replay_cohort(read_cohort(tmp_path / "b"))
    assert report.verdict is Verdict.PASSED


REFUSED: list[tuple[str, dict[str, Any], str]] = [
    ("a mask too short", {"loss_mask": [1, 1]}, "samples.loss_mask: 2 values for 5 response tokens"),
    ("a mask of halves", {"loss_mask": [1, 1, 0.5, 1, 1]}, "samples.loss_mask: has a value that is no whole number"),
    ("a mask of twos", {"loss_mask": [1, 1, 2, 1, 1]}, "samples.loss_mask: a value other than 0 and 1"),
    ("a negative length", {"response_lengths": [-1, 6]}, "samples.loss_mask"),
    ("rewards too few", {"rewards": [0.5]}, "samples.reward: 1 values for 2 sample_ids"),
    ("groups too few", {"group_index": [0]}, "samples.group_index: 1 values"),
    ("labels too many", {"labels": ["a", "b", "c"]}, "samples.label_hash: 3 values"),
    ("a reward that is no number", {"raw_rewards": [1.0, float("nan")]}, "raw_reward: it must be finite"),
    ("an empty id", {"sample_ids": ["s-0", ""]}, "sample_id"),
    ("rewards as texts", {"rewards": ["a", "b"]}, "samples.reward: has a value that is no number"),
    ("lengths as texts", {"total_lengths": ["a", "b"]}, "samples.total_length: has a value"),
]


@pytest.mark.parametrize(("columns", "named"), [case[1:] for case in REFUSED], ids=[case[0] for case in REFUSED])
def test_rows_that_are_no_rows_are_refused_by_field(columns: dict[str, Any], named: str) -> None:
    with pytest.raises(BadBundle) as refused:
        index_of("b", rows(**columns), CONFIG, rollout_id=7, step_id=0)
    assert named in str(refused.value)
    assert "\n" not in str(refused.value)


def test_a_result_that_is_no_number_is_refused_by_field(tmp_path: Path) -> None:
    made = BundleWriter(tmp_path / "b", index=index("b"), producer=PRODUCER)
    with pytest.raises(BadBundle, match=r"expected.json: loss: it must be finite"):
        made.expect(loss={**LOSS, "loss": torch.tensor(float("inf"))})
    with pytest.raises(BadBundle, match=r"expected.json: ppo_kl: missing"):
        made.expect(loss={name: value for name, value in LOSS.items() if name != "ppo_kl"})


def test_what_is_no_number_is_refused_by_name(tmp_path: Path) -> None:
    made = BundleWriter(tmp_path / "b", index=index("b"), producer=PRODUCER)
    cases: list[tuple[Callable[[], object], str]] = [
        (lambda: made.payload("kl", ["hunter2"]), "manifest.json: payloads.kl: not numbers"),
        (lambda: made.terms("ppo_kl", object()), "rollbook-terms.json: terms.ppo_kl: not numbers"),
        (lambda: made.expect(raw_rewards=["hunter2"]), "expected.json: raw_rewards: not numbers"),
        (lambda: made.expect(loss={**LOSS, "loss": torch.zeros(2)}), "expected.json: loss.policy.loss: not numbers"),
    ]
    for call, told in cases:
        with pytest.raises(BadBundle, match=re.escape(told)) as refused:
            call()
        assert "hunter2" not in str(refused.value)


def test_twice_given_is_refused(tmp_path: Path) -> None:
    made = writer(tmp_path / "b")
    with pytest.raises(BadInput, match=r"payloads.kl was given already"):
        made.payload("kl", TENSORS["kl"])


def test_terms_name_the_sample(tmp_path: Path) -> None:
    made = writer(tmp_path / "b")
    made.terms("ppo_kl", torch.tensor([-0.05, -0.05]))
    made.finalize()
    assert read_bundle(tmp_path / "b").terms["ppo_kl"].tolist() == [float(np.float32(-0.05))] * 2


def test_it_imports_neither_torch_nor_kafka_nor_the_command_line() -> None:
    code = (
        "import sys, rollbook.replay.bundle.writing.bundle_writer, rollbook.replay.bundle.writing.rows;"
        "found = {'torch', 'confluent_kafka', 'typer', 'rich', 'fastavro'} & sys.modules.keys();"
        "assert not found, found"
    )
    subprocess.run([sys.executable, "-c", code], check=True)


def test_the_config_is_typed() -> None:
    with pytest.raises(ValueError, match="advantage_estimator"):
        Config.model_validate({**CONFIG.model_dump(), "advantage_estimator": ""})
