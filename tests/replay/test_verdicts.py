"""The verdict of every fixture: bundles that an independent implementation wrote."""

import json
from pathlib import Path

import pytest
from typer.testing import CliRunner

from rollbook.replay.bundle.problems import BadBundle
from rollbook.replay.bundle.reading.cohort import read_cohort, validate
from rollbook.replay.commands.replay import app
from rollbook.replay.engine.engine import replay_cohort
from rollbook.replay.engine.result import Outcome, Verdict
from rollbook.replay.engine.selection import Selection
from rollbook.replay.stages.table import STAGES
from rollbook.schemas.errors import BadInput
from rollbook.tests.replay.reseal import FIXTURES

FULL = ("full-k1", "full-k2", "full-k3", "full-low_var_kl", "full-nostd-kl0")
RECOMPUTED = [stage for stage in STAGES if stage != "loss.value"]

VERDICTS = [
    # bundle, valid, verdict, stages that passed
    *((name, True, "pass", RECOMPUTED) for name in FULL),
    ("loss-only", True, "pass", ["loss.policy"]),
    ("rollout", True, "pass", ["reward.raw", "reward.post_process", "advantage.kl", "advantage.estimate"]),
    ("two-rank", True, "pass", RECOMPUTED),
    ("two-rank/rank-0", True, "pass", RECOMPUTED),
    ("pr65", True, "diverges", ["sample", "reward.raw", "advantage.kl"]),
]


@pytest.mark.parametrize(("name", "valid", "verdict", "passed"), VERDICTS, ids=[case[0] for case in VERDICTS])
def test_verdict(name: str, valid: bool, verdict: str, passed: list[str]) -> None:
    assert validate(FIXTURES / name).valid is valid
    report = replay_cohort(read_cohort(FIXTURES / name))
    assert report.verdict == verdict
    for rank in report.ranks:
        assert [stage.stage for stage in rank.stages if stage.outcome is Outcome.PASSED] == passed


def test_both_ranks_of_a_cohort_are_replayed() -> None:
    assert [rank.rank for rank in replay_cohort(read_cohort(FIXTURES / "two-rank")).ranks] == [0, 1]


def test_loss_value_is_known_and_skipped() -> None:
    (rank,) = replay_cohort(read_cohort(FIXTURES / "full-k1")).ranks
    assert rank.stages[-1].outcome is Outcome.UNSUPPORTED


def test_pr65_fails_first_at_reward_post_process() -> None:
    first = replay_cohort(read_cohort(FIXTURES / "pr65")).first_divergence
    assert first is not None
    assert (first.stage, first.field, first.diverging_samples) == ("reward.post_process", "rewards", 8)
    assert (first.point.sample_id, first.point.expected, first.point.actual) == ("s-0", 0.28125, 0.5625)


def test_a_stage_by_itself_is_judged_from_its_recorded_inputs() -> None:
    report = replay_cohort(read_cohort(FIXTURES / "pr65"), Selection(stages=(RECOMPUTED[-1],)))
    assert report.verdict is Verdict.PASSED


def test_corrupt_payload_is_refused_before_any_stage() -> None:
    (problem,) = validate(FIXTURES / "corrupt-payload").problems
    assert problem.file == "payloads/advantages.pt"
    assert "checksum of `advantages`" in problem.what
    with pytest.raises(BadBundle, match="checksum of `advantages`"):
        read_cohort(FIXTURES / "corrupt-payload")


def test_a_batch_of_a_bundle_without_membership_is_an_error() -> None:
    with pytest.raises(BadInput, match="records no micro-batch membership"):
        replay_cohort(read_cohort(FIXTURES / "rollout"), Selection(batches=("mb-0000",)))


def test_an_unknown_batch_is_an_error() -> None:
    with pytest.raises(BadInput, match="no micro-batch 'mb-0009': it has mb-0000, mb-0001"):
        replay_cohort(read_cohort(FIXTURES / "full-k1"), Selection(batches=("mb-0009",)))


