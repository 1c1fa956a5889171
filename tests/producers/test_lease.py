"""Leases on the real broker: renewed in the background, lost by a process that was stopped, and never trained twice."""

import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager

import pytest

from rollbook.infra.settings import Settings, Topic
from rollbook.producers import LearnerFenced, Phase, Trainer, UpdateEnded
from rollbook.producers.updates.renewal import RENEWALS_A_LEASE
from rollbook.schemas.records.decision import Outcome
from rollbook.schemas.records.run import DriftGate
from rollbook.schemas.records.update import Commit
from rollbook.tests.producers.world import PATIENT, POLICY, World, world

LEASE_MS = 1200


@pytest.fixture
def leased(processed: Settings) -> Iterator[World]:
    with world(processed, drift_gate=DriftGate.OFF, lease_ms=LEASE_MS) as made:
        yield made


@contextmanager
def learner(run: World, name: str = "learner-0", lease_ms: int = LEASE_MS) -> Iterator[Trainer]:
    with Trainer(
        run.settings, run.run_id, name, lease_ms=lease_ms, drift_gate=DriftGate.OFF, options=PATIENT
    ) as trainer:
        trainer.start()
        yield trainer


class Paused:
    """A trainer process at its pause, stopped until its lease is over."""

    def __init__(self, run: World, pause: str) -> None:
        arguments = [run.settings.bootstrap_servers, run.settings.topic_prefix, run.run_id, str(LEASE_MS), pause]
        self.process = subprocess.Popen(
            [sys.executable, "-m", "rollbook.tests.producers.pausing", *arguments],
            text=True,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
        )
        assert self.read() == "paused"
        os.kill(self.process.pid, signal.SIGSTOP)
        run.decided("LeaseExpired")

    def wake(self) -> None:
        assert self.process.stdin is not None
        self.process.stdin.write("go on\n")
        self.process.stdin.flush()
        os.kill(self.process.pid, signal.SIGCONT)

    def read(self) -> str:
        assert self.process.stdout is not None
        return self.process.stdout.readline().strip()

    def end(self) -> None:
        self.process.kill()
        self.process.communicate()


@contextmanager
def paused(run: World, pause: str) -> Iterator[Paused]:
    process = Paused(run, pause)
    try:
        yield process
    finally:
        process.end()


def trained(run: World) -> list[str]:
    """Every trajectory of an accepted commit, as often as it was trained."""
    accepted = {one.source.offset for one in run.decisions("Commit") if one.outcome is Outcome.ACCEPTED}
    records = [one.record for one in run.seen(Topic.LIFECYCLE) if one.offset in accepted]
    return [
        name
        for record in records
        if isinstance(record, Commit)
        for step in record.steps
        for name in step.trajectory_ids
    ]


def test_a_trainer_stopped_before_its_start_loses_its_rows_and_does_not_step(leased: World) -> None:
    group = leased.group(2)
    with paused(leased, "before") as sleeper:
        with learner(leased, "learner-1") as other, other.update(rollout_id=0) as update:
            update.claim(POLICY, max_groups=1, wait_s=60)
            update.start()
            update.step(update.trainable)
        sleeper.wake()
        assert sleeper.read() == "ended"
        assert sleeper.read() == "aborted True"
    assert sorted(trained(leased)) == sorted(group)


def test_a_trainer_stopped_after_its_start_is_in_doubt_and_keeps_its_rows(leased: World) -> None:
    group = leased.group(2)
    with paused(leased, "after") as sleeper:
        assert leased.decided("LeaseExpired").reason == "in_doubt"
        sleeper.wake()
        assert sleeper.read() == "stepped"
        assert sleeper.read() == "committed True"
    assert sorted(trained(leased)) == sorted(group)


def test_an_open_update_outlives_its_lease_while_its_process_lives(leased: World) -> None:
    leased.group(1)
    with learner(leased) as trainer, trainer.update(rollout_id=0) as update:
        update.claim(POLICY, max_groups=1, wait_s=60)
        while len(leased.decisions("Renew")) < 2 * RENEWALS_A_LEASE:
            time.sleep(LEASE_MS / 1000 / RENEWALS_A_LEASE)
        update.start()
        update.step(update.trainable)
    assert update.phase is Phase.COMMITTED
    assert Outcome.ACCEPTED not in [one.outcome for one in leased.decisions("LeaseExpired")]


def test_nothing_is_renewed_after_the_commit(leased: World) -> None:
    leased.group(1)
    with learner(leased) as trainer:
        with trainer.update(rollout_id=0, renew_every_s=0.01) as update:
            update.claim(POLICY, max_groups=1, wait_s=60)
            leased.decided("Renew")
            update.start()
            update.step(update.trainable)
        for _ in range(20):
            trainer.start()  # a round trip that comes after whatever was sent before
    assert {one.outcome for one in leased.decisions("Renew")} == {Outcome.ACCEPTED}


def test_without_renewals_the_update_ends_and_says_so(leased: World) -> None:
    leased.group(1)
    with learner(leased, lease_ms=0) as trainer:
        with trainer.update(rollout_id=0) as update:
            update.claim(POLICY, max_groups=1, wait_s=60)
            assert update.renew().outcome is Outcome.ACCEPTED
            leased.decided("LeaseExpired")
            with pytest.raises(UpdateEnded, match=r"update_ended.*\(aborted\); train on nothing of it"):
                update.renew()
        assert update.phase is Phase.ABORTED
        assert trainer.may_export, "nothing was stepped"


def test_an_update_that_is_let_go_of_is_not_renewed(leased: World) -> None:
    (one,) = leased.group(1)
    with learner(leased) as trainer:
        update = trainer.update(rollout_id=0)
        update.claim(POLICY, max_groups=1, wait_s=60)
        leased.decided("Renew")
        del update
        assert leased.decided("LeaseExpired").reason == "lease_expired"
        with trainer.update(rollout_id=1) as later:
            later.claim(POLICY, max_groups=1, wait_s=60)
            assert [item.trajectory_id for item in later.held] == [one]


def test_an_end_that_the_background_hears_of_surfaces_at_the_next_call(run: World, trainer: Trainer) -> None:
    run.group(1)
    with trainer.update(rollout_id=0, renew_every_s=0.02) as update:
        update.claim(POLICY, max_groups=1, wait_s=60)
        run.coordinator.abort(update.update_id, text="the queue is needed")
        run.decided("Renew", Outcome.REJECTED)
        with pytest.raises(UpdateEnded):
            update.start()
    assert update.phase is Phase.ABORTED


def test_a_fence_that_the_background_hears_of_ends_the_learner(run: World, trainer: Trainer) -> None:
    run.group(1)

    def train() -> None:
        with trainer.update(rollout_id=0, renew_every_s=0.02) as update:
            update.claim(POLICY, max_groups=1, wait_s=60)
            with Trainer(run.settings, run.run_id, "learner-0", options=PATIENT) as second:
                second.start(expected_epoch=trainer.learner.epoch)
            run.decided("Renew", Outcome.REJECTED)
            update.start()

    with pytest.raises(LearnerFenced, match=r"export nothing and exit.*reloads the weights"):
        train()
    assert not trainer.may_export
