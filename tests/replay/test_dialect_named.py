"""`rollbook dialect` on bundles of format 1.1.0: what they record of a run is input, what they name is held against
what was found."""

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from typer.testing import CliRunner

from rollbook.infra import command as cli
from rollbook.tests.replay.reseal import Json, edit_bundle
from rollbook.tests.replay.test_conventions import VERL, flat, named, part_of_cohort, rollout, step

VANILLA = ("policy_loss.vanilla/trail-small/1", "vanilla, token-mean")


def dialect(path: Path) -> tuple[int, Json]:
    result = CliRunner().invoke(cli.app, ["dialect", str(path), "--json"])
    return result.exit_code, json.loads(result.stdout)["ranks"][0]


def firsts(subject: Json) -> set[tuple[str, str]]:
    return {(one["framework"], one["name"]) for one in subject["conventions"] if one["rank"] == 1}


def naming(path: Path, what: str, convention: Json, folder: Path) -> Path:
    def index(content: Json) -> None:
        content["config"]["conventions"][what] = convention

    return edit_bundle(path, folder, index=index)


@pytest.mark.parametrize(
    ("call", "name"),
    [("adv.grpo/even-groups/2", "grpo"), ("adv.rloo/interleaved/1", "rloo"), ("adv.gae/interleaved/3", "gae")],
)
def test_the_named_convention_of_advantages_is_nearest(tmp_path: Path, call: str, name: str) -> None:
    code, found = dialect(rollout(call, name, tmp_path / "bundle"))
    assert (code, found["advantages"]["named_agrees"]) == (0, True)
    own = json.loads((tmp_path / "bundle" / "index.json").read_text())["config"]["conventions"]["advantages"]
    assert found["advantages"]["named"] == own
    assert ("verl", own["name"]) in firsts(found["advantages"])


def test_gamma_and_lambda_are_those_of_the_run(tmp_path: Path) -> None:
    path = rollout("adv.gae/interleaved/3", "gae", tmp_path / "bundle")
    assert json.loads((path / "index.json").read_text())["config"]["conventions"]["lam"] != 1.0
    other = edit_bundle(
        path, tmp_path / "other", index=lambda content: content["config"]["conventions"].update(gamma=0.5, lam=0.5)
    )
    code, found = dialect(other)
    assert (code, found["advantages"]["named_agrees"]) == (1, False)


def test_members_that_were_not_consumed_count_in_their_group(tmp_path: Path) -> None:
    path = part_of_cohort(tmp_path)
    code, found = dialect(path)
    assert (code, found["advantages"]["named_agrees"]) == (0, True)
    without = edit_bundle(path, tmp_path / "without", index=lambda content: content.pop("cohort"))
    assert dialect(without)[0] == 1


def test_a_named_convention_that_is_another_is_told(tmp_path: Path) -> None:
    own = rollout("adv.grpo/even-groups/2", "grpo", tmp_path / "own")
    other = naming(own, "advantages", named("trl", "scale_rewards group"), tmp_path / "other")
    code, found = dialect(other)
    subject = found["advantages"]
    assert (code, subject["recognised"], subject["named_agrees"]) == (1, True, False)
    assert subject["named_result"]["rank"] > 1
    assert not subject["named_result"]["matches"]
    text = CliRunner().invoke(cli.app, ["dialect", str(other)], env={"COLUMNS": "300"}).output
    assert "the bundle names trl 1.16.0 scale_rewards group, which does not give what was recorded" in text
    assert "nearer is " in text


def test_a_named_convention_that_nobody_knows_is_told(tmp_path: Path) -> None:
    own = rollout("adv.grpo/even-groups/2", "grpo", tmp_path / "own")
    code, found = dialect(naming(own, "advantages", named("verl", "no such"), tmp_path / "other"))
    subject = found["advantages"]
    assert (code, subject["named_agrees"], subject["named_result"]) == (1, False, None)


def test_a_bundle_that_names_nothing_is_said_to_name_nothing(tmp_path: Path) -> None:
    own = rollout("adv.grpo/even-groups/2", "grpo", tmp_path / "own")
    nothing = edit_bundle(own, tmp_path / "old", index=lambda content: content["config"].pop("conventions"))
    code, found = dialect(nothing)
    assert (code, found["advantages"]["named"], found["advantages"]["named_agrees"]) == (0, None, None)


def test_the_numbers_of_a_loss_are_those_of_the_run(tmp_path: Path) -> None:
    code, found = dialect(
        step("policy_loss.vanilla/trail-large/global-batch/2", "vanilla, token-sum", tmp_path / "bundle")
    )
    assert (code, found["pg_loss"]["named_agrees"]) == (0, True)
    other = edit_bundle(
        tmp_path / "bundle",
        tmp_path / "other",
        index=lambda content: content["config"]["conventions"]["whole_batch"].update(ranks=3.0),
    )
    assert dialect(other)[1]["pg_loss"]["named_agrees"] is False


CORRECTIONS = [
    # corrections, times the plain loss
    ([{"most": 5.0}], 2.0),
    ([{"most": 1.5}], 1.5),
    ([{"most": 5.0}, {"least": 1.0, "most": 1.25}], 2.5),
    ([{"most": 1.5, "outside": "zero"}], 0.0),
]


@pytest.mark.parametrize(("corrections", "times"), CORRECTIONS)
def test_weights_are_part_of_the_loss(tmp_path: Path, corrections: list[Json], times: float) -> None:
    path = corrected(tmp_path / "bundle", corrections, -np.log(2), times * VERL[VANILLA[0]]["outputs"]["loss"])
    code, found = dialect(path)
    assert (code, found["pg_loss"]["named_agrees"]) == (0, True)


def test_rejected_tokens_leave_the_loss(tmp_path: Path) -> None:
    sampler = np.zeros_like(flat(VERL[VANILLA[0]]["inputs"]["old_log_prob"]))
    sampler[0] = -np.log(8)
    mask = np.asarray(VERL[VANILLA[0]]["inputs"]["response_mask"]).copy()
    assert mask[0, 0]
    mask[0, 0] = False
    rejected = float(np.asarray(VERL[VANILLA[0]]["outputs"]["loss_mat"])[mask].mean())
    path = corrected(tmp_path / "bundle", [{"most": 3.0, "outside": "reject"}], sampler, rejected)
    code, found = dialect(path)
    assert (code, found["pg_loss"]["named_agrees"]) == (0, True)
    whole = corrected(tmp_path / "whole", [], sampler, rejected)
    assert dialect(whole)[1]["pg_loss"]["named_agrees"] is False


def corrected(folder: Path, corrections: list[Json], shift: Any, loss: float) -> Path:
    """The recorded call, its sampler's log-probs `shift` away, its loss another."""
    old = flat(VERL[VANILLA[0]]["inputs"]["old_log_prob"])
    sampler = old + np.asarray(shift, dtype=np.float32)
    written = step(*VANILLA, folder / "own", rollout_log_probs=sampler, corrections=corrections)

    def expected(content: Json) -> None:
        content["loss.policy"].update(pg_loss=loss, loss=loss)

    return edit_bundle(written, folder / "edited", expected=expected)
