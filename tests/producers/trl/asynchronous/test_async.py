"""The asynchronous trainer: it trains as without the ledger, and on nothing that the ledger refuses."""

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

pytest.importorskip("trl", reason="TRL is not installed: install rollbook[trl]")

from rollbook.infra.settings import Settings, Topic
from rollbook.producers import Options, new_id
from rollbook.producers.redaction import Redaction, Treatment
from rollbook.producers.trl import LedgerRun, StepFacts
from rollbook.schemas.records.decision import Decision, Outcome
from rollbook.schemas.records.reward import Discarded, DiscardReason
from rollbook.schemas.records.run import Enforcement
from rollbook.tests.producers.trl.asynchronous.small import MaskingTrainer, Shape, on_cpu, train
from rollbook.tests.producers.trl.tiny import fingerprint, model, torch
from rollbook.tests.producers.world import PATIENT, read_topic

__all__ = ["on_cpu"]
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
    return sum(one.record_type == record_type and one.outcome is Outcome.ACCEPTED for one in found)


def reasons(found: Sequence[Decision], record_type: str) -> list[str]:
    return [item.reason for one in found if one.record_type == record_type for item in one.items]


def weights(of: Any) -> Any:
    return torch.cat([one.detach().flatten() for _, one in sorted(of.state_dict().items())])


@pytest.mark.parametrize("enforcement", list(Enforcement))
@pytest.mark.parametrize("token_budget", [0, 48])
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
    assert [(one.record_type, one.reason) for one in found if one.outcome is Outcome.REJECTED or one.violation] == []
    kinds = ("Reserve", "Admit", "UpdateStarted", "Commit", "RecordingSealed", "PolicyPrepared", "Activate")
    assert [accepted(found, kind) for kind in kinds] == [4, 8, 4, 4, 4, 4, 4]
    assert len(seen) == 4
    trained = sum(len(step.rows) for step in seen)
    assert accepted(found, "Generated") == trained + len(reasons(found, "Discarded")) > trained


def test_rows_that_have_drifted_leave_the_loss_as_if_they_were_masked_by_hand(
    processed: Settings, tmp_path: Path
) -> None:
    shape = Shape(drifted=frozenset({1, 7, 8}))
    by_hand = train(tmp_path, shape, kind=MaskingTrainer)
    run = ledger(processed)
    recorded = train(tmp_path, shape, run)
    assert sorted(reasons(decisions(run), "Admit")) == ["ok"] * 21 + ["policy_drift"] * 3
    torch.testing.assert_close(weights(recorded.model), weights(by_hand.model), rtol=0, atol=1e-6)
    unmasked = train(tmp_path, shape)
    assert (weights(recorded.model) - weights(unmasked.model)).abs().max() > 1e-3, (
        "a drifted row would have moved the weights"
    )


def test_a_step_of_which_nothing_is_left_changes_no_weights(processed: Settings, tmp_path: Path) -> None:
    run = ledger(processed)
    refused = train(tmp_path, Shape(steps=1, drifted=frozenset(range(6))), run)
    assert torch.equal(weights(refused.model), weights(model()))
    found = decisions(run)
    assert reasons(found, "Admit") == ["policy_drift"] * 6
    assert accepted(found, "Commit") == accepted(found, "UpdateStarted") == 0
    assert accepted(found, "Activate") == 1, "TRL syncs after every step, whatever it did"


def test_rows_beyond_the_ledgers_lag_are_dropped_before_the_forward_pass(processed: Settings, tmp_path: Path) -> None:
    shape = Shape(lags={4: 2})
    seen: list[StepFacts] = []
    run = ledger(processed, max_lag=1, on_step=seen.append)
    train(tmp_path, shape, run)
    assert [one for one in reasons(decisions(run), "Reserve") if one != "reserved"] == ["stale_policy"] * 4
    assert 4 not in {row.number for step in seen for row in step.rows}


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


def test_the_loss_is_put_together_from_the_recorded_rows(processed: Settings, tmp_path: Path) -> None:
    seen: list[StepFacts] = []
    train(tmp_path, Shape(drifted=frozenset({1})), ledger(processed, on_step=seen.append))
    for step in seen:
        at, losses = 0, []
        for micro in step.micro_steps:
            rows, masks = step.rows[at : at + len(micro.rows)], step.loss_masks[at : at + len(micro.rows)]
            total = 0.0
            for row, mask, current in zip(rows, masks, micro.log_probs, strict=True):
                ratio = np.exp(current[: len(mask)].astype(np.float64) - row.behavior)[mask]
                total -= np.minimum(ratio * row.advantage, np.clip(ratio, 0.8, 1.2) * row.advantage).sum()
            losses.append(total / sum(int(mask.sum()) for mask in masks))
            at += len(micro.rows)
        assert step.loss == pytest.approx(np.mean(losses), abs=1e-6)
        groups = {row.identity.group_id for row in step.rows}
        for group in groups:
            rewards = [row.raw_reward or 0.0 for row in step.generation.rows if row.identity.group_id == group]
            assert len(rewards) == 4, "with those that other steps train on"
            for row in (row for row in step.rows if row.identity.group_id == group):
                expected = ((row.raw_reward or 0.0) - np.mean(rewards)) / (np.std(rewards) + 1e-8)
                assert row.advantage == pytest.approx(expected, abs=1e-6)


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
