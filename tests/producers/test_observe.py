"""Trainers in a run that observes, on the real broker: they wait for nothing, and the ledger judges afterwards."""

import time
from collections.abc import Iterator
from contextlib import AbstractContextManager
from typing import Any

import numpy as np
import pytest

from rollbook.infra.broker.ports import free_port
from rollbook.infra.settings import Settings
from rollbook.producers import (
    Counters,
    LearnerFenced,
    ObservedRow,
    ObservedUpdate,
    ObservingTrainer,
    Options,
    Reward,
    Trainer,
    WrongEnforcement,
)
from rollbook.producers.clients import trainer as trainer_module
from rollbook.producers.observing import observer
from rollbook.schemas.codec import ContractViolation
from rollbook.schemas.errors import RollbookError
from rollbook.schemas.records.common import PolicyRef
from rollbook.schemas.records.decision import Decision
from rollbook.schemas.records.run import DriftGate, Enforcement
from rollbook.schemas.records.update import CheckpointSaved, RecordingSealed
from rollbook.tests.producers.test_recording import step_of
from rollbook.tests.producers.world import PATIENT, POLICY, World, behavior_log_probs, world

MASK = [True, True, True, False, True]
AT_ONCE_S = 0.5
"""Far above what queueing takes, far below any time-out of Kafka's."""


@pytest.fixture(autouse=True)
def settled(monkeypatch: pytest.MonkeyPatch) -> None:
    """What these tests take is rewarded already, so that nothing need wait for it."""
    monkeypatch.setattr(observer, "SETTLE_S", 0.0)


@pytest.fixture
def watched(processed: Settings) -> Iterator[World]:
    with world(processed, enforcement=Enforcement.OBSERVE) as made:
        yield made


def ready(run: World, size: int = 1) -> list[str]:
    """A group that the ledger has rewarded already."""
    group = run.group(size, rewarded=False)
    assert run.worker.flush(20) == 0
    run.rewards.rewards([Reward(one, 1.0) for one in group])
    run.decided("RewardReady")
    return group


def observed(run: World, **options: Any) -> ObservingTrainer:
    return ObservingTrainer(run.settings, run.run_id, "learner-0", options=Options(**options))


def row(trajectory_id: str, seed: int = 0, *, drift: float = 0.01) -> ObservedRow:
    behavior = behavior_log_probs(seed)
    return ObservedRow(trajectory_id, [(behavior, MASK)], behavior - drift)


def train(update: ObservedUpdate, group: list[str], *, drift: float = 0.01) -> None:
    update.reserve(group, POLICY)
    update.admit([row(one, seed, drift=drift) for seed, one in enumerate(group)], POLICY, keep_log_probs=True)
    update.start()
    update.step(group)


def breaches(run: World) -> dict[str, str]:
    """Decisions that carry a violation, with their reasons."""
    kinds = ("LearnerStarted", "Reserve", "Admit", "UpdateStarted", "Commit", "RecordingSealed")
    return {kind: one.reason for kind in kinds for one in run.decisions(kind) if one.violation}


def states(decision: Decision) -> set[str]:
    return {str(item.state_after) for item in decision.items}


def test_a_training_by_the_rules_is_consumed_without_a_breach(watched: World) -> None:
    group = ready(watched, 2)
    with observed(watched) as trainer:
        with trainer.update(rollout_id=0) as update:
            train(update, group)
            update.record_step(0, step_of(group[0]))
        trainer.checkpoint_saved("checkpoint-0", "d", POLICY)
    assert states(watched.decided("Commit")) == {"consumed"}
    watched.decided("RecordingSealed")
    watched.decided("CheckpointSaved")
    assert breaches(watched) == {}
    (saved,) = [one for one in watched.records() if isinstance(one, CheckpointSaved)]
    assert saved.last_update_id == update.update_id
    assert len([one for one in watched.records() if isinstance(one, RecordingSealed)]) == 1
    assert (trainer.counters.lost, trainer.counters.refused) == (0, 0)


def test_what_breaks_a_rule_is_taken_as_a_fact_and_marked(watched: World) -> None:
    group = ready(watched)
    with observed(watched) as trainer:
        with trainer.update(rollout_id=0) as update:
            train(update, group, drift=1.0)
        with trainer.update(rollout_id=1) as update:
            train(update, group)
    first, second = (watched.decided("Commit"), watched.decisions("Commit")[-1])
    assert states(first) == {"consumed"}
    assert breaches(watched)["Admit"] in ("policy_drift", "not_reserved")
    assert second.violation, "the row was trained on twice"


def test_an_exception_before_the_start_aborts_and_is_the_one_to_see(watched: World) -> None:
    def fail(trainer: ObservingTrainer) -> None:
        with trainer.update(rollout_id=0) as update:
            update.reserve(ready(watched), POLICY)
            raise ZeroDivisionError

    with observed(watched) as trainer, pytest.raises(ZeroDivisionError):
        fail(trainer)
    assert states(watched.decided("Abort")) == {"rewarded"}


