"""Capture changes nothing, delays nothing and breaks nothing in the thread that trains, whatever goes wrong."""

import logging
import os
import random
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from rollbook.replay.bundle.layout import is_leftover
from rollbook.replay.bundle.reading.cohort import read_bundle, read_cohort, validate
from rollbook.replay.capture import (
    Capability,
    Capture,
    CapturePlan,
    Counts,
    Links,
    Place,
    Producer,
    Recorded,
    StageId,
)
from rollbook.replay.engine.engine import replay_cohort
from rollbook.replay.engine.result import Verdict
from rollbook.schemas.errors import BadInput
from rollbook.tests.replay.tiny_training import advantages, recorded, train

PRODUCER = Producer(commit="c0ffee", dirty_patch_digest="", torch_version=torch.__version__)


def capture(folder: Path, **changed: Any) -> Capture:
    return Capture(CapturePlan(folder), **{"producer": PRODUCER, **changed})


def one(rollout_id: int = 0, step_id: int | None = 0, tokens: int = 10, **changed: Any) -> Recorded:
    """A step with nothing but entropy."""
    made = recorded((rollout_id, step_id), {"entropy": torch.arange(float(tokens))}, None, {})
    return replace(made, **changed)


def wait_for(condition: Callable[[], bool]) -> None:
    deadline = time.monotonic() + 30
    while not condition():
        assert time.monotonic() < deadline
        time.sleep(0.005)


def states() -> tuple[Any, ...]:
    _, keys, *rest = np.random.get_state()
    return torch.get_rng_state().tolist(), random.getstate(), list(keys), rest


def test_the_training_is_the_same_to_the_last_bit_and_what_it_records_replays(tmp_path: Path) -> None:
    alone = train(lambda *_: None)
    after_alone = states()
    with capture(tmp_path) as made:
        watched = train(lambda rollout_id, step_id, make: made.record(make))
    assert all(torch.equal(ours, theirs) for ours, theirs in zip(alone, watched, strict=True))
    assert states() == after_alone
    assert made.counts == Counts(taken=6, written=6)
    names = [f"replay-{rollout_id}-{step_id}" for rollout_id in range(3) for step_id in range(2)]
    assert sorted(entry.name for entry in tmp_path.iterdir()) == names
    for name in names:
        report = replay_cohort(read_cohort(tmp_path / name))
        assert report.verdict is Verdict.PASSED
        assert report.first_divergence is None
        assert any(
            field.values for stage in report.ranks[0].stages for field in stage.fields if stage.stage == "loss.policy"
        )


def test_a_rollout_is_recorded_before_its_steps_and_they_may_name_it(tmp_path: Path) -> None:
    rewards = recorded((5, None), {"advantages": advantages()}, None, {})
    step = replace(one(5, 0), links=Links(update_id="5", update_bundle=rewards.bundle_id))
    with capture(tmp_path) as made:
        assert made.record(rewards)
        assert made.record(step)
    assert sorted(entry.name for entry in tmp_path.iterdir()) == ["replay-5", "replay-5-0"]
    assert replay_cohort(read_cohort(tmp_path / "replay-5")).verdict is Verdict.PASSED
    assert read_bundle(tmp_path / "replay-5-0").index.links == step.links


def test_remote_rewards_are_recorded_only(tmp_path: Path) -> None:
    with capture(tmp_path) as made:
        made.record(one(remote_rewards=True))
    contracts = read_bundle(tmp_path / "replay-0-0").manifest.stage_contracts
    assert contracts[StageId.REWARD_RAW].capability is Capability.RECORDED_ONLY
    assert contracts[StageId.REWARD_POST_PROCESS].capability is Capability.RECOMPUTE


def test_a_mini_batch_with_a_part_of_a_group_promises_no_more_than_it_can(tmp_path: Path) -> None:
    with capture(tmp_path) as made:
        made.record(lambda: replace(one(), rows=replace(one().rows, group_index=[0, 1, 1, 2])))
    assert made.counts.written == 1
    contracts = read_bundle(tmp_path / "replay-0-0").manifest.stage_contracts
    assert contracts[StageId.REWARD_POST_PROCESS].capability is Capability.RECORDED_ONLY


def test_what_the_plan_does_not_want_is_not_even_made(tmp_path: Path) -> None:
    plan = CapturePlan.from_env({"ROLLBOOK_CAPTURE": "1", "ROLLBOOK_CAPTURE_DIR": str(tmp_path),
                                 "ROLLBOOK_CAPTURE_UPDATES": "1:1", "ROLLBOOK_CAPTURE_ROLLOUTS": "none"})  # fmt: skip
    with Capture(plan, producer=PRODUCER) as made:
        made.record(one(5, None))
        train(lambda rollout_id, step_id, make: made.wants_step(rollout_id, step_id) and made.record(make))
        assert not made.wants_rollout(1)
    assert [entry.name for entry in tmp_path.iterdir()] == ["replay-1-1"]


