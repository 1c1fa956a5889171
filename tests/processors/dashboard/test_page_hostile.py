"""Names and reasons are other people's: whatever they hold is shown as text, runs nowhere and breaks nothing."""

import pytest
from playwright.sync_api import Page, ViewportSize

from rollbook.processors.dashboard.answers import Reading
from rollbook.tests.processors.dashboard import sample
from rollbook.tests.processors.dashboard.page_server import PageServer
from rollbook.tests.processors.dashboard.page_tabs import CHARTS, Tabs, address, wait_for_figures, width_left
from rollbook.tests.processors.dashboard.sample_series import RUN

_FOREIGN = """() => [...document.querySelectorAll("*")].filter((one) =>
  one.matches("img, iframe, object, embed, svg, base, form[action], [onerror], [onmouseover], [style*=javascript]")
  || (one.matches("script") && !/\\/(early|main|vendor\\/echarts\\.min)\\.js$/.test(one.src))
  || (one.matches("a") && !/^(#|\\/api\\/openapi\\.json)/.test(one.getAttribute("href")))
).map((one) => one.outerHTML.slice(0, 80))"""
"""Elements that nothing of ours makes."""
TOO_HIGH = 900
"""Pixels: long names and towers of marks are cut."""
_LOOKS_AT = "id => new URLSearchParams(location.hash.slice(1)).get('trajectory') === id"
_HIDDEN = r"[\u00ad\u200b-\u200f\u202a-\u202e\u2060-\u206f\ufeff]"


def nothing_ran(page: Page) -> None:
    assert page.evaluate("window.pwned") is None
    assert page.evaluate(_FOREIGN) == []


@pytest.fixture
def hostile(page_server: PageServer) -> None:
    page_server.show(sample.hostile())


@pytest.mark.parametrize("width", [360, 1280])
def test_hostile_names_are_text_everywhere(tabs: Tabs, hostile: None, width: int) -> None:
    page = tabs.open(size=ViewportSize(width=width, height=900))
    wait_for_figures(page)
    for chart in CHARTS:
        card = page.locator(f"[data-card={chart}]")
        assert card.evaluate("one => one.offsetHeight") < TOO_HIGH, chart
        card.scroll_into_view_if_needed()
        for mode in card.locator("input[type=radio]").all():
            mode.check()
        card.locator("canvas").first.wait_for()
        box = card.locator(".plot").bounding_box()
        assert box is not None
        for part in (0.3, 0.6, 0.95):  # over what the tooltips tell
            page.mouse.move(box["x"] + box["width"] * part, box["y"] + box["height"] * 0.5)
        card.get_by_role("button", name="Table").click()
        assert card.locator(".table-view tbody tr").count() > 0
        assert width_left(page) == 0, chart
    nothing_ran(page)
    heights = page.locator(".tile, tbody tr, .card").evaluate_all(
        "all => all.map((one) => [one.dataset.card ?? one.className, one.offsetHeight])"
    )
    assert [name for name, height in heights if height > TOO_HIGH] == []
    text = page.evaluate("document.body.innerText")
    assert "W" * 600 not in text
    assert '<img src=x onerror="window.pwned=1">' in text
    assert "⟨U+202E⟩" in text
    assert page.evaluate(f"/{_HIDDEN}/u.test(document.body.innerText + document.title)") is False


def test_a_tooltip_is_text(tabs: Tabs, page_server: PageServer) -> None:
    frame = sample.hostile()
    assert frame.series is not None
    few = frame.series.model_copy(update={"windows": frame.series.windows[-20:]})  # so that a bar is easily hit
    page_server.show(frame.model_copy(update={"series": few}))
    page = tabs.open()
    wait_for_figures(page)
    plot = page.locator("[data-card=refusals] .plot")
    plot.scroll_into_view_if_needed()
    plot.locator("canvas").first.wait_for()
    box = plot.bounding_box()
    assert box is not None
    page.mouse.move(box["x"] + box["width"] / 2, box["y"] + box["height"] / 2)
    page.mouse.move(box["x"] + box["width"] - 32, box["y"] + box["height"] / 2)  # the newest window
    page.locator(".chart-tip", has_text="<img src=x onerror").wait_for()
    nothing_ran(page)


def test_a_trajectory_of_any_name_has_its_history(tabs: Tabs, hostile: None, page_server: PageServer) -> None:
    frame = sample.hostile()
    assert frame.now is not None
    ids = frame.now.decisions[0].trajectory_ids
    page_server.histories = {one: sample.trajectory(one) for one in ids}
    page = tabs.open()
    page.wait_for_selector("[data-card=decisions] tbody tr")
    links = page.locator("[data-card=decisions] tbody tr").first.locator("a")
    targets = links.evaluate_all("all => all.map((one) => one.getAttribute('href'))")
    links.first.click()
    for target, trajectory_id in zip(targets, ids, strict=True):
        page.evaluate("(target) => { location.hash = target; }", target)
        page.wait_for_function(
            "(id) => new URLSearchParams(location.hash.slice(1)).get('trajectory') === id", arg=trajectory_id
        )
        page.wait_for_selector("#trajectory .path")
        assert address(page)["trajectory"] == trajectory_id
        nothing_ran(page)
        assert width_left(page) == 0
    page.get_by_role("link", name="All figures").click()
    page.wait_for_selector("#figures:not([hidden])")


def test_an_address_of_somebody_else_is_text(tabs: Tabs, page_server: PageServer) -> None:
    tabs.awaited = ("404",)
    page_server.show(sample.empty())
    page = tabs.open("#run=<img src=x onerror=window.pwned=1>&size=<b>&trajectory=<script>window.pwned=1</script>")
    page.wait_for_selector("[data-banner=trajectory]")
    assert "<script>" in page.locator("#trajectory").inner_text()
    page.get_by_role("link", name="All figures").click()
    page.wait_for_selector("[data-message=unknown_run]")
    assert address(page)["size"] == "10s"
    assert "<img src=x" in page.locator("#message").inner_text()
    nothing_ran(page)


def test_a_hostile_fault_is_text(tabs: Tabs, page_server: PageServer) -> None:
    page = tabs.open()
    for reading, where in ((Reading.WAITING, "message"), (Reading.CUT_OFF, "banner"), (Reading.LIVE, "banner")):
        page_server.show(sample.empty(reading, fault=sample.HOSTILE.script + sample.HOSTILE.long))
        page.wait_for_selector(f"body[data-standing={reading.value}]")
        page.locator(f"[data-{where}]", has_text="<img src=x onerror").first.wait_for()
        nothing_ran(page)
        assert width_left(page) == 0


def test_a_frame_that_is_none_changes_nothing(tabs: Tabs, page_server: PageServer) -> None:
    page_server.show(sample.frame())
    page = tabs.open(f"#run={RUN}")
    wait_for_figures(page)
    page_server.tell("{'no': json <img src=x onerror=window.pwned=1>")
    page.wait_for_selector("[data-banner=late]")
    nothing_ran(page)
    page_server.show(sample.frame())
    page.wait_for_selector("#connection[data-standing=live]")
