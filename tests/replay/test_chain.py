"""The first divergence of a whole chain: across steps, their ranks, and what each took over from its rollout."""

import json
import re
import shutil
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from typer.testing import CliRunner

from rollbook.replay.bundle.model import StageId
from rollbook.replay.bundle.reading.cohort import read_cohort
from rollbook.replay.bundle.writing.drafts import Draft
from rollbook.replay.bundle.writing.writer import write_cohort
from rollbook.replay.commands.replay import app
from rollbook.replay.engine.chain import ChainReport, replay_chain
from rollbook.replay.engine.result import Verdict
from rollbook.replay.engine.selection import Selection
from rollbook.schemas.errors import BadInput
from rollbook.tests.replay.reseal import FIXTURES, Json, edit_bundle

UPDATE = "u-7"


def linked(part: Json, bundle_id: str, step_id: int | None, links: Json | None) -> None:
    """Make a file of a bundle that of a step, or of the rollout, of update u-7."""
    if "bundle_id" in part:
        part["bundle_id"] = bundle_id
    if "producer" in part and links is not None:
        part["format_version"] = "1.1.0"
    if "identity" in part and links is not None:
        part["links"] = links
    if step_id is not None and "producer" not in part:
        part.get("identity", part)["actor_step_id"] = {"rollout_id": 120, "step_id": step_id}


def add(folder: Path, name: str, step_id: int | None, *, links: Json | None = None, **edits: Any) -> Path:
    def edit(part: Json) -> None:
        linked(part, name, step_id, links)
        if edits.get("index") is not None and "identity" in part:
            edits["index"](part)

    src = FIXTURES / ("rollout" if step_id is None else edits.get("src", "loss-only"))
    payload = edits.get("payload")
    return edit_bundle(src, folder / name, manifest=edit, index=edit, rank_complete=edit, payload=payload)


def of_update(links: Json | None = None) -> Json:
    return {"update_id": UPDATE, "update_bundle": None, "step_bundles": [], **(links or {})}


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """An update and its two steps, linked, and a step of another update of the same rollout."""
    add(tmp_path, "update", None, links=of_update())
    for step_id in (1, 0):
        add(tmp_path, f"step-{step_id}", step_id, links=of_update({"update_bundle": "update"}))
    add(tmp_path, "other", 2)
    return tmp_path


def bundles(report: ChainReport) -> list[str]:
    return [link.report.bundle_id for link in report.links]


def bump(at: int) -> Any:
    def edit(tensor: np.ndarray[Any, Any]) -> np.ndarray[Any, Any]:
        changed = tensor.copy()
        changed[at] += 0.5
        return changed

    return edit


@pytest.mark.parametrize("start", ["update", "step-0", "step-1"])
def test_a_chain_is_what_is_linked_from_wherever_it_starts(folder: Path, start: str) -> None:
    report = replay_chain(folder / start)
    assert bundles(report) == ["update", "step-0", "step-1"]
    assert (report.verdict, report.first_divergence) == (Verdict.PASSED, None)
    assert [len(link.handovers) for link in report.links] == [0, 1, 1]


def test_a_folder_is_one_chain(folder: Path) -> None:
    assert bundles(replay_chain(folder)) == ["update", "step-0", "step-1", "other"]


def test_a_chain_of_one_rollout(folder: Path) -> None:
    assert len(replay_chain(folder, rollout=120).links) == 4
    with pytest.raises(BadInput, match="holds no bundle of rollout 121"):
        replay_chain(folder, rollout=121)


def test_a_bundle_without_links_is_a_chain_of_its_own(folder: Path) -> None:
    assert bundles(replay_chain(folder / "other")) == ["other"]


def test_steps_that_only_the_update_names_belong_to_it(tmp_path: Path) -> None:
    steps = [{"step_id": 0, "bundle_id": "first"}]
    add(tmp_path, "update", None, links=of_update({"step_bundles": steps}))
    add(tmp_path, "first", 0)
    assert bundles(replay_chain(tmp_path / "update")) == ["update", "first"]


