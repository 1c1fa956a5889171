"""TRL's recorded runs, written as bundles by capture, replay: every micro-step and every optimizer step, no other
verdict, none left out."""

from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest
from typer.testing import CliRunner

from rollbook.infra import command as cli
from rollbook.replay.bundle.model import Producer, StageId
from rollbook.replay.bundle.reading.cohort import read_cohort, validate
from rollbook.replay.bundle.redaction import Redactor
from rollbook.replay.capture import Recorded
from rollbook.replay.capture.recorded import writer_of
from rollbook.replay.engine.engine import Compared, replay_cohort
from rollbook.replay.engine.result import Outcome, Verdict
from rollbook.replay.recognition.bundles import dialects_of
from rollbook.tests.replay.goldens.case import read
from rollbook.tests.replay.goldens.tally import FOLDER
from rollbook.tests.replay.goldens.trlasync import async_step
from rollbook.tests.replay.goldens.trlrun import Run

CLOSE = 1e-5
PRODUCER = Producer(commit="trl-1.16.0", dirty_patch_digest="", torch_version="2.15")
RECORDED = {
    # run: micro-steps, optimizer steps
    "bnpo-batch": (16, 8),
    "cispo-group": (16, 8),
    "dapo-group": (16, 8),
    "dapo-group-envmask": (16, 8),
    "dapo-group-tis-token-truncate": (24, 12),
    "dr_grpo-none": (16, 8),
    "grpo-group": (16, 8),
    "grpo-group-gspo": (16, 8),
    "grpo-none": (16, 8),
    "luspo-group": (16, 8),
    "sapo-group": (16, 8),
}


RUNS = sorted(
    {path.name.removeprefix("trl-1.16.0-").removesuffix(".json.gz") for path in FOLDER.glob("trl-*.json.gz")}
    - {"async"}
)


def run_of(name: str) -> Run:
    return Run(read(FOLDER / f"trl-1.16.0-{name}.json.gz"))


def written(steps: Iterator[Recorded], folder: Path) -> list[Path]:
    found: list[Path] = []
    for step in steps:
        of_step = folder / f"{len(found):03d}"
        found.append(of_step / step.bundle_id)
        writer_of(step, of_step, producer=PRODUCER, rank=0, attempt="", redactor=Redactor()).finalize()
    return found


def test_every_run_of_the_goldens_is_here() -> None:
    assert {*RUNS} >= {*RECORDED}
    assert (FOLDER / "trl-1.16.0-async.json.gz").exists()


@pytest.mark.parametrize("name", RUNS)
def test_every_loss_and_advantage_of_a_run_replays(tmp_path: Path, name: str) -> None:
    run = run_of(name)
    if run.unsupported:
        assert name not in RECORDED
        pytest.skip(f"unsupported: {run.unsupported}")
    micro = written(run.micro_steps(), tmp_path / "micro")
    whole = written(run.optimizer_steps(), tmp_path / "step")
    document = run.document
    of_run = (len(document["micro_steps"]), len({step["global_step"] for step in document["micro_steps"]}))
    assert (len(micro), len(whole)) == RECORDED.get(name, of_run) == of_run
    rows = [agreed(path) for path in (*micro, *whole)]
    assert all(rows)


def agreed(path: Path) -> int:
    """How many advantages were compared, besides the loss."""
    assert validate(path).problems == ()
    seen: dict[str, Compared] = {}
    report = replay_cohort(read_cohort(path), watch=lambda one: seen.update({one.result.field: one}))
    outcomes = {result.stage: result.outcome for result in report.ranks[0].stages}
    assert report.verdict is Verdict.PASSED, report.first_divergence
    assert outcomes[StageId.LOSS_POLICY] is outcomes[StageId.ADVANTAGE_ESTIMATE] is Outcome.PASSED
    assert outcomes[StageId.REWARD_POST_PROCESS] is Outcome.PASSED
    (rank,) = dialects_of(read_cohort(path))
    assert all(subject.confirmed and subject.agrees for subject in rank.subjects)
    for field in ("loss", "rewards", "advantages"):
        assert np.abs(seen[field].actual - seen[field].expected).max() <= CLOSE, (path, field)
    return seen["advantages"].expected.size


def test_every_loss_of_the_asynchronous_trainer_replays(tmp_path: Path) -> None:
    cases = read(FOLDER / "trl-1.16.0-async.json.gz")["cases"]
    calls = [raw for raw in cases if raw["function"] == "compute_loss"]
    paths = written((async_step([raw], at) for at, raw in enumerate(calls)), tmp_path)
    seen: dict[str, Compared] = {}
    for path in paths:
        report = replay_cohort(read_cohort(path), watch=lambda one: seen.update({one.result.field: one}))
        assert report.verdict is Verdict.PASSED, report.first_divergence
        assert abs(float(seen["loss"].actual[0] - seen["loss"].expected[0])) <= CLOSE
        (rank,) = dialects_of(read_cohort(path))
        assert rank.pg_loss.confirmed
        assert rank.pg_loss.agrees
    assert len(paths) == 6


@pytest.mark.parametrize("name", ["bnpo-batch", "dapo-group-tis-token-truncate", "luspo-group"])
def test_by_command(tmp_path: Path, name: str) -> None:
    path = written(run_of(name).optimizer_steps(), tmp_path)[3]
    told = CliRunner().invoke(cli.app, ["replay", str(path)])
    assert (told.exit_code, "pass" in told.output) == (0, True), told.output
    named = CliRunner().invoke(cli.app, ["dialect", str(path)], env={"COLUMNS": "300"})
    assert named.exit_code == 0, named.output
    assert "trl 1.16.0" in named.output