def never() -> Recorded:
    raise AssertionError("made for nothing")


def test_off_it_costs_one_comparison() -> None:
    threads = threading.active_count()
    off = Capture.from_env(producer=PRODUCER, environ={})
    assert threading.active_count() == threads
    assert not off.wants_step(0, 0)
    assert not off.record(never)
    assert off.close() == Counts()


PLACES = [
    # place, whether it records
    (Place(), True),
    (Place(rank=1, expected_ranks=(1,), pipeline_rank=1, pipeline_size=2), True),
    (Place(rank=0, expected_ranks=(0, 1), pipeline_rank=0, pipeline_size=2, attempt="a"), False),
    (Place(rank=2, expected_ranks=(0, 1), attempt="a"), False),
]


@pytest.mark.parametrize("number", [2, "0,1"])
def test_ranks_are_a_list(number: Any) -> None:
    with pytest.raises(BadInput, match="is one, and no list: give the ranks that record, such as range"):
        Place(expected_ranks=number)


@pytest.mark.parametrize(("place", "records"), PLACES)
def test_only_expected_ranks_of_the_last_pipeline_stage_record(tmp_path: Path, place: Place, records: bool) -> None:
    with capture(tmp_path, place=place) as made:
        assert made.wants_step(0, 0) is records
        assert made.record(one() if records else never) is records
    assert (tmp_path / "replay-0-0").exists() is records


def test_a_rank_that_is_expected_twice_is_refused_at_the_start(tmp_path: Path) -> None:
    with pytest.raises(BadInput, match="a rank twice"):
        capture(tmp_path, place=Place(expected_ranks=(0, 0), attempt="a"))


def test_several_ranks_without_an_attempt_are_refused_at_the_start(tmp_path: Path) -> None:
    with pytest.raises(BadInput, match="no attempt is given"):
        capture(tmp_path, place=Place(rank=0, expected_ranks=(0, 1)))


def test_ranks_wait_for_nobody_and_the_last_publishes(tmp_path: Path) -> None:
    ranks = [capture(tmp_path, place=Place(rank=rank, expected_ranks=(0, 1), attempt="a")) for rank in (0, 1)]
    ranks[0].record(one())
    assert ranks[0].close() == Counts(taken=1, written=1, unfinished=1)
    assert all(is_leftover(entry.name) for entry in tmp_path.iterdir())
    ranks[1].record(one())
    assert ranks[1].close() == Counts(taken=1, written=1)
    assert [entry.name for entry in tmp_path.iterdir()] == ["replay-0-0"]
    assert validate(tmp_path / "replay-0-0").ranks == (0, 1)