def test_a_named_bundle_that_is_not_there_is_told(tmp_path: Path) -> None:
    add(tmp_path, "step", 0, links=of_update({"update_bundle": "gone"}))
    with pytest.raises(BadInput, match="names bundle 'gone', which is not beside it"):
        replay_chain(tmp_path / "step")


def test_an_update_that_is_none_is_told(tmp_path: Path) -> None:
    add(tmp_path, "step-0", 0, links=of_update())
    add(tmp_path, "step-1", 1, links=of_update({"update_bundle": "step-0"}))
    with pytest.raises(BadInput, match="names 'step-0' as its update's bundle, which is none of its rollout"):
        replay_chain(tmp_path)


def test_a_step_that_is_not_the_one_its_update_names_is_told(tmp_path: Path) -> None:
    steps = [{"step_id": 5, "bundle_id": "first"}]
    add(tmp_path, "update", None, links=of_update({"step_bundles": steps}))
    add(tmp_path, "first", 0)
    with pytest.raises(BadInput, match="bundle update names 'first' as that of step 120:5, which is of"):
        replay_chain(tmp_path)


@pytest.mark.parametrize("named", [[], [{"step_id": 0, "bundle_id": "step"}]])
def test_bundles_that_are_linked_and_of_two_updates_are_told(tmp_path: Path, named: list[Json]) -> None:
    add(tmp_path, "update", None, links=of_update({"step_bundles": named}))
    add(tmp_path, "step", 0, links=of_update({"update_id": "u-8", "update_bundle": None if named else "update"}))
    with pytest.raises(BadInput, match=r"bundle step is of update 'u-8', and bundle update, .* of update 'u-7'"):
        replay_chain(tmp_path)


def test_a_step_without_its_rollout_says_what_is_not_compared(tmp_path: Path) -> None:
    add(tmp_path, "step", 0)
    result = CliRunner().invoke(app, ["replay", str(tmp_path), "--chain"])
    assert result.exit_code == 0
    assert "no bundle of its rollout before it: what it started from is not compared" in result.stdout


def test_what_is_taken_over_is_compared(folder: Path) -> None:
    add(folder, "step-2", 2, links=of_update({"update_bundle": "update"}), src="full-k1")
    links = replay_chain(folder / "update").links
    (lossy,), (whole,) = links[1].handovers, links[3].handovers
    assert (whole.upstream, whole.shared_samples, whole.other_samples) == ("update", 8, 0)
    assert [field.field for field in whole.fields] == ["response_length", "raw_reward", "reward", "advantages"]
    assert [field.field for field in lossy.fields] == ["response_length", "advantages"]


def first(report: ChainReport) -> tuple[str, bool, StageId, str, str | None, int | None]:
    found = report.first_divergence
    assert found is not None
    assert report.verdict is Verdict.DIVERGES
    point = found.divergence.point
    divergence = found.divergence
    return found.bundle_id, found.in_handover, divergence.stage, divergence.field, point.sample_id, point.token_offset


def test_an_error_in_the_rollout_comes_before_all_others(folder: Path) -> None:
    shutil.rmtree(folder / "update")
    add(folder, "update", None, links=of_update(), payload={"advantages": bump(4), "kl": bump(9)})
    found = first(replay_chain(folder / "step-1"))
    assert found == ("update", False, StageId.ADVANTAGE_KL, "kl", "s-3", 0)


def test_a_step_that_started_from_other_advantages_is_found_on_the_way_to_it(folder: Path) -> None:
    shutil.rmtree(folder / "step-1")
    links = of_update({"update_bundle": "update"})
    add(folder, "step-1", 1, links=links, payload={"advantages": bump(17), "log_probs": bump(0)})
    found = first(replay_chain(folder / "step-0"))
    assert found == ("step-1", True, StageId.ADVANTAGE_ESTIMATE, "advantages", "s-5", 2)


def test_a_step_that_started_from_another_reward(folder: Path) -> None:
    def edit(index: Json) -> None:
        index["samples"][6]["raw_reward"] += 1

    shutil.rmtree(folder / "step-0")
    add(folder, "step-0", 0, links=of_update({"update_bundle": "update"}), index=edit, src="full-k1")
    found = first(replay_chain(folder / "update"))
    assert found == ("step-0", True, StageId.REWARD_RAW, "raw_reward", "s-6", None)


