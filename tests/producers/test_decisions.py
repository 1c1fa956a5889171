"""Commands and their decisions on the real broker: each can be asked again, and none is guessed."""

import re
import threading
import time
from collections.abc import Iterator
from contextlib import ExitStack
from dataclasses import replace

import pytest

from rollbook.infra.settings import Settings
from rollbook.producers import (
    DecisionTimeout,
    NothingTaken,
    OnUnavailable,
    Options,
    OutOfOrder,
    Phase,
    Refused,
    StartAnew,
    Trainer,
    Update,
)
from rollbook.schemas.records.common import Source, SourceKind
from rollbook.schemas.records.decision import Decision, Outcome
from rollbook.schemas.records.update import Abort, AbortDisposition, AbortReason
from rollbook.tests.producers.test_recording import step_of
from rollbook.tests.producers.world import PATIENT, POLICY, World, processor, world

HASTY = Options(decision_timeout_s=0.3, close_timeout_s=20)


def outcomes(run: World, record_type: str) -> list[Outcome]:
    return [decision.outcome for decision in run.decisions(record_type)]


def test_without_a_processor_a_command_says_what_to_do(settings: Settings) -> None:
    with Trainer(settings, "run-0", "learner-0", options=HASTY) as trainer:
        said = ""
        while "has not reached" in said or not said:  # it says so as long as the broker has not acknowledged it
            with pytest.raises(DecisionTimeout) as timeout:
                trainer.start()
            said = str(timeout.value)
        assert re.search(r"LearnerStarted at lifecycle:\d@\d+ has no decision after 0.3 s: .*processor run", said)


def test_a_run_that_is_not_configured_refuses(settings: Settings) -> None:
    with processor(settings), Trainer(settings, "run-0", "learner-0", options=PATIENT) as trainer:
        with pytest.raises(Refused, match="run_not_configured: No RunConfigured was accepted") as refusal:
            trainer.start()
        assert refusal.value.exit_code == 1


def test_the_same_command_again_gets_the_first_answer(settings: Settings) -> None:
    with processor(settings), world(settings) as run, Trainer(settings, run.run_id, "l", options=PATIENT) as trainer:
        first = trainer.start()
        again = trainer.start()
        assert (first.outcome, again.outcome) == (Outcome.ACCEPTED, Outcome.DUPLICATE)
        assert first.learner == again.learner == trainer.learner


class Stage:
    """A started learner of a run with one rewarded group, and a processor that can be stopped and started."""

    def __init__(self, run: World, trainer: Trainer, group: list[str], processing: ExitStack) -> None:
        self.run = run
        self.trainer = trainer
        self.group = group
        self._processing = processing

    def stop(self) -> None:
        """Stop the processor; until it goes on the trainer waits only shortly."""
        self._processing.close()
        self.trainer._options = replace(PATIENT, decision_timeout_s=0.3)

    def go_on(self) -> None:
        self._processing.enter_context(processor(self.run.settings))
        self.trainer._options = PATIENT


@pytest.fixture
def stage(settings: Settings) -> Iterator[Stage]:
    with ExitStack() as processing:
        processing.enter_context(processor(settings))
        with (
            world(settings) as run,
            Trainer(settings, run.run_id, "learner-0", options=PATIENT) as trainer,
        ):
            trainer.start()
            group = run.group(1)
            with trainer.update(rollout_id=0) as probe:  # it is left unstarted: the row is known and free again
                probe.claim(POLICY, max_groups=1, wait_s=60)
            yield Stage(run, trainer, group, processing)


def insist(update: Update) -> Decision:
    """Ask again until the processor is up; a test would time out."""
    while True:
        try:
            return update.resend()
        except DecisionTimeout:
            continue


def test_a_decision_that_comes_late_is_taken_in_by_asking_again(stage: Stage) -> None:
    before = len(outcomes(stage.run, "Reserve"))
    with stage.trainer.update(rollout_id=1) as update:
        stage.stop()
        with pytest.raises(DecisionTimeout):
            update.claim(POLICY, max_groups=1)
        with pytest.raises(OutOfOrder, match=r"decision on Reserve .* is unread: call update\.resend"):
            update.start()
        assert [*update.held] == []
        stage.go_on()
        insist(update)
        assert [item.trajectory_id for item in update.held] == stage.group
        with pytest.raises(OutOfOrder, match="every decision of update"):
            update.resend()
    first, *others = outcomes(stage.run, "Reserve")[before:]
    assert first is Outcome.ACCEPTED
    assert set(others) == {Outcome.DUPLICATE}, "the ledger was asked more than once and answered the same"