def test_what_is_recorded_is_what_was_there_then(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with held(monkeypatch) as release, capture(tmp_path) as made:
        mine, numpys = torch.arange(10.0), np.arange(10, dtype=np.float32)
        step = one()
        made.record(replace(step, tensors={"entropy": mine, "kl": numpys}))
        mine.zero_()
        numpys.fill(0)
        release()
    written = read_bundle(tmp_path / "replay-0-0").tensors
    assert written["entropy"].tolist() == written["kl"].tolist() == list(range(10))


class held:  # noqa: N801
    """The writing thread stands still until it is released."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self._gate = threading.Event()
        self.reached = threading.Event()
        real = Capture._write

        def waiting(capture: Capture, record: Recorded) -> None:
            self.reached.set()
            assert self._gate.wait(30)
            real(capture, record)

        monkeypatch.setattr(Capture, "_write", waiting)

    def __enter__(self) -> "held":
        return self

    def __call__(self) -> None:
        self._gate.set()

    def __exit__(self, *_: object) -> None:
        self._gate.set()


def test_what_does_not_fit_is_dropped_and_the_trainer_goes_on(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with held(monkeypatch) as release, capture(tmp_path, max_waiting=2) as made:
        assert made.record(one(0))
        assert release.reached.wait(30)
        assert [made.record(one(number)) for number in range(1, 6)] == [True, True, False, False, False]
        assert made.counts == Counts(taken=3, dropped=3)
        release()
        assert made.close() == Counts(taken=3, written=3, dropped=3)
    assert len(list(tmp_path.iterdir())) == 3


def test_the_bound_in_bytes_holds_before_anything_is_copied(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with held(monkeypatch) as release, capture(tmp_path, max_waiting_bytes=1000) as made:
        vast = torch.zeros(1).expand(2**40)  # a copy would take 4 TB
        assert not made.record(replace(one(), tensors={"entropy": vast}))
        assert made.record(one(1))
        assert made.record(one(2))
        assert [made.record(one(number)) for number in range(3, 40)].count(True) < 6
        release()
        wait_for(lambda: made.counts.written == made.counts.taken)
        assert made.record(one(99))


class Broken:
    """An array of no use."""

    def detach(self) -> "Broken":
        raise RuntimeError("CUDA error: hunter2")


WRONG: list[tuple[str, Callable[[], Any], str]] = [
    ("a maker that raises", lambda: [][1], "IndexError at"),
    ("an array that raises", lambda: one(tensors={"kl": Broken()}), "RuntimeError at"),
    ("a tensor too short", lambda: one(tokens=9), "entropy.shape: [9]"),
    ("a tensor with NaN", lambda: one(tensors={"kl": torch.full((10,), float("nan"))}), "not a finite number"),
    ("a name that is a path", lambda: one(tensors={"../kl": torch.zeros(10)}), "manifest.json"),
    ("a loss without parts", lambda: one(loss={"loss": 1.0}), "pg_loss: missing"),
    ("a loss of two values", lambda: one(loss={"loss": torch.zeros(2)}), "loss.policy.loss: not numbers"),
    ("a negative step", lambda: one(-1), "rollout_id"),
    ("nothing of ours", lambda: "a record", "AttributeError at"),
]  # fmt: skip


@pytest.mark.parametrize(("make", "told"), [case[1:] for case in WRONG], ids=[case[0] for case in WRONG])
def test_whatever_is_wrong_is_counted_and_logged_and_never_raised(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, make: Callable[[], Recorded], told: str
) -> None:
    with caplog.at_level(logging.WARNING), capture(tmp_path) as made:
        made.record(make)
        made.record(one(77))
    assert (made.counts.failed, made.counts.written) == (1, 1)
    (line,) = [entry.getMessage() for entry in caplog.records]
    assert told in line
    assert "hunter2" not in caplog.text
    assert "\n" not in line
    assert [entry.name for entry in tmp_path.iterdir()] == ["replay-77-0"]


def test_a_disk_that_fails_is_counted(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    (tmp_path / "file").touch()
    with capture(tmp_path / "file") as made:
        assert made.record(one())
    assert made.counts == Counts(taken=1, failed=1)
    assert "cannot write bundle" in caplog.text


def test_a_bundle_that_is_there_is_never_overwritten(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    with capture(tmp_path) as made:
        made.record(one())
        made.record(one(tensors={}))
    assert made.counts == Counts(taken=2, written=1, failed=1)
    assert "exists: bundles are never overwritten" in caplog.text
    assert "entropy" in read_bundle(tmp_path / "replay-0-0").tensors


def test_a_thread_that_stands_still_holds_up_the_end_for_as_long_as_was_said(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with held(monkeypatch) as release:
        made = capture(tmp_path)
        made.record(one())
        began = time.monotonic()
        assert made.close(timeout_s=0.2).written == 0
        assert time.monotonic() - began < 5
        assert not made.record(one(1))
        release()
        wait_for(lambda: made.counts.written == 1)


def test_a_fork_neither_hangs_nor_records(tmp_path: Path) -> None:
    with capture(tmp_path) as made:
        made.record(one())
        with made._lock:  # as another thread may hold it at that moment
            child = os.fork()
            if child == 0:
                os._exit(int(made.record(one(1))) + int(made.close() != Counts()))
        wait_for(lambda: os.waitpid(child, os.WNOHANG) == (child, 0))
    assert [entry.name for entry in tmp_path.iterdir()] == ["replay-0-0"]


LOOP = """
import sys
from pathlib import Path
import numpy as np
from rollbook.replay.capture import Capture, CapturePlan, Config, Producer, Recorded, Rows
config = Config(advantage_estimator="grpo", n_samples_per_prompt=1, grpo_std_normalization=False, kl_loss_type="k1",
                kl_coef=0.0, eps_clip=0.2, eps_clip_high=0.2, entropy_coef=0.0)
rows = Rows(["s"], [0], [3], [5], np.ones(3, np.int64), [1.0], [0.0])
capture = Capture.from_env(producer=Producer(commit="", dirty_patch_digest="", torch_version=""))
for update in range(5):
    capture.record(Recorded(update, 0, rows, config, {"entropy": np.zeros(3, np.float32)}))
heavy = {"torch", "confluent_kafka", "typer", "rich", "fastavro"} & sys.modules.keys()
assert not heavy, heavy
"""


def test_a_process_that_just_ends_has_written_and_imported_nothing_heavy(tmp_path: Path) -> None:
    env = {**os.environ, "RELAX_REPLAY_CAPTURE": "true", "RELAX_REPLAY_CAPTURE_DIR": str(tmp_path),
           "RELAX_REPLAY_CAPTURE_STEPS": "0:0,2:0, 3:1"}  # fmt: skip
    subprocess.run([sys.executable, "-c", LOOP], check=True, env=env)
    assert sorted(entry.name for entry in tmp_path.iterdir()) == ["replay-0-0", "replay-2-0"]


@pytest.fixture(autouse=True)
def no_thread_is_left() -> Iterator[None]:
    yield
    wait_for(lambda: not any(thread.name == "rollbook-capture" for thread in threading.enumerate()))
