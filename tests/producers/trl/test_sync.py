"""The synchronous trainer: it trains as without the ledger, and its optimizer steps can be computed again."""

import os
from collections.abc import Sequence
from importlib.metadata import version
from pathlib import Path

import pytest

pytest.importorskip("trl", reason="TRL is not installed: install rollbook[trl]")

from rollbook.infra.settings import Settings, Topic
from rollbook.producers import Options, new_id
from rollbook.producers.trl import LedgerRun, StepFacts, reading
from rollbook.replay.bundle.model import StageId
from rollbook.replay.bundle.reading.cohort import read_bundle, read_cohort
from rollbook.replay.engine.chain import replay_chain
from rollbook.replay.engine.engine import replay_cohort
from rollbook.replay.engine.result import Outcome as StageOutcome
from rollbook.replay.engine.result import Verdict
from rollbook.schemas.records.decision import Decision, Outcome
from rollbook.schemas.records.run import Enforcement
from rollbook.tests.producers.trl.replayed import bundles_of, replays
from rollbook.tests.producers.trl.sampler import Sampler
from rollbook.tests.producers.trl.tiny import Shape, fingerprint, make, model, train
from rollbook.tests.producers.world import PATIENT, read_topic

LOSSES = ("grpo", "dapo", "dr_grpo", "bnpo", "cispo", "sapo")
SCALES = ("group", "batch", "none")
EVERY = [(loss, scale) for loss in LOSSES for scale in SCALES]
FEW = [
    ("grpo", "group"),
    ("dapo", "batch"),
    ("dr_grpo", "none"),
    ("bnpo", "group"),
    ("cispo", "group"),
    ("sapo", "none"),
]
ALL = bool(os.environ.get("ROLLBOOK_TRL_ALL"))
CHOSEN = EVERY if ALL else FEW
MORE = [
    Shape("grpo", options={"beta": 0.04, "use_bias_correction_kl": True, "delta": 1.001}),
    Shape("bnpo", options={"entropy_coef": 0.01, "top_entropy_quantile": 0.5, "off_policy_mask_threshold": 0.001}),
    Shape("dr_grpo", options={"use_adaptive_entropy": True, "entropy_target": 3.2, "entropy_coef": 0.1}),
    Shape("vespo", "batch", options={"beta": 0.04, "vespo_k_pos": 1.0, "vespo_lambda_neg": 1.0}),
    Shape("luspo", "none", options={"importance_sampling_level": "sequence"}),
    Shape("dapo", options={"importance_sampling_level": "sequence", "entropy_coef": 0.01}),
]
SAMPLED = [
    Shape(
        "grpo", options={"vllm_importance_sampling_mode": "token_truncate", "vllm_importance_sampling_clip_max": 1.1}
    ),
    Shape("dapo", options={"vllm_importance_sampling_mode": "sequence_mask", "vllm_importance_sampling_clip_max": 1.1}),
    Shape("vespo", options={"vllm_importance_sampling_mode": "token_mask", "vllm_importance_sampling_clip_max": 1.1}),
    Shape("bnpo", options={"vllm_importance_sampling_correction": False, "off_policy_mask_threshold": 0.01}),
]


def ledger(settings: Settings, enforcement: Enforcement, seen: list[StepFacts] | None = None) -> LedgerRun:
    return LedgerRun(
        settings,
        f"trl-{new_id()}",
        enforcement=enforcement,
        options=PATIENT,
        on_step=None if seen is None else seen.append,
    )


def decisions(run: LedgerRun) -> list[Decision]:
    found = [one.record for one in read_topic(run.settings, Topic.DECISIONS) if one.key == run.run_id.encode()]
    return [one for one in found if isinstance(one, Decision)]


def accepted(found: Sequence[Decision], record_type: str) -> int:
    return sum(one.record_type == record_type and one.outcome is Outcome.ACCEPTED for one in found)


@pytest.mark.parametrize("enforcement", list(Enforcement))
def test_the_final_weights_are_those_of_plain_trl_and_the_log_tells_of_every_update(
    processed: Settings, tmp_path: Path, enforcement: Enforcement
) -> None:
    plain = fingerprint(train(tmp_path, Shape()))
    run = ledger(processed, enforcement)
    recorded = train(tmp_path, Shape(), run)
    assert fingerprint(recorded) == plain
    assert recorded.ledger_lost == 0
    found = decisions(run)
    assert [(one.record_type, one.reason) for one in found if one.outcome is Outcome.REJECTED or one.violation] == []
    # Eight optimizer steps: two buffers of eight completions, each two passes of two steps.
    assert [accepted(found, kind) for kind in ("Generated", "Reserve", "Admit", "UpdateStarted", "Commit")] == [
        16,
        2,
        2,
        2,
        2,
    ]
    assert accepted(found, "PolicyPrepared") == accepted(found, "Activate") == accepted(found, "RecordingSealed") == 2


@pytest.mark.parametrize(
    ("loss", "scale", "iterations"),
    [*((*one, 1) for one in CHOSEN), *((*one, 2) for one in (CHOSEN if ALL else CHOSEN[:2]))],
)
def test_every_optimizer_step_is_computed_again_out_of_the_log(
    processed: Settings, tmp_path: Path, loss: str, scale: str, iterations: int
) -> None:
    enforcement = Enforcement.GATE if iterations == 1 else Enforcement.OBSERVE
    run, shape = ledger(processed, enforcement), Shape(loss, scale, iterations)
    train(tmp_path / "run", shape, run)
    report = bundles_of(run, tmp_path / "bundles")
    assert (report.problems, report.without_update) == ((), ())
    assert len(report.steps) == shape.steps
    assert len(report.written) == shape.steps + shape.steps // (2 * iterations)
    for written in report.written:
        replays(written.path, shape)
    assert replay_chain(tmp_path / "bundles").verdict is Verdict.PASSED