def test_an_error_of_a_later_step_is_its_own(folder: Path) -> None:
    shutil.rmtree(folder / "step-1")
    add(folder, "step-1", 1, links=of_update({"update_bundle": "update"}), payload={"log_probs": bump(2)})
    found = first(replay_chain(folder / "update"))
    assert found[:3] == ("step-1", False, StageId.LOSS_POLICY)


def test_the_failing_rank_of_a_step_is_named(tmp_path: Path) -> None:
    shutil.copytree(FIXTURES / "rollout", tmp_path / "update")
    sound, wrong = read_cohort(FIXTURES / "two-rank").bundles
    wrong = replace(wrong, tensors={**wrong.tensors, "kl": bump(12)(wrong.tensors["kl"])})
    write_cohort(tmp_path / "two-rank", {0: Draft.of(sound), 1: Draft.of(wrong)})
    report = replay_chain(tmp_path)
    assert [found.rank for found in report.links[1].handovers] == [0, 1]
    assert first(report) == ("two-rank", False, StageId.ADVANTAGE_KL, "kl", "s-4", 1)
    assert report.first_divergence is not None
    assert report.first_divergence.divergence.rank == 1


def test_samples_that_the_rollout_does_not_have_are_counted(folder: Path) -> None:
    def edit(index: Json) -> None:
        index["samples"][0]["sample_id"] = "another"

    shutil.rmtree(folder / "step-0")
    add(folder, "step-0", 0, links=of_update({"update_bundle": "update"}), index=edit)
    (found,) = replay_chain(folder / "update").links[1].handovers
    assert (found.shared_samples, found.other_samples, found.divergence) == (7, 1, None)


def test_chosen_stages_are_those_of_every_bundle(folder: Path) -> None:
    report = replay_chain(folder / "update", selection=Selection(stages=(StageId.LOSS_POLICY,)))
    assert [link.report.verdict for link in report.links] == [Verdict.UNVERIFIED, Verdict.PASSED, Verdict.PASSED]
    assert report.verdict is Verdict.UNVERIFIED


def test_the_command_says_it_in_all_three_ways(folder: Path, tmp_path: Path) -> None:
    shutil.rmtree(folder / "step-1")
    add(folder, "step-1", 1, links=of_update({"update_bundle": "update"}), payload={"advantages": bump(17)})
    html = tmp_path / "chain.html"
    result = CliRunner().invoke(app, ["replay", str(folder), "--chain", "--html", str(html)])
    assert result.exit_code == 1
    assert "on the way to bundle step-1:" in result.stdout
    assert re.search(r"sample s-5, token 2: expected \S+, taken over \S+, absolute error 0\.5", result.stdout)
    assert "from update: 8 samples taken over; response_length agrees" in result.stdout
    page = html.read_text(encoding="utf-8")
    assert "On the way from update" in page
    assert "on the way to it, advantage.estimate, advantages" in page
    answer = json.loads(CliRunner().invoke(app, ["replay", str(folder), "--chain", "--json"]).stdout)
    found = answer["first_divergence"]
    assert (found["bundle_id"], found["in_handover"], found["sample_id"]) == ("step-1", True, "s-5")
    assert [one["bundle_id"] for one in answer["bundles"]] == ["update", "step-0", "step-1", "other"]


def test_inspect_shows_the_links(folder: Path) -> None:
    assert "update u-7, its bundle update" in CliRunner().invoke(app, ["inspect", str(folder / "step-0")]).stdout
    (rank,) = json.loads(CliRunner().invoke(app, ["inspect", str(folder / "step-0"), "--json"]).stdout)["ranks"]
    assert rank["links"]["update_bundle"] == "update"


@pytest.mark.parametrize("option", [["--step", "120:0"], ["--sample", "s-0"], ["--batch", "mb-0000"]])
def test_a_chain_takes_whole_bundles(folder: Path, option: list[str]) -> None:
    result = CliRunner().invoke(app, ["replay", str(folder), "--chain", *option])
    assert isinstance(result.exception, BadInput)