def test_a_learner_is_taken_over_from_whoever_held_it(watched: World) -> None:
    with observed(watched):
        pass
    with observed(watched) as trainer, trainer.update(rollout_id=0) as update:
        train(update, ready(watched))
    watched.decided("Commit")
    assert len(watched.decisions("LearnerStarted")) == 2


def test_a_broker_that_is_down_costs_a_warning_and_counted_events(caplog: pytest.LogCaptureFixture) -> None:
    nowhere = Settings(bootstrap_servers=f"127.0.0.1:{free_port()}")
    began = time.monotonic()
    trainer = ObservingTrainer(nowhere, "run-0", "learner-0", options=Options(connect_timeout_s=0.2, max_events=20))
    for rollout_id in range(10):
        with trainer.update(rollout_id) as update:
            train(update, ["t-0"])
    assert time.monotonic() - began < AT_ONCE_S, "the training waits for nothing"
    trainer.close(0.5)
    assert trainer.counters == Counters(published=0, delivered=0, lost=40)
    assert "training goes on unrecorded" in caplog.text
    assert nowhere.bootstrap_servers in caplog.text


def test_a_refused_learner_is_told_once_and_training_goes_on(watched: World) -> None:
    errors: list[RollbookError] = []
    with (
        ObservingTrainer(
            watched.settings,
            watched.run_id,
            "learner-0",
            expected_epoch=999,
            options=Options(on_error=errors.append),
        ) as trainer,
        trainer.update(rollout_id=0) as update,
    ):
        train(update, watched.group(1))
    assert "epoch_conflict" in str(errors[0])
    assert trainer.counters.lost == 4
    assert watched.decisions("Reserve") == []


def test_arguments_that_make_no_sense_cost_the_event(watched: World) -> None:
    errors: list[RollbookError] = []
    with observed(watched, on_error=errors.append) as trainer, trainer.update(rollout_id=0) as update:
        update.reserve(None, POLICY)  # type: ignore[arg-type]
        update.reserve(["t-0", "t-0"], POLICY)
        update.admit([ObservedRow("t-0", [([0.5], [2])], [0.5])], POLICY)
        update.record_step(0, None)  # type: ignore[arg-type]
        update.step(None)  # type: ignore[arg-type]
        update.reserve("t-0", POLICY)
        update.step("t-0")
    assert len(errors) == 7
    assert sum("wanted as a list" in str(error) for error in errors) == 4
    assert any("items: each trajectory once" in str(error) for error in errors)
    watched.decided("Commit")


def test_a_name_that_the_contract_refuses_is_refused_before_the_training() -> None:
    with pytest.raises(ContractViolation, match="field run_id"):
        ObservingTrainer(Settings(), "no such name", "learner-0")


def test_what_the_training_changes_afterwards_is_recorded_as_it_was(watched: World) -> None:
    (one,) = ready(watched)
    taken = row(one)
    values = np.array(taken.current_log_probs)
    with observed(watched) as trainer, trainer.update(rollout_id=0) as update:
        update.reserve([one], POLICY)
        update.admit([ObservedRow(one, taken.behavior, values)], POLICY)
        values[:] = 99.0
        update.start()
        update.step([one])
    assert watched.decided("Admit").items[0].mean_abs_log_ratio == pytest.approx(0.01, abs=1e-6)


def test_a_learner_that_is_fenced_hears_that_nothing_it_says_counts(watched: World) -> None:
    errors: list[RollbookError] = []
    with observed(watched, on_error=errors.append) as fenced:
        watched.decided("LearnerStarted")
        with observed(watched):
            while len(watched.decisions("LearnerStarted")) < 2:
                time.sleep(0.05)
            for rollout_id in range(3):
                with fenced.update(rollout_id) as update:
                    update.reserve(ready(watched), POLICY)
                    update.start()
            fenced.checkpoint_saved("checkpoint-0", "d", POLICY)
    assert (fenced.counters.refused, fenced.counters.lost) == (10, 0)
    (told,) = errors
    assert isinstance(told, LearnerFenced), "each reason is told now and then, not at each record"


def test_refusals_are_logged_where_nobody_hears_them(watched: World, caplog: pytest.LogCaptureFixture) -> None:
    with observed(watched) as trainer:
        with trainer.update(rollout_id=0, update_id="twice") as update:
            train(update, ready(watched))
        with trainer.update(rollout_id=1, update_id="twice") as update:
            update.reserve(ready(watched), POLICY)
    assert trainer.counters.refused >= 1
    assert "counted for nothing so far: Reserve of update twice" in caplog.text
    assert "update_ended" in caplog.text


