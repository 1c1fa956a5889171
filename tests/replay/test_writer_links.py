"""Format 1.1.0: the bundle of an update and those of its steps name one another; all else stays 1.0.0."""

import json
from pathlib import Path
from typing import Any

import pytest

from rollbook.replay.bundle.model import Links, StepBundle
from rollbook.replay.bundle.problems import BadBundle
from rollbook.replay.bundle.reading.cohort import read_bundle, validate
from rollbook.replay.bundle.writing.drafts import Draft
from rollbook.replay.bundle.writing.writer import write_bundle
from rollbook.replay.engine.engine import replay_bundle
from rollbook.replay.engine.result import Verdict
from rollbook.tests.replay import by_hand
from rollbook.tests.replay.reseal import FIXTURES, Json, edit_bundle

OF_STEP = Links(update_id="u-7", update_bundle="update-7")
OF_UPDATE = Links(update_id="u-7", step_bundles=(StepBundle(step_id=0, bundle_id="step-7-0"),))


def write(path: Path, links: Links | None, step_id: int | None = 0) -> Path:
    return by_hand.writer(path, index=by_hand.index(path.name, links=links, step_id=step_id)).finalize().path


def test_an_update_and_its_step_name_one_another(tmp_path: Path) -> None:
    update = read_bundle(write(tmp_path / "update-7", OF_UPDATE, step_id=None))
    step = read_bundle(write(tmp_path / "step-7-0", OF_STEP))
    assert (update.index.links, step.index.links) == (OF_UPDATE, OF_STEP)
    for bundle in (update, step):
        assert bundle.manifest.format_version == "1.1.0"
        assert replay_bundle(bundle).verdict is Verdict.PASSED


def test_without_links_it_is_format_1_0_0_without_a_trace(tmp_path: Path) -> None:
    path = write(tmp_path / "step-7-0", None)
    assert json.loads((path / "manifest.json").read_text())["format_version"] == "1.0.0"
    assert "links" not in json.loads((path / "index.json").read_text())


def test_read_and_written_again_it_is_the_same(tmp_path: Path) -> None:
    path = write(tmp_path / "step-7-0", OF_STEP)
    again = write_bundle(tmp_path / "again", Draft.of(read_bundle(path)))
    for name in ("manifest.json", "index.json"):
        assert (again / name).read_bytes() == (path / name).read_bytes()


WRONG: list[tuple[str, Links, int | None, str]] = [
    ("steps in a step", OF_UPDATE, 0, "links.step_bundles: in the bundle of a step"),
    ("an update in an update", OF_STEP, None, "links.update_bundle: in the bundle of an update"),
    ("itself", Links(update_id="u", update_bundle="b"), 0, "links: 'b' twice, or the bundle itself"),
    ("a step twice", Links(update_id="u", step_bundles=(StepBundle(step_id=0, bundle_id="x"),) * 2), None, "'x' twice"),
    (
        "two bundles of a step",
        Links(update_id="u", step_bundles=tuple(StepBundle(step_id=0, bundle_id=name) for name in "xy")),
        None,
        "step_id 0 twice",
    ),
]


@pytest.mark.parametrize(("links", "step_id", "told"), [case[1:] for case in WRONG], ids=[case[0] for case in WRONG])
def test_links_that_cannot_be_are_not_written(tmp_path: Path, links: Links, step_id: int | None, told: str) -> None:
    with pytest.raises(BadBundle, match=told):
        write(tmp_path / "b", links, step_id)


@pytest.mark.parametrize("name", ["../x", "/etc", ".", "..", ".hidden", "a/b", "", "x" * 201, "a\nb", "a\0b", "-x"])
def test_a_linked_bundle_is_a_folder_beside_and_nothing_else(tmp_path: Path, name: str) -> None:
    def link(index: Json) -> None:
        index["links"] = {"update_id": "u", "update_bundle": name, "step_bundles": []}

    def newer(manifest: Json) -> None:
        manifest["format_version"] = "1.1.0"

    report = validate(edit_bundle(FIXTURES / "full-k1", tmp_path / "b", index=link, manifest=newer))
    assert any(problem.field == "links.update_bundle" for problem in report.problems), report.problems


def test_links_that_are_null_are_refused_in_any_format(tmp_path: Path) -> None:
    bundle = edit_bundle(FIXTURES / "full-k1", tmp_path / "b", index=lambda index: index.update(links=None))
    assert str(validate(bundle).problems[0]) == (
        "index.json: links: it must not be null: leave the key out; correct the value"
    )


@pytest.mark.parametrize("links", [{"update_id": "u", "update_bundle": "x", "step_bundles": []}, {"update_id": "u"}])
def test_links_in_1_0_0_are_an_unknown_key(tmp_path: Path, links: Any) -> None:
    bundle = edit_bundle(FIXTURES / "full-k1", tmp_path / "b", index=lambda index: index.update(links=links))
    assert [str(problem) for problem in validate(bundle).problems] == [
        "index.json: links: unknown key in format 1.0.0; remove it, or set format_version in manifest.json"
    ]
