"""The same answer as text, JSON and one page with pictures, which opens by itself and runs nothing of a bundle's."""

import base64
import hashlib
import json
import os
import re
import subprocess
import sys
from html.parser import HTMLParser
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from typer.testing import CliRunner

from rollbook.replay.bundle.model import StageId
from rollbook.replay.bundle.reading.cohort import read_cohort
from rollbook.replay.commands.replay import app
from rollbook.replay.engine.compare import compare
from rollbook.replay.engine.engine import Compared, replay_cohort
from rollbook.replay.engine.result import ReplayReport
from rollbook.replay.html.page import Shown, page
from rollbook.replay.html.pictures import MAX_COLUMNS, MAX_ROWS, Gallery, Picture, picture_of
from rollbook.replay.stages.stage import DEFAULT_TOLERANCE
from rollbook.replay.stages.table import STAGES
from rollbook.replay.wholefile import replace_file
from rollbook.schemas.errors import BadInput, EnvironmentFault
from rollbook.tests.replay.reseal import FIXTURES, Json, edit_bundle

HOSTILE = "</script><img src=x onerror=alert(1)>\x1b[2J"


def replayed(path: Path) -> tuple[ReplayReport, list[Picture]]:
    gallery = Gallery()
    return replay_cohort(read_cohort(path), watch=gallery.watch), gallery.pictures


def page_of(path: Path) -> str:
    report, pictures = replayed(path)
    return page((Shown(report),), (pictures,))


class Page(HTMLParser):
    """The elements of a page, its scripts, and its text."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.tags: list[tuple[str, dict[str, str | None]]] = []
        self.scripts: list[tuple[str, str]] = []
        self.text: list[str] = []
        self._kind: str | None = None
        self.feed(text)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append((tag, dict(attrs)))
        self._kind = (dict(attrs).get("type") or "code") if tag == "script" else None

    def handle_endtag(self, tag: str) -> None:
        self._kind = None

    def handle_data(self, data: str) -> None:
        if self._kind is not None:
            self.scripts.append((self._kind, data))
        else:
            self.text.append(data)

    @property
    def figures(self) -> list[Json]:
        return [json.loads(data) for kind, data in self.scripts if kind == "application/json"]


@pytest.fixture(scope="module")
def wrong_kl(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A bundle whose distance is off at two tokens, most at token 2 of s-4."""

    def edit(tensor: np.ndarray[Any, Any]) -> np.ndarray[Any, Any]:
        changed = tensor.copy()
        changed[[1, 13]] += [0.25, 0.5]
        return changed

    return edit_bundle(FIXTURES / "full-k1", tmp_path_factory.mktemp("answers") / "wrong", payload={"kl": edit})


def test_text_names_stage_sample_token_and_numbers(wrong_kl: Path) -> None:
    result = CliRunner().invoke(app, ["replay", str(wrong_kl)])
    assert result.exit_code == 1
    assert "first divergence: advantage.kl, kl: 2 samples" in result.stdout
    assert re.search(r"sample s-0, token 1: expected \S+, recomputed \S+, absolute error 0\.25", result.stdout)


def test_json_says_the_same(wrong_kl: Path) -> None:
    answer = json.loads(CliRunner().invoke(app, ["replay", str(wrong_kl), "--json"]).stdout)
    first = answer["first_divergence"]
    assert (first["stage"], first["field"], first["sample_id"], first["token_offset"]) == (
        "advantage.kl",
        "kl",
        "s-0",
        1,
    )
    assert first["abs_error"] == pytest.approx(0.25, abs=1e-6)
    assert (first["diverging_values"], first["diverging_samples"]) == (2, 2)
    assert first["expected"] - first["actual"] == pytest.approx(0.25, abs=1e-6)
    (field,) = next(stage for stage in answer["ranks"][0]["stages"] if stage["stage"] == "advantage.kl")["fields"]
    assert (field["worst"]["sample_id"], field["worst"]["token_offset"]) == ("s-4", 2)


def test_the_page_says_the_same_and_draws_it(wrong_kl: Path) -> None:
    found = Page(page_of(wrong_kl))
    text = " ".join(found.text)
    for told in ("diverges", "First divergence", "advantage.kl", "s-0", "2 values in 2 samples", "0.25"):
        assert told in text
    heat = found.figures[0]["data"][0]
    assert heat["type"] == "heatmap"
    assert (len(heat["z"]), max(map(len, heat["z"]))) == (8, 7)
    assert "s-4, token 2" in heat["text"][4][2]
    assert heat["z"][4][2] == pytest.approx(np.log10(0.5), abs=1e-4)
    assert heat["z"][1][1] is None
    assert found.figures[0]["data"][1]["x"] == [1]


def test_the_page_opens_without_a_network(wrong_kl: Path) -> None:
    found = Page(page_of(wrong_kl))
    for _, attributes in found.tags:
        assert not {"src", "href", "onload", "onerror"} & attributes.keys()
    policy = next(one["content"] for tag, one in found.tags if tag == "meta" and one.get("http-equiv"))
    assert policy is not None
    assert policy.startswith("default-src 'none'; script-src 'sha256-")
    code = [data for kind, data in found.scripts if kind == "code"]
    assert len(code) == 2
    for script in code:
        assert f"'sha256-{base64.b64encode(hashlib.sha256(script.encode()).digest()).decode()}'" in policy