def test_a_second_copy_that_is_accepted_after_the_first_was_refused_is_taken_in(stage: Stage) -> None:
    before = len(outcomes(stage.run, "Reserve"))
    with stage.trainer.update(rollout_id=1) as taking:
        taking.claim(POLICY, max_groups=1)  # so that nothing is left
        with stage.trainer.update(rollout_id=2) as update:
            stage.stop()
            with pytest.raises(DecisionTimeout):
                update.claim(POLICY, max_groups=1)
            stage.run.rewards.reward(stage.run.group(1, rewarded=False)[0], 1.0)
            assert stage.run.worker.flush(20) == stage.run.rewards.flush(20) == 0
            with pytest.raises(DecisionTimeout):
                update.resend()
            stage.go_on()
            decision = insist(update)
            assert [item.trajectory_id for item in update.held] == [item.trajectory_id for item in decision.items]
            assert len(update.held) == 1
    assert outcomes(stage.run, "Reserve")[before : before + 3] == [
        Outcome.ACCEPTED,
        Outcome.REJECTED,
        Outcome.ACCEPTED,
    ]
    assert update.phase is Phase.ABORTED


def test_what_was_asked_twice_is_aborted_even_when_all_copies_were_refused(stage: Stage) -> None:
    aborts = len(outcomes(stage.run, "Abort"))
    with stage.trainer.update(rollout_id=1) as taking:
        taking.claim(POLICY, max_groups=1)
        with stage.trainer.update(rollout_id=2) as update:
            stage.stop()
            with pytest.raises(DecisionTimeout):
                update.claim(POLICY, max_groups=1)
            stage.go_on()
            with pytest.raises(NothingTaken):
                insist(update)
        assert update.phase is Phase.ABORTED
        assert outcomes(stage.run, "Abort")[aborts:] == [Outcome.ACCEPTED]


def test_a_start_whose_decision_is_unread_may_have_happened(stage: Stage) -> None:
    def train() -> None:
        with stage.trainer.update(rollout_id=1) as update:
            update.claim(POLICY, max_groups=1)
            stage.stop()
            update.start()

    with pytest.raises(StartAnew, match="DecisionTimeout"):
        train()
    assert not stage.trainer.may_export


def test_leaving_the_block_asks_for_what_is_unread_and_commits(stage: Stage) -> None:
    with stage.trainer.update(rollout_id=1) as update:
        update.claim(POLICY, max_groups=1)
        stage.stop()
        with pytest.raises(DecisionTimeout):
            update.start()
        with pytest.raises(OutOfOrder, match="UpdateStarted"):
            update.step(stage.group)
        stage.go_on()
        insist(update)
    assert update.phase is Phase.COMMITTED
    assert outcomes(stage.run, "Commit") == [Outcome.ACCEPTED]


def test_a_commit_whose_decision_is_unread_allows_no_export(stage: Stage) -> None:
    def train() -> None:
        with stage.trainer.update(rollout_id=1) as update:
            update.claim(POLICY, max_groups=1)
            (loaded,) = update.load()
            update.admit({loaded.trajectory_id: loaded.log_probs}, POLICY)
            update.start()
            update.step(stage.group)
            stage.stop()

    with pytest.raises(StartAnew, match="start the learner anew"):
        train()
    assert not stage.trainer.may_export


def test_an_abort_that_cannot_be_confirmed_does_not_hide_the_failure(stage: Stage) -> None:
    def fail() -> None:
        with stage.trainer.update(rollout_id=1) as update:
            update.claim(POLICY, max_groups=1)
            stage.stop()
            raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError) as failure:
        fail()
    assert "could not be aborted: Abort at lifecycle:" in failure.value.__notes__[0]


def test_a_reserve_in_doubt_is_ended_by_the_abort(stage: Stage) -> None:
    def fail() -> None:
        with stage.trainer.update(rollout_id=1) as update:
            stage.stop()
            try:
                update.claim(POLICY, max_groups=1)
            finally:
                stage.go_on()

    with pytest.raises(DecisionTimeout):
        fail()
    with stage.trainer.update(rollout_id=2) as update:
        update.claim(POLICY, max_groups=1, wait_s=60)
        assert [item.trajectory_id for item in update.held] == stage.group, "the row was given back"


def test_a_trainer_that_is_to_wait_waits(stage: Stage, caplog: pytest.LogCaptureFixture) -> None:
    before = len(outcomes(stage.run, "Reserve"))
    stage.trainer._on_unavailable = OnUnavailable.WAIT
    stage.stop()
    back = threading.Timer(0.8, stage.go_on)
    back.start()
    with stage.trainer.update(rollout_id=1) as update:
        update.claim(POLICY, max_groups=1)
        back.join()
        assert [item.trajectory_id for item in update.held] == stage.group
    assert "learner-0 waits: Reserve at lifecycle:" in caplog.text
    assert outcomes(stage.run, "Reserve")[before:] == [Outcome.ACCEPTED], "one copy was enough"


