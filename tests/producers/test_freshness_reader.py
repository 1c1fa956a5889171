"""What a worker is told of the room that is left, on the real broker; and that it never waits for it."""

import time
from dataclasses import replace

import pytest

from rollbook.infra.settings import Settings
from rollbook.producers import ClientClosed, FreshnessReader, Trainer
from rollbook.tests.producers.test_update import admit_all
from rollbook.tests.producers.world import PATIENT, POLICY, World, processor, world

WAIT_S = 20


def until(reader: FreshnessReader, capacity: int | None) -> None:
    deadline = time.monotonic() + WAIT_S
    while reader.latest is None or reader.capacity() != capacity:
        assert time.monotonic() < deadline, f"{reader.latest!r} {reader.fault}"
        time.sleep(0.02)


def test_a_worker_is_told_how_many_more_can_be_generated(run: World) -> None:
    with (
        FreshnessReader(run.settings, run.run_id) as reader,
        Trainer(run.settings, run.run_id, "learner-0", options=PATIENT) as trainer,
    ):
        trainer.start()
        group = run.group(2)
        until(reader, None)
        with trainer.update(0) as update:
            update.claim(POLICY, max_groups=1, wait_s=60)
            admit_all(update)
            update.start()
            assert reader.latest is not None
            room = 2 * reader.latest.max_lag
            until(reader, room)
            update.step(group)
            update.commit()
        run.group(1)
        until(reader, room - 1)
        age = reader.age_s()
        assert age is not None
        assert age < WAIT_S


def test_a_reader_that_comes_later_finds_the_last_snapshot(run: World) -> None:
    run.group(2)
    for _ in range(2):
        with FreshnessReader(run.settings, run.run_id) as reader:
            until(reader, None)
            assert reader.latest is not None
            assert reader.latest.run_id == run.run_id
            assert reader.fault == ""


def test_it_waits_for_no_broker_and_says_what_is_wrong(settings: Settings) -> None:
    nowhere = replace(settings, bootstrap_servers="127.0.0.1:9")
    begun = time.monotonic()
    with FreshnessReader(nowhere, "r") as reader:
        assert (reader.capacity(), reader.latest, reader.age_s()) == (None, None, None)
        assert time.monotonic() - begun < 1
        deadline = time.monotonic() + WAIT_S
        while not reader.fault:
            assert time.monotonic() < deadline
            time.sleep(0.02)
        assert "127.0.0.1:9" in reader.fault


def test_a_closed_one_says_so(settings: Settings) -> None:
    reader = FreshnessReader(settings, "r")
    reader.close()
    reader.close()
    with pytest.raises(ClientClosed, match="inside its with block"):
        reader.capacity()


def test_it_goes_on_with_a_run_that_begins_after_it(settings: Settings) -> None:
    with processor(settings), world(settings) as made, FreshnessReader(settings, made.run_id) as reader:
        made.group(2)
        until(reader, None)
        with Trainer(settings, made.run_id, "learner-0", options=PATIENT) as trainer:
            started = trainer.start().sequence
            deadline = time.monotonic() + WAIT_S
            while reader.latest is None or reader.latest.sequence < started:
                assert time.monotonic() < deadline
                time.sleep(0.02)