def test_what_a_bundle_names_stays_text(tmp_path: Path) -> None:
    def named(index: Json) -> None:
        for at, sample in enumerate(index["samples"]):
            sample["sample_id"] = f"{HOSTILE}{at}"

    def off(tensor: np.ndarray[Any, Any]) -> np.ndarray[Any, Any]:
        return tensor + np.float32(1)

    edited = edit_bundle(FIXTURES / "full-k1", tmp_path / "hostile", index=named, payload={"kl": off})
    found = Page(page_of(edited))
    assert "img" not in {tag for tag, _ in found.tags}
    assert len([data for kind, data in found.scripts if kind == "code"]) == 2
    assert all("<img" not in cell for row in found.figures[0]["data"][0]["text"] for cell in row)
    assert "\x1b" not in "".join(found.text)


def test_a_picture_shows_every_value_of_a_small_step() -> None:
    _, pictures = replayed(FIXTURES / "full-k1")
    assert {picture.stage for picture in pictures} == set(StageId) - {StageId.LOSS_VALUE}
    for picture in pictures:
        shown = [cell for row in picture.cells for cell in row if cell is not None]
        assert len(shown) == (0 if picture.single else picture.result.values)


def test_a_picture_is_no_larger_than_a_screen_and_keeps_the_worst() -> None:
    lengths = np.arange(1, 1001)
    ends = np.cumsum(lengths)
    expected = np.zeros(int(ends[-1]))
    actual = expected.copy()
    actual[ends[699] + 123] = 7.0
    output = next(one for one in STAGES[StageId.ADVANTAGE_KL].outputs)
    names = tuple(f"s-{at}" for at in range(lengths.size))
    result = compare(output, expected, actual, DEFAULT_TOLERANCE, names, ends)
    picture = picture_of(Compared(0, StageId.ADVANTAGE_KL, result, expected, actual, names, ends))
    assert (len(picture.cells), len(picture.cells[0])) == (143, 143)
    assert len(picture.cells) <= MAX_ROWS
    assert len(picture.cells[0]) <= MAX_COLUMNS
    worst = max((cell for row in picture.cells for cell in row if cell is not None), key=lambda cell: cell.error)
    assert (worst.sample_id, worst.token, worst.error) == ("s-700", 123, 7.0)


@pytest.mark.parametrize("name", ["full-k1", "pr65", "rollout", "two-rank", "loss-only"])
def test_every_fixture_has_a_page(name: str) -> None:
    report, pictures = replayed(FIXTURES / name)
    found = Page(page((Shown(report),), (pictures,)))
    assert report.verdict in " ".join(found.text)
    of_values = [picture for picture in pictures if picture.cells and picture.stage != StageId.SAMPLE]
    assert len(found.figures) == sum(2 * picture.differs + (picture.values is not None) for picture in of_values)


def test_the_command_writes_the_page_and_keeps_its_exit_code(tmp_path: Path, wrong_kl: Path) -> None:
    target = tmp_path / "answer.html"
    result = CliRunner().invoke(app, ["replay", str(wrong_kl), "--html", str(target), "--json"])
    assert result.exit_code == 1
    assert json.loads(result.stdout)["verdict"] == "diverges"
    assert target.read_text(encoding="utf-8").startswith("<!doctype html>")
    assert [path.name for path in tmp_path.iterdir()] == ["answer.html"]


def test_a_page_replaces_what_a_link_names_and_not_the_link(tmp_path: Path) -> None:
    target, link = tmp_path / "answer.html", tmp_path / "latest.html"
    target.write_text("<!doctype html>old")
    link.symlink_to(target)
    assert CliRunner().invoke(app, ["replay", str(FIXTURES / "full-k1"), "--html", str(link)]).exit_code == 0
    assert link.is_symlink()
    assert target.read_text(encoding="utf-8").startswith("<!doctype html>")


def test_a_pipe_or_device_is_written_to_and_stays_what_it_is(tmp_path: Path) -> None:
    pipe = tmp_path / "pipe"
    os.mkfifo(pipe)
    with (tmp_path / "read").open("wb") as read, subprocess.Popen(["cat", str(pipe)], stdout=read) as reader:
        assert CliRunner().invoke(app, ["replay", str(FIXTURES / "full-k1"), "--html", str(pipe)]).exit_code == 0
        assert reader.wait(timeout=30) == 0
    assert (tmp_path / "read").read_bytes().startswith(b"<!doctype html>")
    assert pipe.is_fifo()