def go_unreserved(stage: Stage, ids: list[str], *, record: bool = False) -> Update:
    stage.trainer._on_unavailable = OnUnavailable.PROCEED_UNRESERVED
    with stage.trainer.update(rollout_id=1) as update:
        stage.stop()
        with pytest.raises(DecisionTimeout):
            update.claim(POLICY, max_groups=1)
        update.proceed_unreserved(ids)
        step_id = update.step(ids[:1])
        if record:
            update.record_step(step_id, step_of(ids[0]))
    assert update.phase is Phase.COMMITTED
    return update


def test_what_is_trained_on_unreserved_is_said_so_and_never_offered_again(stage: Stage) -> None:
    known = stage.group[0]
    update = go_unreserved(stage, [known], record=True)
    assert stage.trainer.may_export, "whoever goes on without an answer answers for it"
    assert (stage.trainer.own_updates, stage.trainer.last_update_id) == (1, update.update_id)
    stage.go_on()
    with stage.trainer.update(rollout_id=2) as later, pytest.raises(NothingTaken):
        later.claim(POLICY, max_groups=1)
    (decision,) = stage.run.decisions("Commit")
    assert (decision.outcome, decision.violation, decision.reason) == (Outcome.ACCEPTED, True, "unreserved")
    assert [(item.trajectory_id, item.state_after) for item in decision.items] == [(known, "consumed")]
    stage.run.decided("RecordingSealed")


def test_an_update_that_trained_on_nothing_unreserved_is_aborted(stage: Stage) -> None:
    stage.trainer._on_unavailable = OnUnavailable.PROCEED_UNRESERVED
    with stage.trainer.update(rollout_id=1) as update:
        stage.stop()
        with pytest.raises(DecisionTimeout):
            update.claim(POLICY, max_groups=1)
        update.proceed_unreserved(stage.group)
    assert (update.phase, stage.trainer.own_updates, stage.trainer.may_export) == (Phase.ABORTED, 0, True)


def test_a_row_that_another_trained_on_meanwhile_shows(stage: Stage) -> None:
    with stage.trainer.update(rollout_id=0) as update:
        update.claim(POLICY, max_groups=1)
        (loaded,) = update.load()
        update.admit({loaded.trajectory_id: loaded.log_probs}, POLICY)
        update.start()
        update.step(stage.group)
    unreserved = go_unreserved(stage, stage.group)
    stage.go_on()
    while len(stage.run.decisions("Commit")) < 2:
        time.sleep(0.05)
    decision = stage.run.decisions("Commit")[-1]
    assert (decision.update_id, decision.reason, decision.violation) == (unreserved.update_id, "unreserved", True)
    assert [(item.reason, item.state_after) for item in decision.items] == [("not_held", "consumed")]


def test_what_was_trained_on_unreserved_is_a_fact_also_after_the_updates_end(stage: Stage) -> None:
    stage.trainer._on_unavailable = OnUnavailable.PROCEED_UNRESERVED
    operator, source = stage.run.coordinator, Source(kind=SourceKind.OPERATOR, id="operator-0")
    with stage.trainer.update(rollout_id=1, renew_every_s=60) as update:
        stage.stop()
        with pytest.raises(DecisionTimeout):
            update.claim(POLICY, max_groups=1)
        operator._publish(
            Abort(
                header=operator._header().model_copy(update={"source": source}),
                update_id=update.update_id,
                reason=AbortReason.OPERATOR,
                disposition=AbortDisposition.RELEASE,
            )
        )
        assert operator.flush(20) == 0
        update.proceed_unreserved(stage.group)
        update.step(stage.group)
    stage.go_on()
    decision = stage.run.decided("Commit")
    assert (decision.reason, decision.violation) == ("unreserved", True)
    assert [item.state_after for item in decision.items] == ["consumed"]


def test_nobody_goes_unreserved_by_accident(stage: Stage) -> None:
    with stage.trainer.update(rollout_id=1) as update:
        stage.stop()
        with pytest.raises(DecisionTimeout):
            update.claim(POLICY, max_groups=1)
        with pytest.raises(OutOfOrder, match="with on_unavailable=proceed_unreserved"):
            update.proceed_unreserved(stage.group)
        stage.go_on()
        insist(update)
        stage.trainer._on_unavailable = OnUnavailable.PROCEED_UNRESERVED
        with pytest.raises(OutOfOrder, match="only where the decision on a Reserve or Admit has not come"):
            update.proceed_unreserved(stage.group)