def test_a_batch_takes_whole_groups_and_says_what_a_part_cannot_verify() -> None:
    report = replay_cohort(read_cohort(FIXTURES / "full-k1"), Selection(batches=("mb-0001",)))
    outcomes = {stage.stage: stage.outcome for stage in report.ranks[0].stages}
    assert report.verdict is Verdict.PASSED
    assert report.selected_samples == 4
    assert outcomes[RECOMPUTED[-1]] is Outcome.SKIPPED


CLI = [
    # command line, exit code
    (["validate", "full-k1"], 0),
    (["validate", "corrupt-payload"], 1),
    (["replay", "full-k1"], 0),
    (["replay", "pr65"], 1),
    (["replay", "two-rank"], 0),
    (["replay", "full-k1", "--stage", "advantage.kl", "--stage", "reward.raw"], 0),
    (["replay", "full-k1", "--stage", "loss.value"], 4),
    (["replay", "loss-only", "--stage", "advantage.kl"], 4),
    (["replay", "full-k1", "--batch", "mb-0000"], 0),
    (["inspect", "full-k1"], 0),
    (["inspect", "two-rank"], 0),
    (["inspect", "corrupt-payload"], 0),
]


@pytest.mark.parametrize(("args", "code"), CLI, ids=[" ".join(case[0]) for case in CLI])
@pytest.mark.parametrize("as_json", [False, True], ids=["text", "json"])
def test_exit_codes(args: list[str], code: int, as_json: bool) -> None:
    command, name, *options = args
    line = [command, str(FIXTURES / name), *options, *(["--json"] if as_json else [])]
    result = CliRunner().invoke(app, line)
    assert result.exception is None or isinstance(result.exception, SystemExit), result.exception
    assert result.exit_code == code
    if as_json:
        assert isinstance(json.loads(result.stdout), dict)


BAD_USE = [
    # command line, what the one line says
    (["replay", "no-such-bundle"], "no bundle at"),
    (["validate", "no-such-bundle"], "no bundle at"),
    (["inspect", "no-such-bundle"], "no bundle at"),
    (["replay", "full-k1/index.json"], "is a file, a bundle is a folder"),
    (["replay", "."], "it holds bundles, name one: corrupt-payload, full-k1"),
    (["replay", "full-k1/payloads"], "is not a bundle"),
    (["replay", "corrupt-payload"], "checksum of `advantages`"),
    (["replay", "full-k1", "--stage", "advantage"], "no stage 'advantage': the stages are sample, reward.raw"),
    (["replay", "rollout", "--batch", "mb-0000"], "records no micro-batch membership"),
]


@pytest.mark.parametrize(("args", "message"), BAD_USE, ids=[" ".join(case[0]) for case in BAD_USE])
def test_bad_use_is_one_line_with_the_remedy(args: list[str], message: str) -> None:
    result = CliRunner().invoke(app, [args[0], str(FIXTURES / args[1]), *args[2:]])
    assert isinstance(result.exception, BadInput)
    assert result.exception.exit_code == 2
    assert message in str(result.exception)
    assert "\n" not in str(result.exception)


def test_json_names_the_first_divergence() -> None:
    result = CliRunner().invoke(app, ["replay", str(FIXTURES / "pr65"), "--json"])
    first = json.loads(result.stdout)["first_divergence"]
    assert first["stage"] == "reward.post_process"
    assert (first["sample_id"], first["expected"], first["actual"]) == ("s-0", 0.28125, 0.5625)
    assert (first["abs_error"], first["diverging_samples"]) == (0.28125, 8)


def test_inspect_works_without_complete(tmp_path: Path) -> None:
    bundle = tmp_path / "unfinished"
    bundle.mkdir()
    for name in ("manifest.json", "index.json", "expected.json"):
        (bundle / name).write_bytes((FIXTURES / "full-k1" / name).read_bytes())
    result = CliRunner().invoke(app, ["inspect", str(bundle)])
    assert result.exit_code == 0
    assert "no COMPLETE" in result.stdout
    assert "advantages" in result.stdout
