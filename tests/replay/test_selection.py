"""A part of a bundle is whole groups; a folder of bundles gives the one of the step or rollout that is asked for."""

import json
import shutil
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner

from rollbook.replay.bundle.bundle import Bundle, Cohort
from rollbook.replay.bundle.model import StageId
from rollbook.replay.bundle.reading.cohort import read_bundle, read_cohort
from rollbook.replay.commands.replay import app
from rollbook.replay.engine.engine import replay_cohort
from rollbook.replay.engine.locate import Coordinates, bundles_in, locate, wanted
from rollbook.replay.engine.result import Outcome, Verdict
from rollbook.replay.engine.selection import Selection, positions_of
from rollbook.schemas.errors import BadInput
from rollbook.tests.replay.reseal import FIXTURES, Json, edit_bundle

FIRST, SECOND = (0, 1, 2, 3), (4, 5, 6, 7)


@pytest.fixture(scope="module")
def bundle() -> Bundle:
    return read_bundle(FIXTURES / "full-k1")


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder of bundles: a rollout, two of its steps, one step of two ranks, and what else may lie there."""
    made = tmp_path_factory.mktemp("bundles")
    shutil.copytree(FIXTURES / "rollout", made / "whole")
    for step_id, name in enumerate(("first", "second")):
        coordinates = {"actor_step_id": {"rollout_id": 120, "step_id": step_id}}

        def of_step(part: Json, what: Json = coordinates) -> None:
            part.get("identity", part).update(what)

        edit_bundle(FIXTURES / "loss-only", made / name, index=of_step, rank_complete=of_step)
    shutil.copytree(FIXTURES / "two-rank", made / "ranks" / "step")
    (made / "first.provenance.json").write_text("{}")
    (made / ".second.writing-0a").mkdir()
    (made / "elsewhere").symlink_to(FIXTURES / "full-k1")
    return made


def selected(bundle: Bundle, **parts: tuple[str, ...]) -> tuple[int, ...] | None:
    (positions,) = positions_of((bundle,), Selection(**parts))  # type: ignore[arg-type]
    return positions


PARTS = [
    # what is asked for, what is replayed
    ({"samples": ("s-2",)}, FIRST),
    ({"samples": ("s-7", "s-4")}, SECOND),
    ({"groups": ("g-1",)}, SECOND),
    ({"groups": ("0",)}, FIRST),
    ({"batches": ("mb-0001",)}, SECOND),
    ({"samples": ("s-0",), "batches": ("mb-0001",)}, None),
    ({"groups": ("0", "g-1")}, None),
    ({}, None),
]


@pytest.mark.parametrize(("parts", "positions"), PARTS, ids=[str(case[0]) for case in PARTS])
def test_a_part_is_whole_groups(bundle: Bundle, parts: dict[str, Any], positions: tuple[int, ...] | None) -> None:
    assert selected(bundle, **parts) == positions


def test_a_micro_batch_that_splits_groups_takes_the_rest_of_them(bundle: Bundle) -> None:
    across = tuple(
        sample.model_copy(update={"micro_batch_id": "mb-0000" if at in (3, 4) else "mb-0001"})
        for at, sample in enumerate(bundle.index.samples)
    )
    split = replace(bundle, index=bundle.index.model_copy(update={"samples": across}))
    assert selected(split, batches=("mb-0000",)) is None


REFUSED = [
    # what is asked for, what the one line says
    ({"samples": ("s-99",)}, "has no sample 's-99': it has s-0, s-1"),
    ({"groups": ("g-7",)}, "has no group 'g-7': it has g-0, g-1"),
    ({"groups": ("g-00",)}, "has no group 'g-00'"),
    ({"batches": ("mb-9",)}, "has no micro-batch 'mb-9': it has mb-0000, mb-0001"),
    ({"samples": ("s-0", "s-99\n\x1b[31mpass")}, "has no sample 's-99\\n\\x1b[31mpass'"),
]


@pytest.mark.parametrize(("parts", "message"), REFUSED, ids=[case[1] for case in REFUSED])
def test_what_is_not_recorded_is_refused(bundle: Bundle, parts: dict[str, Any], message: str) -> None:
    with pytest.raises(BadInput) as refused:
        selected(bundle, **parts)
    assert message in str(refused.value)


@pytest.mark.parametrize("parts", [{"samples": ("s-0",)}, {"batches": ("mb-0000",)}, {"groups": ("g-0",)}], ids=str)
def test_without_group_membership_no_part_is_replayed(bundle: Bundle, parts: dict[str, Any]) -> None:
    samples = tuple(sample.model_copy(update={"group_index": None}) for sample in bundle.index.samples)
    ungrouped = replace(bundle, index=bundle.index.model_copy(update={"samples": samples}))
    with pytest.raises(BadInput, match="records no group membership"):
        selected(ungrouped, **parts)


def test_a_group_that_no_sample_is_tied_to_is_not_guessed(bundle: Bundle) -> None:
    identity = bundle.index.identity.model_copy(update={"semantic_group_ids": ("algebra", "geometry")})
    named = replace(bundle, index=bundle.index.model_copy(update={"identity": identity}))
    with pytest.raises(BadInput, match=r"no group 'algebra' tied to samples .* it has g-0, g-1; or name one of its"):
        selected(named, groups=("algebra",))


def test_a_group_is_taken_from_all_ranks_and_other_ranks_are_left_out(bundle: Bundle) -> None:
    ranks = tuple(
        replace(
            bundle,
            rank=rank,
            expected_ranks=(0, 1),
            index=bundle.index.model_copy(
                update={
                    "samples": tuple(
                        sample.model_copy(update={"sample_id": f"r{rank}-{at}", "group_index": group})
                        for at, (sample, group) in enumerate(zip(bundle.index.samples, groups, strict=True))
                    )
                }
            ),
        )
        for rank, groups in enumerate(([0] * 4 + [1] * 4, [1] * 4 + [2] * 4))
    )
    assert positions_of(ranks, Selection(samples=("r0-5",))) == (SECOND, FIRST)
    assert positions_of(ranks, Selection(samples=("r1-5",))) == ((), SECOND)
    report = replay_cohort(Cohort(bundle.path, bundle.bundle_id, ranks), Selection(samples=("r1-5",)))
    assert ([rank.rank for rank in report.ranks], report.selected_samples) == ([1], 4)
    assert report.verdict is Verdict.PASSED


@pytest.mark.parametrize("parts", [{"samples": ("s-5",)}, {"groups": ("g-1",)}, {"batches": ("mb-0001",)}], ids=str)
def test_what_is_of_the_whole_cohort_is_skipped_for_a_part_and_says_so(bundle: Bundle, parts: dict[str, Any]) -> None:
    report = replay_cohort(Cohort(bundle.path, bundle.bundle_id, (bundle,)), Selection(**parts))
    stages = {stage.stage: stage for stage in report.ranks[0].stages}
    assert stages[StageId.LOSS_POLICY].outcome is Outcome.SKIPPED
    assert "only a part was selected" in stages[StageId.LOSS_POLICY].reason
    assert all(stages[stage].outcome is Outcome.PASSED for stage in list(StageId)[:5])
    assert (report.verdict, report.selected_samples) == (Verdict.PASSED, 4)


def test_a_part_with_nothing_but_what_is_of_the_whole_cohort_is_no_pass() -> None:
    report = replay_cohort(read_cohort(FIXTURES / "loss-only"), Selection(samples=("s-0",)))
    assert report.verdict is Verdict.UNVERIFIED


LOCATED = [
    # folder, step, rollout, bundle
    (".", "120:0", None, "first"),
    (".", "120:1", None, "second"),
    (".", None, 120, "whole"),
    ("first", "120:0", None, "first"),
    ("whole", None, 120, "whole"),
    ("ranks", None, None, "ranks/step"),
    ("ranks", "120:0", None, "ranks/step"),
    ("ranks/step", "120:0", None, "ranks/step"),
    ("ranks/step/rank-1", "120:0", None, "ranks/step/rank-1"),
]


@pytest.mark.parametrize(("where", "step", "rollout", "bundle"), LOCATED)
def test_the_one_that_matches(folder: Path, where: str, step: str | None, rollout: int | None, bundle: str) -> None:
    assert locate(folder / where, wanted(step, rollout)) == folder / bundle


NOT_LOCATED = [
    # folder, options, what the one line says
    (".", [], "it holds bundles, name one: first, second, whole (or --step R:S, --rollout R)"),
    (".", ["--step", "120:2"], "holds no bundle of step 120:2: it has rollout 120, step 120:0, step 120:1"),
    (".", ["--rollout", "121"], "holds no bundle of rollout 121"),
    ("first", ["--step", "120:1"], "is the bundle of step 120:0, not of step 120:1"),
    ("first", ["--rollout", "120"], "is the bundle of step 120:0, not of rollout 120"),
    ("whole", ["--step", "120:0"], "is the bundle of rollout 120, not of step 120:0"),
    ("first", ["--step", "120:0", "--rollout", "120"], "exclude one another"),
    ("first", ["--step", "120"], "--step '120' is no step: give ROLLOUT_ID:STEP_ID"),
    ("first", ["--step", "120:-1"], "is no step"),
    ("first", ["--rollout", "-1"], "give a rollout_id, 0 or above"),
]


@pytest.mark.parametrize(("where", "options", "message"), NOT_LOCATED)
@pytest.mark.parametrize("command", ["inspect", "validate", "replay"])
def test_what_does_not_match_is_bad_use(
    folder: Path, command: str, where: str, options: list[str], message: str
) -> None:
    result = CliRunner().invoke(app, [command, str(folder / where), *options])
    assert isinstance(result.exception, BadInput)
    assert message in str(result.exception)
    assert "\n" not in str(result.exception)


def test_two_bundles_of_one_step_are_both_named(tmp_path: Path) -> None:
    for name in ("a", "b"):
        shutil.copytree(FIXTURES / "loss-only", tmp_path / name)
    with pytest.raises(BadInput, match="holds 2 bundles of step 120:0, name one: a, b"):
        locate(tmp_path, Coordinates(120, 0))


def test_bundles_come_in_the_order_of_a_training(folder: Path) -> None:
    assert [(found.path.name, found.at) for found in bundles_in(folder)] == [
        ("whole", Coordinates(120)),
        ("first", Coordinates(120, 0)),
        ("second", Coordinates(120, 1)),
    ]


COMMANDS = [
    # command line, exit code
    (["replay", ".", "--step", "120:1"], 0),
    (["replay", ".", "--rollout", "120"], 0),
    (["validate", ".", "--step", "120:0"], 0),
    (["inspect", ".", "--rollout", "120"], 0),
    (["replay", "ranks", "--sample", "s-1", "--sample", "s-2"], 0),
    (["replay", "ranks", "--group", "g-0", "--batch", "mb-0001"], 0),
    (["replay", "first", "--sample", "s-1"], 4),
]


@pytest.mark.parametrize(("args", "code"), COMMANDS, ids=[" ".join(case[0]) for case in COMMANDS])
def test_exit_codes(folder: Path, args: list[str], code: int) -> None:
    result = CliRunner().invoke(app, [args[0], str(folder / args[1]), *args[2:], "--json"])
    assert result.exit_code == code, result.exception
    assert json.loads(result.stdout)


def test_a_rank_by_itself_waits_for_the_final_complete(tmp_path: Path) -> None:
    shutil.copytree(FIXTURES / "two-rank", tmp_path / "step")
    (tmp_path / "step" / "COMPLETE").unlink()
    rank = tmp_path / "step" / "rank-0"
    assert CliRunner().invoke(app, ["inspect", str(rank)]).exit_code == 0
    assert CliRunner().invoke(app, ["validate", str(rank)]).exit_code == 1
    replayed = CliRunner().invoke(app, ["replay", str(rank)])
    assert "../COMPLETE: missing or unreadable, and it is one of the ranks [0, 1]" in str(replayed.exception)