def test_advantages_that_no_convention_computes_are_shown_and_the_loss_is_computed_again(
    processed: Settings, tmp_path: Path
) -> None:
    run = ledger(processed, Enforcement.GATE)
    shape = Shape(iterations=1, steps=4, options={"multi_objective_aggregation": "normalize_then_sum"})
    train(tmp_path / "run", shape, run)
    report = bundles_of(run, tmp_path / "bundles")
    assert (report.problems, len(report.steps)) == ((), shape.steps)
    for written in report.steps:
        result = replay_cohort(read_cohort(written.path))
        assert result.verdict is Verdict.PASSED
        outcomes = {stage.stage: stage.outcome for stage in result.ranks[0].stages}
        assert outcomes[StageId.LOSS_POLICY] is StageOutcome.PASSED
        assert outcomes[StageId.REWARD_POST_PROCESS] is not StageOutcome.PASSED
        assert outcomes[StageId.ADVANTAGE_ESTIMATE] is not StageOutcome.PASSED


@pytest.mark.parametrize(
    "shape", MORE if ALL else MORE[:2], ids=lambda shape: f"{shape.loss} {' '.join(shape.options)}"
)
def test_whatever_else_a_training_chooses_of_its_loss_is_stated_and_computed_again(
    processed: Settings, tmp_path: Path, shape: Shape
) -> None:
    run, initial = ledger(processed, Enforcement.GATE), model()
    initial.save_pretrained(tmp_path / "initial")
    initial.config._name_or_path = str(tmp_path / "initial")  # where TRL takes its reference model from
    make(tmp_path / "run", shape, run, model=initial).train()
    report = bundles_of(run, tmp_path / "bundles")
    assert (report.problems, report.without_update, len(report.steps)) == ((), (), shape.steps)
    for written in report.written:
        replays(written.path, shape)


@pytest.mark.parametrize("shape", SAMPLED if ALL else SAMPLED[:1], ids=lambda shape: shape.loss)
def test_what_a_sampler_is_corrected_by_is_computed_again(
    processed: Settings, tmp_path: Path, shape: Shape, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(reading, "version", lambda name: "0" if name == "vllm" else version(name))
    run = ledger(processed, Enforcement.GATE)
    has_gaps = "off_policy_mask_threshold" not in shape.options  # of which TRL makes no distance there
    trainer = make(tmp_path / "run", shape, run, rollout_func=Sampler(drifts=(0.02, 0.2), unscored=has_gaps))
    trainer.use_vllm, trainer._last_loaded_step, trainer.vllm_generation = True, -1, Loaded()
    trainer.train()
    report = bundles_of(run, tmp_path / "bundles")
    assert (report.problems, report.without_update, len(report.steps)) == ((), (), shape.steps)
    for written in report.written:
        replays(written.path, shape)
    assert "rollout_log_probs" in read_bundle(report.steps[0].path).tensors


class Loaded:
    """As much of TRL's vLLM as there is to a training whose completions come from elsewhere."""

    def sync_weights(self) -> None:
        return


@pytest.mark.parametrize(
    ("loss", "scale", "enforcement"), [("dapo", "batch", Enforcement.GATE), ("bnpo", "group", Enforcement.OBSERVE)]
)
def test_completions_that_nothing_scored_are_in_the_bundles_and_measured_nowhere(
    processed: Settings, tmp_path: Path, loss: str, scale: str, enforcement: Enforcement
) -> None:
    run, shape = ledger(processed, enforcement), Shape(loss, scale, 1)
    make(tmp_path / "run", shape, run, reward_funcs=[picky]).train()
    report = bundles_of(run, tmp_path / "bundles")
    assert (report.problems, report.without_update, len(report.steps)) == ((), (), shape.steps)
    unmeasured = 0
    for written in report.written:
        replays(written.path, shape)
        index = read_bundle(written.path).index
        nowhere = {one.sample_id for one in index.unmeasured or ()}
        unmeasured += len(nowhere)
        rows = [one for one in index.samples if one.sample_id in nowhere]
        assert all(one.reward == one.raw_reward == 0 for one in rows)
        assert not any(any(one.loss_mask) for one in rows if enforcement is Enforcement.GATE)
    assert unmeasured > 0


def picky(completions: list[str], **_: object) -> list[float | None]:
    return [None if text[:1] in "aeiou" else len(set(text)) / 8 for text in completions]


def test_a_broker_that_is_dead_costs_an_observed_training_a_warning(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    plain = fingerprint(train(tmp_path, Shape()))
    options = Options(connect_timeout_s=0.5, close_timeout_s=1.0)
    nowhere = Settings(bootstrap_servers="127.0.0.1:9")
    run = LedgerRun(nowhere, f"trl-{new_id()}", enforcement=Enforcement.OBSERVE, options=options)
    recorded = train(tmp_path, Shape(), run)
    assert fingerprint(recorded) == plain
    assert "training goes on unrecorded" in caplog.text
    assert recorded.ledger_lost == 20, "two buffers taken and finished, eight steps begun and made"
