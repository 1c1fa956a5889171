"""Corners of the synchronous trainer: rows that are refused, without a reward, hidden or a tool's; evaluation, a stream
of prompts, a buffer that is not used up."""

import os
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

pytest.importorskip("trl", reason="TRL is not installed: install rollbook[trl]")

from rollbook.infra.settings import Settings, Topic
from rollbook.producers import Coordinator, Options, StartAnew, new_id
from rollbook.producers.trl import LedgerRun, StepFacts
from rollbook.producers.trl.books import GateBooks
from rollbook.producers.trl.clients import RunIsUsed
from rollbook.producers.trl.reading import policy_of
from rollbook.replay.history.kafka import KafkaLog
from rollbook.replay.materialize.materialize import Wanted, materialize
from rollbook.schemas.errors import BadInput
from rollbook.schemas.records.decision import Outcome
from rollbook.schemas.records.policy import PolicyPrepared
from rollbook.schemas.records.run import Enforcement
from rollbook.schemas.records.update import Commit
from rollbook.tests.producers.trl.records import accepted, check_consistent, decisions, records
from rollbook.tests.producers.trl.replayed import replays
from rollbook.tests.producers.trl.sampler import Sampler, masking
from rollbook.tests.producers.trl.tiny import Shape, datasets, fingerprint, make, transformers, vowels
from rollbook.tests.producers.world import PATIENT

ALL = bool(os.environ.get("ROLLBOOK_TRL_ALL"))


def ledger(settings: Settings, enforcement: Enforcement = Enforcement.GATE, **limits: Any) -> LedgerRun:
    return LedgerRun(settings, f"trl-{new_id()}", enforcement=enforcement, options=PATIENT, **limits)


def trained(folder: Path, shape: Shape, run: LedgerRun | None = None, **changed: Any) -> Any:
    trainer = make(folder, shape, run, **changed)
    trainer.train()
    return trainer


def refusals(settings: Settings, run: LedgerRun) -> list[tuple[str, str]]:
    return [
        (one.record_type, one.reason)
        for one in decisions(settings, run.run_id)
        if one.outcome is Outcome.REJECTED or one.violation
    ]


def check_replay(run: LedgerRun, folder: Path, shape: Shape) -> None:
    """Every optimizer step and every update can be computed again out of the log."""
    with KafkaLog(run.settings) as log:
        report = materialize(log, Wanted.of_run(run.run_id, log, run.settings), folder)
    assert (report.problems, report.without_update, len(report.steps)) == ((), (), shape.steps)
    for written in report.written:
        replays(written.path, shape)


@pytest.mark.parametrize("loss", ["dapo", "grpo"])
def test_rows_that_drifted_leave_the_loss_and_nothing_else_changes(
    processed: Settings, tmp_path: Path, loss: str
) -> None:
    sampler = Sampler(drifts=(0.02, 0.02, 0.02, 5.0, 0.02, 0.02, 0.02, 0.02))
    shape = Shape(loss)
    plain = masking(make(tmp_path / "plain", shape, rollout_func=sampler), [3])
    plain.train()
    run = ledger(processed, max_mean_abs_log_ratio=0.1)
    trainer = trained(tmp_path / "with", shape, run, rollout_func=sampler)
    assert fingerprint(trainer) == fingerprint(plain)
    admits = [one for one in decisions(processed, run.run_id) if one.record_type == "Admit"]
    assert [[item.reason for item in one.items] for one in admits] == [
        ["ok", "ok", "ok", "policy_drift", "ok", "ok", "ok", "ok"]
    ] * 2
    figures = [item.mean_abs_log_ratio for one in admits for item in one.items]
    assert figures == pytest.approx([*[0.02] * 3, 5.0, *[0.02] * 4] * 2, abs=1e-5)
    refused = {item.trajectory_id for one in admits for item in one.items if item.reason != "ok"}
    commits = [one for one in records(processed, Topic.LIFECYCLE, run.run_id) if isinstance(one, Commit)]
    assert not refused.intersection(name for one in commits for step in one.steps for name in step.trajectory_ids)
    check_replay(run, tmp_path / "bundles", shape)