def test_in_a_run_that_gates_nothing_is_recorded_and_nobody_is_taken_over(ungated: World) -> None:
    errors: list[RollbookError] = []
    with Trainer(ungated.settings, ungated.run_id, "learner-0", drift_gate=DriftGate.OFF, options=PATIENT) as gating:
        gating.start()
        with observed(ungated, on_error=errors.append) as trainer:
            while not errors:
                time.sleep(0.01)
            with trainer.update(rollout_id=0) as update:
                train(update, ungated.group(1))
        with gating.update(rollout_id=0) as claimed:
            claimed.claim(POLICY, max_groups=1, wait_s=60)
    assert isinstance(errors[0], WrongEnforcement)
    assert "with enforcement gate" in str(errors[0])
    assert (trainer.counters.published, trainer.counters.lost) == (0, 4)


def test_a_trainer_that_gates_is_refused_in_a_run_that_observes(watched: World) -> None:
    with Trainer(watched.settings, watched.run_id, "learner-0", options=PATIENT) as trainer:
        with pytest.raises(WrongEnforcement, match=r"with enforcement observe, .*: use ObservingTrainer, or a run"):
            trainer.start()
        assert not trainer.may_export
    assert watched.decisions("LearnerStarted") == []


def test_a_run_that_is_configured_while_the_trainer_starts_is_looked_at_again(
    watched: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    answers = iter([None, Enforcement.OBSERVE])
    monkeypatch.setattr(trainer_module, "enforcement_of", lambda *_: next(answers))
    with Trainer(watched.settings, watched.run_id, "learner-0", options=PATIENT) as trainer:
        with pytest.raises(WrongEnforcement):
            trainer.start()
        assert not trainer.may_export


def test_rows_that_are_taken_again_hold_nothing_up(watched: World, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(observer, "SETTLE_S", 0.5)
    group = ready(watched)
    with observed(watched) as trainer:
        for rollout_id in range(20):
            with trainer.update(rollout_id) as update:
                update.reserve([*group, "never-heard-of"], POLICY)
                update.start()
                update.step(group)
        began = time.monotonic()
    assert time.monotonic() - began < 10, "what is published waits once, and not once for each update"
    assert (trainer.counters.lost, len(watched.decisions("Commit"))) == (0, 20)


def test_a_reward_that_is_under_way_comes_before_the_rows_are_taken(
    watched: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(observer, "SETTLE_S", 2.0)  # on a slow machine all of it is slow
    (one,) = watched.group(1, rewarded=False)
    assert watched.worker.flush(20) == 0
    with observed(watched) as trainer:
        watched.decided("LearnerStarted")
        with trainer.update(rollout_id=0) as update:
            update.reserve([one], POLICY)
            watched.rewards.reward(one, 1.0)
            update.start()
            update.step([one])
    assert states(watched.decided("Commit")) == {"consumed"}
    assert "Reserve" not in breaches(watched)


def leased_world(settings: Settings) -> AbstractContextManager[World]:
    return world(settings, enforcement=Enforcement.OBSERVE, lease_ms=900)


@pytest.mark.parametrize("over", ["committed", "forgotten"])
def test_an_update_that_is_over_is_not_renewed_without_its_block_either(processed: Settings, over: str) -> None:
    with leased_world(processed) as run:
        group = ready(run)
        with ObservingTrainer(run.settings, run.run_id, "learner-0", lease_ms=900) as trainer:
            update = trainer.update(rollout_id=0)
            update.reserve(group, POLICY)
            update.start()
            if over == "committed":
                update.commit()
                run.decided("Commit")
            else:
                run.decided("UpdateStarted")
                del update
            renewed = len(run.decisions("Renew"))
            end = time.monotonic() + 1.5
            with trainer.update(rollout_id=1) as later:
                later.reserve(group, POLICY)
                while time.monotonic() < end:
                    run.decided("Renew")
        renews = [one.update_id for one in run.decisions("Renew")[renewed:]]
        assert set(renews) == {later.update_id}


def test_leases_are_renewed_without_the_training(processed: Settings) -> None:
    with leased_world(processed) as run:
        group = run.group(1)
        trainer = ObservingTrainer(run.settings, run.run_id, "learner-0", lease_ms=900)
        with trainer, trainer.update(rollout_id=0) as update:
            update.reserve(group, POLICY)
            run.decided("Renew")
            update.start()
            update.step(group)
        run.decided("Commit")


def test_a_policy_that_nobody_prepared_is_a_breach_and_no_error(watched: World) -> None:
    with observed(watched) as trainer, trainer.update(rollout_id=0) as update:
        update.reserve(ready(watched), PolicyRef(version=7, artifact_hash="unknown"))
        update.start()
    watched.decided("Commit")
    assert breaches(watched)["Reserve"] == "unknown_policy"