def without_tokens(folder: Path) -> Path:
    """A bundle in which no response has a token."""

    def emptied(index: Json) -> None:
        for sample in index["samples"]:
            sample["total_length"] -= sample["response_length"]
            sample |= {"response_length": 0, "loss_mask": []}

    def nothing(expected: Json) -> None:
        expected["loss.policy"] = dict.fromkeys(expected["loss.policy"], 0.0)

    names = ("old_log_probs", "log_probs", "ref_log_probs", "entropy", "kl", "advantages")
    empty = dict.fromkeys(names, lambda tensor: tensor[:0])
    return edit_bundle(FIXTURES / "full-k1", folder / "empty", index=emptied, expected=nothing, payload=empty)


@pytest.mark.parametrize(("options", "code"), [([], 0), (["--stage", "advantage.kl"], 4)], ids=["whole", "tokens"])
def test_where_no_token_is_nothing_of_tokens_is_verified(tmp_path: Path, options: list[str], code: int) -> None:
    html = tmp_path / "answer.html"
    args = ["replay", str(without_tokens(tmp_path)), "--html", str(html), "--json", *options]
    result = CliRunner().invoke(app, args)
    assert result.exit_code == code
    stages = {stage["stage"]: stage for stage in json.loads(result.stdout)["ranks"][0]["stages"]}
    assert stages["advantage.kl"]["outcome"] == "skipped"
    assert "no sample has a token" in stages["advantage.kl"]["reason"]
    assert "no sample has a token" in html.read_text(encoding="utf-8")


def test_a_step_that_is_masked_throughout_passes(tmp_path: Path) -> None:
    def masked(index: Json) -> None:
        for sample in index["samples"]:
            sample["loss_mask"] = [0] * len(sample["loss_mask"])

    def nothing(expected: Json) -> None:
        expected["loss.policy"] = dict.fromkeys(expected["loss.policy"], 0.0)

    bundle = edit_bundle(FIXTURES / "full-k1", tmp_path / "masked", index=masked, expected=nothing)
    assert replayed(bundle)[0].verdict == "pass"


def test_a_page_that_can_be_nowhere_is_bad_input_before_the_work(tmp_path: Path) -> None:
    for target in (tmp_path / "no" / "answer.html", tmp_path):
        result = CliRunner().invoke(app, ["replay", "no-bundle", "--html", str(target)])
        assert isinstance(result.exception, BadInput)
        assert "cannot write the page" in str(result.exception)


def test_an_interrupted_page_leaves_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def interrupted(*_: object) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr(Path, "replace", interrupted)
    with pytest.raises(KeyboardInterrupt):
        replace_file(tmp_path / "answer.html", "<!doctype html>")
    assert list(tmp_path.iterdir()) == []


@pytest.mark.skipif(not Path("/dev/full").exists(), reason="no device that is full")
def test_where_a_page_does_not_fit_the_answer_is_told_all_the_same() -> None:
    result = CliRunner().invoke(app, ["replay", str(FIXTURES / "full-k1"), "--html", "/dev/full"])
    assert isinstance(result.exception, EnvironmentFault)
    assert "cannot write the page /dev/full: No space left" in str(result.exception)
    assert "loss.policy" in result.stdout


@pytest.mark.parametrize("inside", ["manifest.json", "COMPLETE", "answer.html", "payloads/kl.pt", "payloads/new.html"])
def test_a_page_never_lands_in_a_bundle(tmp_path: Path, inside: str) -> None:
    bundle = edit_bundle(FIXTURES / "full-k1", tmp_path / "k1")
    before = {path: path.read_bytes() for path in bundle.rglob("*") if path.is_file()}
    (tmp_path / "link.html").symlink_to(bundle / inside)
    for target in (bundle / inside, tmp_path / "link.html"):
        result = CliRunner().invoke(app, ["replay", str(bundle), "--html", str(target)])
        assert isinstance(result.exception, BadInput)
        assert "inside the bundle" in str(result.exception)
    assert {path: path.read_bytes() for path in bundle.rglob("*") if path.is_file()} == before


def test_a_page_replaces_nothing_but_a_page(tmp_path: Path) -> None:
    weights, empty = tmp_path / "weights.pt", tmp_path / "empty.html"
    weights.write_bytes(b"irreplaceable")
    empty.touch()
    result = CliRunner().invoke(app, ["replay", str(FIXTURES / "full-k1"), "--html", str(weights)])
    assert isinstance(result.exception, BadInput)
    assert "is no page" in str(result.exception)
    assert weights.read_bytes() == b"irreplaceable"
    for _ in range(2):
        assert CliRunner().invoke(app, ["replay", str(FIXTURES / "full-k1"), "--html", str(empty)]).exit_code == 0


def test_who_asks_for_no_page_waits_for_no_plotting_library() -> None:
    code = "import sys, rollbook.replay.commands.replay; sys.exit('plotly' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0


def test_without_the_plotting_library_the_remedy_is_told(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "plotly.graph_objects", None)
    options = ["--html", str(tmp_path / "answer.html")]
    result = CliRunner().invoke(app, ["replay", str(FIXTURES / "full-k1"), *options])
    assert isinstance(result.exception, EnvironmentFault)
    assert "pip install 'rollbook[html]'" in str(result.exception)
    assert CliRunner().invoke(app, ["replay", str(FIXTURES / "full-k1")]).exit_code == 0
