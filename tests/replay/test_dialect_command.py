"""`rollbook dialect` on the fixtures: what it names, in which order, and its exit codes."""

import json
from pathlib import Path

import pytest
from typer.testing import CliRunner

from rollbook.infra import command as cli
from rollbook.tests.replay.reseal import Json, edit_bundle

BUNDLES = Path(__file__).parents[1] / "data" / "bundles-1.0.0"


def dialect(name: str, *options: str) -> tuple[int, str]:
    result = CliRunner().invoke(cli.app, ["dialect", str(BUNDLES / name), *options])
    return result.exit_code, result.output


def named(name: str, subject: str) -> list[tuple[str, str]]:
    _, output = dialect(name, "--json")
    found = json.loads(output)["ranks"][0][subject]["conventions"]
    return [(one["framework"], one["name"]) for one in found if one["rank"] == 1]


@pytest.mark.parametrize(
    "bundle", ["full-k1", "full-nostd-kl0", "full-low_var_kl", "rollout", "two-rank", "loss-only", "pr65"]
)
def test_each_recorded_result_of_the_fixtures_is_known(bundle: str) -> None:
    assert dialect(bundle)[0] == 0


def test_a_result_that_no_convention_gives_ends_with_1(tmp_path: Path) -> None:
    def planted(expected: Json) -> None:
        expected["loss.policy"]["pg_loss"] += 0.5

    folder = edit_bundle(BUNDLES / "full-k1", tmp_path / "bundle", expected=planted)
    result = CliRunner().invoke(cli.app, ["dialect", str(folder)])
    assert result.exit_code == 1
    assert "pg_loss: no known convention; the nearest is" in result.output


def test_the_frameworks_that_compute_the_same_are_named_together() -> None:
    assert set(named("full-k1", "advantages")) == {
        ("bundle-format", "grpo"),
        ("skyrl", "grpo"),
        ("slime", "grpo"),
        ("verl", "grpo"),
        ("verl", "grpo_vectorized"),
    }
    assert set(named("full-k1", "pg_loss")) == {("bundle-format", "ppo, sum of sample means"), ("slime", "ppo")}


def test_a_batch_that_was_normalised_as_one_group_is_recognised() -> None:
    assert ("slime", "grpo without std, whole batch") in named("pr65", "advantages")


def test_the_text_names_the_nearest_first() -> None:
    _, output = dialect("full-k1")
    assert output.index("bundle-format 1.0.0") < output.index("areal 1.0.4") < output.index("trl 1.16.0")


def test_what_is_not_recorded_is_said() -> None:
    assert "not compared, the bundle records no loss" in dialect("rollout")[1]


def test_a_corrupt_bundle_is_refused() -> None:
    assert cli.run(["dialect", str(BUNDLES / "corrupt-payload")]) == 2
