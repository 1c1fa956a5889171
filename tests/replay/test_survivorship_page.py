"""The report's page in a real headless Chromium: its figures are the JSON's, and what a run's names contain stays
text. The page of docs/report.md does what it says."""

import json
import re
import shutil
import subprocess
from html.parser import HTMLParser
from pathlib import Path
from typing import Any

import pytest

from rollbook.replay.audit.audit import stretch_of
from rollbook.replay.histories import open_history
from rollbook.replay.history.export import export
from rollbook.replay.history.ranges import OffsetRange
from rollbook.replay.survivorship.page import page
from rollbook.replay.survivorship.result import SurvivorshipReport
from rollbook.replay.survivorship.survey import survey
from rollbook.replay.survivorship.text import lines, plain
from rollbook.schemas.records.reward import Quarantine
from rollbook.schemas.records.rollout import TaskSource
from rollbook.tests.replay.recorded_histories import recorded
from rollbook.tests.replay.story import DECISIONS, LIFECYCLE, SETTINGS, Story

ROOT = Path(__file__).resolve().parents[2]
HOSTILE = (
    "<script>document.body.append('pwned')</script>",
    "</style></title><img src=x onerror=\"document.body.append('pwned')\">",
    "'><svg onload='document.body.append(`pwned`)'>",
    "&lt;b&gt; \u202edesrever\u2028line",
)


class Dom(HTMLParser):
    """What Chromium made of a page: the figures by their place, the texts, the tags and the names of attributes."""

    def __init__(self) -> None:
        super().__init__()
        self.figures: dict[str, list[tuple[str, str]]] = {}
        self.tags: set[str] = set()
        self.attributes: set[str] = set()
        self.text = ""
        self._open: tuple[str, str] | None = None

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        found = {name: value or "" for name, value in attrs}
        self.tags.add(tag)
        self.attributes |= found.keys()
        if tag == "data":
            self._open = (found["data-figure"], found["value"])
        elif "data-figure" in found:
            self.figures.setdefault(found["data-figure"], []).append(
                (found["data-value"], f"{int(found['data-value']):,}")
            )

    def handle_data(self, data: str) -> None:
        self.text += data
        if self._open is not None:
            place, value = self._open
            self.figures.setdefault(place, []).append((value, data))
            self._open = None


def opened(report: SurvivorshipReport, folder: Path) -> Dom:
    """The page as a browser has it once everything on it has run that would."""
    chromium = shutil.which("chromium")
    if chromium is None:
        pytest.skip("no chromium is installed")
    path = folder / "report.html"
    path.write_text(page(report), encoding="utf-8")
    flags = (
        "--headless=new",
        "--no-sandbox",
        "--disable-gpu",
        "--disable-dev-shm-usage",
        f"--user-data-dir={folder}/c",
    )
    done = subprocess.run(
        [chromium, *flags, "--dump-dom", path.as_uri()], capture_output=True, text=True, timeout=120, check=True
    )
    dom = Dom()
    dom.feed(done.stdout)
    assert "Survivorship of" in dom.text, done.stderr
    return dom


def at(json_text: str, place: str) -> Any:
    found: Any = json.loads(json_text)
    for step in place.split("."):
        found = found[int(step)] if isinstance(found, list) else found[step]
    return found


def shown(place: str, value: float | None) -> str:
    if value is None:
        return "-"
    if place.endswith("share_consumed"):
        return f"{value:.1%}"
    return f"{value:,}" if isinstance(value, int) else f"{value:.4g}"


def check(dom: Dom, report: SurvivorshipReport) -> None:
    """Every figure on the page is that of the JSON, as it is there and as it is shown."""
    answer = json.dumps(plain(report), allow_nan=False)
    for place, found in dom.figures.items():
        for value, text in found:
            assert json.loads(value) == at(answer, place), place
            assert text == shown(place, at(answer, place)), place


def test_every_figure_of_the_page_is_the_jsons(tmp_path: Path) -> None:
    found = recorded("demo")
    report = survey(found.log, found.stretch)
    dom = opened(report, tmp_path)
    check(dom, report)
    fates = {f"total.fates.{fate}" for fate, _ in report.total.fates}
    reached = {f"reached.{name}" for name in report.reached.__slots__}
    rewards = {f"rewards.{one.part}.{name}" for one in report.rewards for name in ("count", "mean", "quartiles.1")}
    bins = {f"rewards.{one.part}.bins.{at}" for one in report.rewards for at in range(len(one.bins)) if one.count}
    versions = {f"versions.{at}.kinds.refused" for at in range(len(report.versions))}
    causes = {f"causes.{at}.count" for at in range(len(report.causes))}
    assert fates | reached | rewards | bins | versions | causes | {"distance", "starved_tasks"} <= dom.figures.keys()
    assert sum(place.endswith(".trajectories") and place.startswith("tasks.") for place in dom.figures) == 50
    assert f"{len(report.tasks) - 50} that are better off are left out" in dom.text
    starved = [at for at, one in enumerate(report.tasks) if one.became.is_starved]
    assert {f"tasks.{at}.trajectories" for at in starved} <= dom.figures.keys(), "the starved come first"


@pytest.fixture
def hostile() -> Story:
    made = Story().opened()
    for number, text in enumerate(HOSTILE):
        made.task = TaskSource(task_id=text, prompt_hash="0" * 64, dataset=text, row=0)
        ids = made.group(f"g{number}")
        made.accepted(Quarantine, trajectory_ids=tuple(ids), reason=text)
    return made


def test_what_a_runs_names_contain_is_shown_and_never_run(hostile: Story, tmp_path: Path) -> None:
    report = survey(hostile.log, stretch_of(hostile.log, SETTINGS, None, hostile.run_id))
    dom = opened(report, tmp_path)
    check(dom, report)
    assert dom.tags.isdisjoint({"script", "img", "iframe", "link", "object", "form", "a"})
    assert not {name for name in dom.attributes if name.startswith("on") or name in ("src", "href", "style")}
    for text in HOSTILE[:3]:
        assert dom.text.count(text) >= 2, "task and reason, as they are"
    assert "\\u202edesrever\\u2028line" in dom.text
    assert all(line.isprintable() for line in lines(report))
    assert "default-src 'none'" in page(report)


def test_a_page_carries_no_request(hostile: Story) -> None:
    text = page(survey(hostile.log, stretch_of(hostile.log, SETTINGS, None, hostile.run_id)))
    assert not re.search(r"url\(|@import|https?://(?!www\.w3\.org)", text)


def test_the_code_of_the_page_does_what_it_says(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    made = Story(run_id="my-run").opened()
    made.update("u0", [made.group("a")])
    made.group("b", (0.25, 0.5))
    export(made.log, SETTINGS, [OffsetRange(LIFECYCLE, 0), OffsetRange(DECISIONS, 0)], tmp_path / "my-run.avro")
    monkeypatch.chdir(tmp_path)
    (block,) = re.findall(r"```python\n(.*?)```", (ROOT / "docs" / "report.md").read_text(encoding="utf-8"), re.DOTALL)
    exec(compile(block, "report.md", "exec"), {})
    assert capsys.readouterr().out == "0 of 4 refused as stale\n0.5 against 0.375\n[]\n"
    with open_history("my-run.avro", run="my-run") as history:
        assert history.report().distance == 0.5
