"""The page as the dashboard itself serves it, over decisions on a real broker."""

from collections.abc import Iterator
from pathlib import Path
from urllib.parse import quote

import pytest
from playwright.sync_api import Browser, Page

from rollbook.infra.settings import Settings
from rollbook.processors.dashboard.answers import Size
from rollbook.tests.conftest import PARTITIONS
from rollbook.tests.infra.rich_run import decide, rich
from rollbook.tests.processors.dashboard.page_tabs import (
    CHARTS,
    Tabs,
    address,
    figure,
    wait_for_figure,
    wait_for_figures,
    width_left,
)
from rollbook.tests.processors.dashboard.serving import Served, dashboard, end
from rollbook.tests.session_broker import own_topics

RUN = "team/run:1"
HOSTILE = "../<img src=x onerror=window.pwned=1>\"'%2F?#é\u202e\u2028\\"
STRANGE = (HOSTILE, "..", ".", "a+b c&d=e%20f")
LENGTHS = {Size.SECOND: "1 s", Size.TEN_SECONDS: "10 s", Size.MINUTE: "1 min", Size.TEN_MINUTES: "10 min"}
GONE = ("ERR_CONNECTION_REFUSED", "ERR_INCOMPLETE_CHUNKED_ENCODING", "ERR_CONNECTION_RESET", "ERR_EMPTY_RESPONSE")


@pytest.fixture(scope="module")
def decided(broker: str) -> Iterator[Settings]:
    """Topics with a run in which nearly everything happened once."""
    with own_topics(broker, PARTITIONS) as settings:
        history = rich(RUN, PARTITIONS)
        for name in STRANGE:
            history.generated(name, group="strange")
        decide(settings, history)
        yield settings


def url(served: Served) -> str:
    return f"http://127.0.0.1:{served.port}/"


@pytest.fixture(scope="module")
def served(decided: Settings) -> Iterator[Served]:
    with dashboard(decided) as found:
        found.await_status(lambda status: status["reading"] == "live")
        yield found


@pytest.fixture(scope="module")
def page(chromium: Browser, served: Served) -> Iterator[Page]:
    """One tab for all that is only looked at."""
    tabs = Tabs(chromium, url(served))
    yield tabs.open()
    assert tabs.close() == []


def test_the_figures_are_those_of_the_api(page: Page, served: Served) -> None:
    page.wait_for_selector("body[data-view=figures]")
    assert address(page) == {"run": RUN, "size": "10s"}
    now = served.json(f"/api/runs/{quote(RUN, safe='')}")
    snapshot, totals = now["snapshot"], now["totals"]
    plain = (
        "ready_fresh", "ready_tolerated", "ready_expiring", "ready_stale", "ready_stale_for_learner", "max_lag",
        "workers_behind", "worker_count", "open_update_count", "in_doubt_count", "capacity", "rows_per_update",
    )  # fmt: skip
    expected = {name: "" if snapshot[name] is None else str(snapshot[name]) for name in plain} | {
        "active_version": str(snapshot["active_policy"]["version"]),
        "learner_version": str(snapshot["learner_policy"]["version"]),
        "consumed": str(sum(one["count"] for one in totals["stages"] if one["name"] == "consumed")),
        "refused": str(sum(one["count"] for one in totals["refusals"])),
        "failures": str(sum(one["count"] for one in totals["failures"])),
        "decisions": str(totals["decisions"]),
        "violations": str(totals["violations"]),
    }
    wait_for_figure(page, "decisions", totals["decisions"])
    assert {name: figure(page, name) for name in expected} == expected


def test_every_chart_draws_what_a_real_run_has(page: Page) -> None:
    for size in Size:
        page.evaluate("(hash) => { location.hash = hash; }", f"#run={quote(RUN, safe='')}&size={size.value}")
        page.wait_for_selector(f"input[name=size][value='{size.value}']:checked", state="attached")
        page.locator("[data-card=admission] .scope", has_text=f"in windows of {LENGTHS[size]}").wait_for()
        for chart in CHARTS:
            card = page.locator(f"[data-card={chart}]")
            card.scroll_into_view_if_needed()
            card.locator("canvas, .blank:not([hidden])").first.wait_for()
        assert width_left(page) == 0


def test_a_trajectory_of_any_name_has_its_history(page: Page) -> None:
    for name in STRANGE:
        hash_ = f"#run={quote(RUN, safe='')}&size=10s&trajectory={quote(name, safe='')}"
        page.evaluate("(hash) => { location.hash = hash; }", hash_)
        page.wait_for_selector("#trajectory .path")
        assert page.locator("#trajectory .path li").all_inner_texts()[-1].startswith("generated")
        assert page.locator("#trajectory tbody tr").count() == 1
        assert page.evaluate("window.pwned") is None


def test_a_dashboard_that_ends_and_begins_anew_is_found_again(chromium: Browser, decided: Settings) -> None:
    with dashboard(decided) as first:
        tabs = Tabs(chromium, url(first))
        tabs.awaited = GONE
        page = tabs.open()
        wait_for_figures(page)
        before = figure(page, "decisions")
        assert first.process is not None
        end(first.process)
        page.wait_for_selector("[data-banner=late]")
    with dashboard(decided, listen=f"127.0.0.1:{first.port}"):
        page.wait_for_selector("#connection[data-standing=live]", timeout=20_000)
        wait_for_figure(page, "decisions", before)
        assert tabs.close() == []


def test_with_a_token_one_signs_in_and_the_stream_goes_on(chromium: Browser, decided: Settings, tmp_path: Path) -> None:
    token = "of-more-than-enough-letters"
    file = tmp_path / "token"
    file.write_text(token)
    with dashboard(decided, "--token-file", str(file)) as served:
        tabs = Tabs(chromium, url(served))
        tabs.awaited = ("401",)
        page = tabs.open()
        page.locator("input[type=password]").fill(token)
        page.keyboard.press("Enter")
        page.wait_for_selector("#connection[data-standing=live]")
        wait_for_figures(page)
        assert token not in page.url
        assert tabs.close() == []
