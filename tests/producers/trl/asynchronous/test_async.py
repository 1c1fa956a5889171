"""The asynchronous trainer: it trains as without the ledger, and on nothing that the ledger refuses."""

import os
from collections import Counter
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("trl", reason="TRL is not installed: install rollbook[trl]")

from rollbook.infra.settings import Settings, Topic
from rollbook.producers import Options, Trainer, new_id
from rollbook.producers.reading.ledger_topic import read_states
from rollbook.producers.redaction.policy import Redaction, Treatment
from rollbook.producers.trl import Generation, LedgerRun, StepFacts
from rollbook.producers.trl.asynchronous.books import AsyncGateBooks
from rollbook.replay.bundle.model import StageId
from rollbook.replay.bundle.reading.cohort import read_cohort
from rollbook.replay.engine.engine import replay_cohort
from rollbook.replay.engine.result import Outcome, Verdict
from rollbook.schemas.errors import BadInput
from rollbook.schemas.records.decision import Decision
from rollbook.schemas.records.decision import Outcome as Decided
from rollbook.schemas.records.ledger import TrajectoryState
from rollbook.schemas.records.policy import PolicyPrepared
from rollbook.schemas.records.reward import Discarded, DiscardReason
from rollbook.schemas.records.rollout import Generated, Origin
from rollbook.schemas.records.run import Enforcement
from rollbook.schemas.records.update import Commit, ReserveItem
from rollbook.tests.producers.trl.asynchronous.small import LedgerTrainer, MaskingTrainer, Shape, on_cpu, train
from rollbook.tests.producers.trl.records import check_consistent
from rollbook.tests.producers.trl.replayed import bundles_of
from rollbook.tests.producers.trl.tiny import fingerprint, model, torch
from rollbook.tests.producers.world import PATIENT, read_topic

__all__ = ["on_cpu"]
ALL = bool(os.environ.get("ROLLBOOK_TRL_ALL"))
pytestmark = pytest.mark.usefixtures("on_cpu")


def ledger(settings: Settings, enforcement: Enforcement = Enforcement.GATE, **limits: Any) -> LedgerRun:
    given = {"max_lag": 4, **limits}
    options = replace(PATIENT, redaction=Redaction(texts=Treatment.KEEP))
    return LedgerRun(settings, f"trl-{new_id()}", enforcement=enforcement, options=options, **given)


def records(run: LedgerRun, topic: Topic, kind: type) -> list[Any]:
    found = [one.record for one in read_topic(run.settings, topic) if one.key == run.run_id.encode()]
    return [one for one in found if isinstance(one, kind)]


def decisions(run: LedgerRun) -> list[Decision]:
    return records(run, Topic.DECISIONS, Decision)


def accepted(found: Sequence[Decision], record_type: str) -> int:
    return sum(one.record_type == record_type and one.outcome is Decided.ACCEPTED for one in found)


def reasons(found: Sequence[Decision], record_type: str) -> list[str]:
    return [item.reason for one in found if one.record_type == record_type for item in one.items]


def weights(of: Any) -> Any:
    return torch.cat([one.detach().flatten() for _, one in sorted(of.state_dict().items())])


@pytest.mark.parametrize(
    ("enforcement", "token_budget"),
    [(Enforcement.GATE, 0), (Enforcement.OBSERVE, 48), *([(Enforcement.GATE, 48)] if ALL else [])],
)
def test_the_final_weights_are_those_of_plain_trl_and_the_log_tells_of_every_update(
    processed: Settings, tmp_path: Path, enforcement: Enforcement, token_budget: int
) -> None:
    shape = Shape(token_budget=token_budget)
    plain = fingerprint(train(tmp_path, shape))
    seen: list[StepFacts] = []
    run = ledger(processed, enforcement, on_step=seen.append)
    recorded = train(tmp_path, shape, run)
    assert fingerprint(recorded) == plain
    assert recorded.ledger_lost == 0
    found = decisions(run)
    assert [(one.record_type, one.reason) for one in found if one.outcome is Decided.REJECTED or one.violation] == []
    kinds = ("Reserve", "Admit", "UpdateStarted", "Commit", "RecordingSealed", "PolicyPrepared", "Activate")
    assert [accepted(found, kind) for kind in kinds] == [4, 8, 4, 4, 4, 4, 4]
    assert len(seen) == 4
    trained = sum(len(step.rows) for step in seen)
    assert accepted(found, "Generated") == trained + len(reasons(found, "Discarded")) > trained