def test_rows_that_another_client_takes_away_leave_the_loss(
    processed: Settings, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    publish = GateBooks._publish
    run = ledger(processed)

    def published(self: GateBooks, generation: Any) -> None:
        publish(self, generation)
        with Coordinator(processed, run.run_id, "operator", options=PATIENT) as operator:
            operator.quarantine([generation.rows[at].trajectory_id for at in (0, 5)], "suspicious")

    sampler = Sampler()
    plain = masking(make(tmp_path / "plain", Shape(), rollout_func=sampler), [0, 5])
    plain.train()
    monkeypatch.setattr(GateBooks, "_publish", published)
    trainer = trained(tmp_path / "with", Shape(), run, rollout_func=sampler)
    assert fingerprint(trainer) == fingerprint(plain)
    reserved = [one for one in decisions(processed, run.run_id) if one.record_type == "Reserve"]
    assert [[item.reason == "reserved" for item in one.items] for one in reserved] == [
        [False, True, True, True, True, False, True, True]
    ] * 2


def test_a_step_of_which_nothing_is_left_ends_the_training(processed: Settings, tmp_path: Path) -> None:
    run = ledger(processed, max_mean_abs_log_ratio=0.1)
    sampler = Sampler(drifts=(5.0, 5.0, 5.0, 5.0, 5.0, 5.0, 5.0, 0.0))
    trainer = make(tmp_path, Shape(), run, rollout_func=sampler)
    with pytest.raises(StartAnew) as raised:
        trainer.train()
    assert "the ledger refused all of its rows" in str(raised.value.__cause__)
    assert accepted(decisions(processed, run.run_id), "Commit") == 0


def test_tool_tokens_are_a_tools_and_a_samplers_gaps_the_trainers(processed: Settings, tmp_path: Path) -> None:
    sampler, shape = Sampler(tools=True, unscored=True), Shape("grpo")
    plain = trained(tmp_path / "plain", shape, rollout_func=sampler)
    seen: list[StepFacts] = []
    run = ledger(processed, on_step=seen.append)
    trainer = trained(tmp_path / "with", shape, run, rollout_func=sampler)
    assert fingerprint(trainer) == fingerprint(plain)
    assert refusals(processed, run) == []
    rows = seen[0].generation.rows
    for row in rows:
        assert (
            row.action_mask.tolist()
            == row.loss_mask.tolist()
            == [True, False, False, *[True] * (len(row.behavior) - 3)]
        )
    assert rows[0].behavior[0] == rows[0].current[0]
    assert np.abs(rows[1].behavior - rows[1].current)[0] == pytest.approx(0.02, abs=1e-5)
    (admit, _) = (one for one in decisions(processed, run.run_id) if one.record_type == "Admit")
    lengths = [int(row.action_mask.sum()) for row in rows]
    expected = [0.02 * (lengths[0] - 1) / lengths[0], *[0.02] * 7]
    assert [item.mean_abs_log_ratio for item in admit.items] == pytest.approx(expected, abs=1e-5)
    check_replay(run, tmp_path / "bundles", shape)


def silent(completions: list[str], **_: Any) -> list[float | None]:
    """No opinion on the first four of a buffer's rows, nor on the last."""
    return [None if at < 4 or at == 7 else reward for at, reward in enumerate(vowels(completions))]


@pytest.mark.parametrize("enforcement", list(Enforcement))
def test_what_no_function_has_an_opinion_on_is_a_failed_reward(
    processed: Settings, tmp_path: Path, enforcement: Enforcement
) -> None:
    """A group without a reward gives TRL's step no gradient: to the ledger it is no step, and no error."""
    shape, run = Shape("grpo"), ledger(processed, enforcement)
    plain = trained(tmp_path / "plain", shape, reward_funcs=[silent])
    trainer = trained(tmp_path / "with", shape, run, reward_funcs=[silent])
    assert fingerprint(trainer) == fingerprint(plain)
    found = decisions(processed, run.run_id)
    assert (accepted(found, "RewardFailed"), accepted(found, "Commit")) == (10, 2)
    if enforcement is Enforcement.GATE:
        assert refusals(processed, run) == []
        commits = [one for one in records(processed, Topic.LIFECYCLE, run.run_id) if isinstance(one, Commit)]
        reserved = [item for one in found if one.record_type == "Reserve" for item in one.items]
        assert {name for one in commits for step in one.steps for name in step.trajectory_ids} == {
            item.trajectory_id for item in reserved if item.reason == "reserved"
        }
        assert sum(item.reason == "not_rewarded" for item in reserved) == 10
    else:
        # It trained, by TRL's account, on rows without a reward: so the ledger says.
        assert (
            refusals(processed, run)
            == [
                ("Reserve", "not_rewarded"),
                ("Admit", "not_reserved"),
                ("Commit", "not_held"),
            ]
            * 2
        )


def only_the_first(completions: list[str], **_: Any) -> list[float | None]:
    return [0.5 if at == 0 else None for at, _ in enumerate(completions)]


def test_a_step_that_is_none_does_not_move_the_others_into_another_pass(processed: Settings, tmp_path: Path) -> None:
    seen: list[StepFacts] = []
    run = ledger(processed, on_step=seen.append)
    trained(tmp_path, Shape(), run, reward_funcs=[only_the_first])
    assert [(one.generation.rollout_id, one.step_id, one.epoch) for one in seen] == [
        (0, 0, 0),
        (0, 1, 1),
        (1, 0, 0),
        (1, 1, 1),
    ]


def nothing(completions: list[str], **_: Any) -> list[float | None]:
    return [None] * len(completions)


def test_a_buffer_without_any_reward_is_no_update(processed: Settings, tmp_path: Path) -> None:
    run = ledger(processed)
    plain, trainer = (trained(tmp_path, Shape(), given, reward_funcs=[nothing]) for given in (None, run))
    assert fingerprint(trainer) == fingerprint(plain)
    found = decisions(processed, run.run_id)
    assert [accepted(found, kind) for kind in ("RewardFailed", "Reserve", "Activate")] == [16, 0, 2]
    assert refusals(processed, run) == []


@pytest.mark.parametrize("enforcement", list(Enforcement) if ALL else [Enforcement.GATE])
def test_completions_that_were_cut_off_are_dropped(
    processed: Settings, tmp_path: Path, enforcement: Enforcement
) -> None:
    shape = Shape(options={"mask_truncated_completions": True})
    sampler = Sampler(is_cut=True)
    plain = trained(tmp_path / "plain", shape, rollout_func=sampler)
    seen: list[StepFacts] = []
    run = ledger(processed, enforcement, on_step=seen.append)
    trainer = trained(tmp_path / "with", shape, run, rollout_func=sampler)
    assert fingerprint(trainer) == fingerprint(plain)
    assert refusals(processed, run) == []
    rows = seen[0].generation.rows
    cut = {row.trajectory_id for row in rows if not row.is_stopped}
    assert len(cut) == 3
    assert all(not row.loss_mask.any() for row in rows if row.trajectory_id in cut)
    # The trainer's log-probs of them are those of their text, which TRL has hidden from its own forward pass.
    assert all(np.abs(row.behavior - row.current).max() < 0.03 for row in rows)
    commit = next(one for one in records(processed, Topic.LIFECYCLE, run.run_id) if isinstance(one, Commit))
    assert {(one.trajectory_id, one.reason, one.disposition.value) for one in commit.dropped} == {
        (name, "cut_off", "discard") for name in cut
    }
    check_replay(run, tmp_path / "bundles", shape)


@pytest.mark.parametrize("enforcement", list(Enforcement) if ALL else [Enforcement.GATE])
def test_a_training_that_ends_within_a_buffer_releases_what_it_did_not_use(
    processed: Settings, tmp_path: Path, enforcement: Enforcement
) -> None:
    run = ledger(processed, enforcement)
    make(tmp_path, Shape(steps=5), run).train()
    first, last = (one for one in records(processed, Topic.LIFECYCLE, run.run_id) if isinstance(one, Commit))
    assert (len(first.steps), len(first.dropped)) == (4, 0)
    assert (len(last.steps), [(one.reason, one.disposition.value) for one in last.dropped]) == (
        1,
        [("unused", "release")] * 4,
    )
    assert refusals(processed, run) == []


def test_evaluation_is_not_recorded_and_does_not_disturb(processed: Settings, tmp_path: Path) -> None:
    shape = Shape(
        options={"eval_strategy": "steps", "eval_steps": 3, "per_device_eval_batch_size": 4, "eval_on_start": True}
    )
    prompts = datasets.Dataset.from_dict({"prompt": ["ab ", "cd "]})
    run = ledger(processed)
    plain, trainer = (trained(tmp_path, shape, given, eval_dataset=prompts) for given in (None, run))
    assert fingerprint(trainer) == fingerprint(plain)
    assert accepted(decisions(processed, run.run_id), "Generated") == 16
    assert refusals(processed, run) == []


def test_prompts_may_be_a_stream(processed: Settings, tmp_path: Path) -> None:
    listed = datasets.Dataset.from_dict({"prompt": [f"{one}{two} " for one in "abcd" for two in "xyz"]})
    run = ledger(processed)
    shape = Shape(options={"accelerator_config": {"dispatch_batches": False}})
    plain, trainer = (
        trained(tmp_path, shape, given, train_dataset=listed.to_iterable_dataset()) for given in (None, run)
    )
    assert fingerprint(trainer) == fingerprint(plain)
    assert accepted(decisions(processed, run.run_id), "Commit") == 2
    assert refusals(processed, run) == []


def test_a_policy_is_what_its_update_made_also_where_the_best_checkpoint_is_loaded_at_the_end(
    processed: Settings, tmp_path: Path
) -> None:
    shape = Shape(
        options={
            "eval_strategy": "steps",
            "eval_steps": 1,
            "per_device_eval_batch_size": 4,
            "save_strategy": "steps",
            "save_steps": 1,
            "load_best_model_at_end": True,
            "metric_for_best_model": "eval_loss",
        }
    )
    run = ledger(processed)
    made: dict[int, str] = {}

    class Watch(transformers.TrainerCallback):  # type: ignore[misc]  # where TRL is not installed it is Any
        def on_step_end(self, _: Any, state: Any, *__: Any, **___: Any) -> None:
            made[state.global_step] = policy_of(trainer).artifact_hash

        def on_evaluate(self, _: Any, state: Any, control: Any, **__: Any) -> None:
            control.should_training_stop = state.global_step == 3

        def on_save(self, _: Any, state: Any, *__: Any, **___: Any) -> None:
            state.best_model_checkpoint = str(tmp_path / "checkpoint-2")

    prompts = datasets.Dataset.from_dict({"prompt": ["ab ", "cd "]})
    trainer = make(tmp_path, shape, run, eval_dataset=prompts)
    trainer.add_callback(Watch())
    trainer.train()
    assert policy_of(trainer).artifact_hash == made[2]
    (prepared,) = (one for one in records(processed, Topic.LIFECYCLE, run.run_id) if isinstance(one, PolicyPrepared))
    assert (prepared.version, prepared.artifact.hash) == (3, made[3])


@pytest.mark.parametrize("enforcement", list(Enforcement))
def test_a_script_that_is_run_again_undoes_nothing(
    processed: Settings, tmp_path: Path, caplog: pytest.LogCaptureFixture, enforcement: Enforcement
) -> None:
    shape, run = Shape(iterations=1, steps=4), ledger(processed, enforcement)
    first = trained(tmp_path / "first", shape, run)
    told = len(decisions(processed, run.run_id))
    again = make(tmp_path / "again", shape, run)
    if enforcement is Enforcement.GATE:
        with pytest.raises(RunIsUsed, match="give a run_id of its own, or go on from a checkpoint"):
            again.train()
    else:
        again.train()
        assert fingerprint(again) == fingerprint(first)
        assert "a training has begun in run" in caplog.text
    assert len(decisions(processed, run.run_id)) == told
    check_consistent(processed, run.run_id)


def test_a_run_is_of_one_learner(processed: Settings, tmp_path: Path) -> None:
    shape, run = Shape(iterations=1, steps=2), ledger(processed)
    trained(tmp_path / "first", shape, run)
    with pytest.raises(RunIsUsed, match="a training has begun in run"):
        make(tmp_path / "other", shape, replace(run, learner_id="other")).train()
    check_consistent(processed, run.run_id)


def test_reward_functions_of_one_name_are_told_apart(processed: Settings, tmp_path: Path) -> None:
    seen: list[StepFacts] = []
    run = ledger(processed, on_step=seen.append)
    functions = [lambda completions, **_: [1.0] * len(completions), lambda completions, **_: [2.0] * len(completions)]
    trained(tmp_path, Shape(iterations=1, steps=2), run, reward_funcs=functions)
    assert {tuple(row.components.items()) for row in seen[0].generation.rows} == {
        (("<lambda>", 1.0), ("<lambda> 2", 2.0))
    }


def test_a_mode_is_known_by_its_value_and_a_ledger_is_nothing_else(tmp_path: Path) -> None:
    nowhere = Settings(bootstrap_servers="127.0.0.1:9")
    by_value: Any = "observe"
    assert LedgerRun(nowhere, "run", enforcement=by_value).enforcement is Enforcement.OBSERVE
    by_value = "watch"
    with pytest.raises(BadInput, match="enforcement is 'watch', it must be one of gate, observe"):
        LedgerRun(nowhere, "run", enforcement=by_value)
    name: Any = "run-1"
    with pytest.raises(BadInput, match="ledger is a str: give the trainer a LedgerRun"):
        make(tmp_path, Shape(), name)


def test_a_step_that_goes_twice_through_its_rows_is_refused(tmp_path: Path) -> None:
    shape = Shape(steps=2, accumulation=4, options={"steps_per_generation": 2})
    with pytest.raises(BadInput, match="goes more than once through the 2 of a generation"):
        make(tmp_path, shape, ledger(Settings(bootstrap_servers="127.0.0.1:9"))).train()


def test_a_buffer_that_is_no_whole_number_of_steps_is_refused_and_observed_unrecorded(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    shape = Shape(iterations=1, steps=2, options={"gradient_accumulation_steps": 3})
    nowhere = Settings(bootstrap_servers="127.0.0.1:9")
    with pytest.raises(BadInput, match="4 micro-batches is no whole number of optimizer steps of 3"):
        make(tmp_path, shape, ledger(nowhere)).train()
    plain = trained(tmp_path, shape)
    observed = trained(tmp_path, shape, LedgerRun(nowhere, "run", enforcement=Enforcement.OBSERVE, options=Options()))
    assert fingerprint(observed) == fingerprint(plain)
    assert "training goes on unrecorded: a generation buffer of 4" in caplog.text