def test_rows_that_have_drifted_leave_the_loss_as_if_they_were_masked_by_hand(
    processed: Settings, tmp_path: Path
) -> None:
    # By more than a ratio in float32 can hold: one such row in the loss, and no weight is a number any more.
    shape = Shape(drifted=frozenset({1, 7, 8}), off=200.0)
    by_hand = train(tmp_path, shape, kind=MaskingTrainer)
    run = ledger(processed)
    recorded = train(tmp_path, shape, run)
    assert sorted(reasons(decisions(run), "Admit")) == ["ok"] * 21 + ["policy_drift"] * 3
    torch.testing.assert_close(weights(recorded.model), weights(by_hand.model), rtol=0, atol=1e-6)


@pytest.mark.parametrize(
    ("shape", "asked", "reason"),
    [
        (Shape(steps=1, drifted=frozenset(range(6))), "Admit", "policy_drift"),
        (Shape(steps=1, unrewarded=frozenset(range(6))), "Reserve", "not_rewarded"),
    ],
)
def test_a_step_of_which_nothing_is_left_changes_no_weights(
    processed: Settings, tmp_path: Path, shape: Shape, asked: str, reason: str
) -> None:
    run = ledger(processed)
    refused = train(tmp_path, shape, run)
    assert torch.equal(weights(refused.model), weights(model()))
    found = decisions(run)
    assert reasons(found, asked) == [reason] * 6
    assert accepted(found, "Commit") == accepted(found, "UpdateStarted") == 0
    assert accepted(found, "Activate") == 1, "TRL syncs after every step, whatever it did"


def test_a_version_that_no_sync_made_stops_the_gate_and_ends_a_recording(
    processed: Settings, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    shape = Shape(steps=2, ahead=50)
    with pytest.raises(BadInput, match=r"version 51, which no weight sync of this training made \(1 to 1\)"):
        train(tmp_path, shape, ledger(processed))
    observed = train(tmp_path, shape, ledger(processed, Enforcement.OBSERVE))
    assert "training goes on unrecorded from here on" in caplog.text
    assert fingerprint(observed) == fingerprint(train(tmp_path, shape))


def test_a_training_that_fails_within_a_step_gives_its_rows_back(
    processed: Settings, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    compute = LedgerTrainer.compute_loss

    def failing(trainer: Any, *args: Any, **kwargs: Any) -> Any:
        loss = compute(trainer, *args, **kwargs)
        if trainer.state.global_step == 1:
            raise RuntimeError("out of memory")
        return loss

    monkeypatch.setattr(LedgerTrainer, "compute_loss", failing)
    run = ledger(processed)
    with pytest.raises(RuntimeError, match="out of memory"):
        train(tmp_path, Shape(), run)
    kinds = ("UpdateStarted", "Commit", "Abort", "RecordingSealed")
    assert [accepted(decisions(run), kind) for kind in kinds] == [1, 1, 1, 1]
    states = read_states(processed, run.run_id, frozenset({"trajectory"}), deadline_s=20)
    assert Counter(one.status.value for one in states if isinstance(one, TrajectoryState)) == {
        "consumed": 6,
        "rewarded": 6,
    }


def test_rows_beyond_the_ledgers_lag_are_dropped_before_the_forward_pass(
    processed: Settings, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    shape = Shape(lags={4: 2})
    seen: list[StepFacts] = []
    run = ledger(processed, max_lag=1, on_step=seen.append)
    train(tmp_path, shape, run)
    assert [one for one in reasons(decisions(run), "Reserve") if one != "reserved"] == ["stale_policy"] * 4
    assert 4 not in {row.number for step in seen for row in step.rows}
    assert "TRL keeps rows that are 4 versions behind, the ledger takes 1: " in caplog.text


def test_what_trl_drops_as_stale_is_told_and_is_not_reserved(processed: Settings, tmp_path: Path) -> None:
    run = ledger(processed)
    train(tmp_path, Shape(lags={4: 2}, max_staleness=1), run)
    told = [one for one in records(run, Topic.LIFECYCLE, Discarded) if one.reason is DiscardReason.CUSTOM]
    assert sum(len(one.trajectory_ids) for one in told) == 4
    assert {one.text for one in told} == {"stale: 2 versions behind, TRL takes 1"}
    assert set(reasons(decisions(run), "Reserve")) == {"reserved"}


def test_a_row_without_a_reward_is_a_failure_and_is_not_trained_on(processed: Settings, tmp_path: Path) -> None:
    seen: list[StepFacts] = []
    run = ledger(processed, on_step=seen.append)
    train(tmp_path, Shape(unrewarded=frozenset({2})), run)
    assert accepted(decisions(run), "RewardFailed") == 1
    assert [len(step.rows) for step in seen] == [5, 6, 6, 6]


@pytest.mark.parametrize("enforcement", list(Enforcement))
def test_every_optimizer_step_is_computed_again_out_of_the_log(
    processed: Settings, tmp_path: Path, enforcement: Enforcement
) -> None:
    run = ledger(processed, enforcement)
    train(tmp_path / "run", Shape(drifted=frozenset({1}), unrewarded=frozenset({10})), run)
    report = bundles_of(run, tmp_path / "bundles")
    assert (report.problems, report.without_update) == ((), ())
    assert len(report.steps) == 4
    for written in report.written:
        cohort = read_cohort(written.path)
        result = replay_cohort(cohort)
        assert result.verdict is Verdict.PASSED, result
        (rank,), (bundle,) = result.ranks, cohort.bundles
        passed = {stage.stage for stage in rank.stages if stage.outcome is Outcome.PASSED}
        assert StageId.ADVANTAGE_ESTIMATE in passed
        named = bundle.index.config.conventions
        assert named is not None
        assert str(named.advantages) == "trl 1.16.0 async"
        if bundle.index.identity.actor_step_id is not None:
            assert StageId.LOSS_POLICY in passed
            assert str(named.loss) == "trl 1.16.0 async"


@pytest.mark.parametrize("enforcement", list(Enforcement) if ALL else [Enforcement.GATE])
def test_a_training_goes_on_from_its_checkpoint_in_the_same_run(
    processed: Settings, tmp_path: Path, enforcement: Enforcement
) -> None:
    """Weights go to the worker after every second step: the checkpoint holds one update that no policy has yet."""
    options = {"save_strategy": "steps", "save_steps": 3, "weight_sync_steps": 2, "save_total_limit": None}
    shape = Shape(steps=4, options=options)
    plain = train(tmp_path / "plain", shape)
    resumed = train(tmp_path / "plain", shape, resume=str(tmp_path / "plain/out/checkpoint-3"))
    run, folder = ledger(processed, enforcement), tmp_path / "with"
    first = train(folder, shape, run)
    going_on = replace(shape, first=2) if enforcement is Enforcement.GATE else shape
    second = train(folder, going_on, run, resume=str(folder / "out/checkpoint-3"))
    assert [fingerprint(one) for one in (first, second)] == [fingerprint(one) for one in (plain, resumed)]
    assert (first.ledger_lost, second.ledger_lost) == (0, 0)
    check_consistent(processed, run.run_id)
    prepared = records(run, Topic.LIFECYCLE, PolicyPrepared)
    commits = [one.update_id for one in records(run, Topic.LIFECYCLE, Commit)]
    assert [one.version for one in prepared] == [2, 3, 4, 5]
    assert [list(one.update_ids) for one in prepared] == [commits[:2], commits[2:4], commits[2:3], commits[4:]]


def test_a_row_that_another_learner_holds_is_not_trained_on(
    processed: Settings, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    seen: list[StepFacts] = []
    run = ledger(processed, on_step=seen.append)
    taken: list[str] = []
    take = AsyncGateBooks.take

    def after_another(books: AsyncGateBooks, generation: Generation, update_id: str) -> frozenset[str]:
        with Trainer(processed, run.run_id, f"other-{generation.rollout_id}", options=PATIENT) as other:
            other.start()
            with other.update(0) as update:
                wanted = generation.rows[0].trajectory_id
                update.reserve([ReserveItem(trajectory_id=wanted, expected_revision=2)], generation.policy)
                taken.append(wanted)
                return take(books, generation, update_id)

    monkeypatch.setattr(AsyncGateBooks, "take", after_another)
    train(tmp_path, Shape(steps=2), run)
    assert len(taken) == 2
    assert [len(step.rows) for step in seen] == [5, 5]
    assert not {row.trajectory_id for step in seen for row in step.rows}.intersection(taken)


def test_what_a_tool_wrote_is_a_tools_and_rows_of_one_conversation_are_told_apart_by_nobody(
    processed: Settings, tmp_path: Path
) -> None:
    shape = Shape(turns=True)
    run = ledger(processed)
    assert fingerprint(train(tmp_path / "run", shape, run)) == fingerprint(train(tmp_path / "plain", shape))
    generated = records(run, Topic.LIFECYCLE, Generated)
    spans = [[(span.origin, span.end - span.start) for span in one.segments[0].spans] for one in generated]
    assert [(Origin.MODEL, 3), (Origin.TOOL, 2), (Origin.MODEL, 5)] in spans
    assert {one.identity.group_expected for one in generated} == {4, 5}
    report = bundles_of(run, tmp_path / "bundles")
    assert (report.problems, report.without_update, len(report.steps)) == ((), (), 4)
    for written in report.steps:
        (rank,) = replay_cohort(read_cohort(written.path)).ranks
        found = {stage.stage: stage.outcome for stage in rank.stages}
        assert found[StageId.ADVANTAGE_ESTIMATE] is Outcome.RECORDED_ONLY
        assert found[StageId.LOSS_POLICY] is Outcome.PASSED


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
    assert recorded.ledger_lost > 0
