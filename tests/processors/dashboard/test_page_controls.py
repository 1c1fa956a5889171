"""How the page is used: its address, keyboard, widths and themes, on a real Chromium."""

import re
from typing import Literal

from playwright.sync_api import Page, ViewportSize

from rollbook.processors.dashboard.answers import Frame
from rollbook.tests.processors.dashboard.page_server import PageServer
from rollbook.tests.processors.dashboard.page_tabs import CHARTS, Tabs, address, wait_for_figures, width_left
from rollbook.tests.processors.dashboard.sample_series import RUN

_SCHEMES: tuple[Literal["light", "dark"], ...] = ("dark", "light")
_FOCUSED = """() => {
  const one = document.activeElement;
  const style = getComputedStyle(one.type === "radio" ? one.nextElementSibling : one);
  return {
    name: one.id || one.name || one.textContent.slice(0, 20),
    card: one.closest("[data-card]")?.dataset.card ?? "",
    ring: style.outlineStyle !== "none" && parseFloat(style.outlineWidth) >= 1,
    end: one === document.body,
  };
}"""
"""What has the focus, and whether it is seen to."""
_LINES = """cells => cells.map((cell) => {
  const words = document.createRange();
  words.selectNodeContents(cell);
  return words.getClientRects().length;
})"""
"""On how many lines the text of each cell stands."""
_CONTRASTS = """(pairs) => {
  const style = getComputedStyle(document.documentElement);
  const linear = (c) => (c <= 0.04045 ? c / 12.92 : ((c + 0.055) / 1.055) ** 2.4);
  const light = (name) => {
    const hex = style.getPropertyValue(`--${name}`).trim().match(/[0-9a-f]{2}/gi);
    const [r, g, b] = hex.map((two) => linear(parseInt(two, 16) / 255));
    return 0.2126 * r + 0.7152 * g + 0.0722 * b;
  };
  const sorted = pairs.map((pair) => pair.map(light).sort((a, b) => b - a));
  return sorted.map(([a, b]) => (a + 0.05) / (b + 0.05));
}"""
"""Contrast of colours by the formula of WCAG 2."""


def test_the_address_keeps_run_and_window(tabs: Tabs, shown: Frame, page_server: PageServer) -> None:
    page = tabs.open()
    wait_for_figures(page)
    assert address(page) == {"run": RUN, "size": "10s"}
    page.get_by_role("radio", name="1 min").check()
    page.locator("[data-card=heat] .scope", has_text="in windows of 1 min").wait_for()
    assert address(page) == {"run": RUN, "size": "1m"}
    assert any("size=1m" in path and "run=qwen3-8b%2Fgrpo-07" in path for path in page_server.asked)
    page.reload()
    wait_for_figures(page)
    assert page.locator("input[name=size][value='1m']").is_checked()


def test_a_run_is_chosen_with_the_keyboard_alone(tabs: Tabs, shown: Frame) -> None:
    page = tabs.open()
    wait_for_figures(page)
    page.get_by_role("combobox", name="Run").focus()
    page.keyboard.type("dapo")
    assert page.get_by_role("listbox").get_by_role("option").all_inner_texts()[0].startswith("llama-70b/dapo-2")
    assert page.get_by_role("listbox").get_by_role("option").count() == 1
    page.keyboard.press("ArrowDown")
    page.keyboard.press("Enter")
    page.wait_for_url(re.compile("dapo"))
    assert address(page)["run"] == "llama-70b/dapo-2"
    page.get_by_role("combobox", name="Run").focus()
    page.keyboard.press("ArrowDown")
    page.keyboard.press("Escape")
    assert not page.get_by_role("listbox").is_visible()
    assert page.get_by_role("combobox", name="Run").input_value() == "llama-70b/dapo-2"


def test_everything_is_reached_with_the_tab_key_and_is_seen_to_be(tabs: Tabs, shown: Frame) -> None:
    page = tabs.open()
    wait_for_figures(page)
    page.evaluate("document.body.tabIndex = -1; document.body.focus()")
    reached: list[str] = []
    for _ in range(120):
        page.keyboard.press("Tab")
        at = page.evaluate(_FOCUSED)
        if at["end"]:
            break
        assert at["ring"], at
        reached.append(f"{at['card']}:{at['name']}")
    assert reached[:4] == [":skip", ":run", ":size", ":theme"]
    assert {f"{chart}:Table" for chart in CHARTS} <= set(reached)
    assert {"heat:mode-heat", "decisions:filter-outcome", "decisions:find-trajectory"} <= set(reached)
    page.locator("#skip").focus()
    page.keyboard.press("Enter")
    assert page.evaluate("document.activeElement.id") == "main"
    assert address(page)["run"] == RUN


def test_it_fits_every_width(tabs: Tabs, shown: Frame) -> None:
    page = tabs.open(size=ViewportSize(width=1600, height=900))
    wait_for_figures(page)
    for width in (1600, 900, 768, 360):
        page.set_viewport_size(ViewportSize(width=width, height=900))
        assert page.locator(".top").evaluate("one => one.offsetHeight") < (60 if width >= 900 else 180), width
        for chart in sorted(CHARTS):
            page.locator(f"[data-card={chart}]").scroll_into_view_if_needed()
            assert width_left(page) == 0, (width, chart)
    updates = page.locator("[data-card=updates]")
    updates.get_by_role("button", name="Table").click()
    assert set(updates.get_by_role("cell", name="committed").evaluate_all(_LINES)) == {1}
    assert width_left(page) == 0


def test_the_theme_is_kept_and_the_charts_take_it(tabs: Tabs, shown: Frame) -> None:
    page = tabs.open(scheme="dark")
    wait_for_figures(page)
    colour = "getComputedStyle(document.documentElement).getPropertyValue('--muted')"
    of_chart = "echarts.getInstanceByDom(document.querySelector('[data-card=heat] .plot')).getOption().textStyle.color"
    dark = page.evaluate(colour)
    assert page.evaluate(of_chart) == dark
    page.get_by_role("button", name="Theme: system").click()
    assert page.evaluate(colour) != dark
    assert page.evaluate(of_chart) == page.evaluate(colour)
    page.reload()
    wait_for_figures(page)
    assert page.get_by_role("button", name="Theme: light").is_visible()
    page.emulate_media(color_scheme="light")
    page.get_by_role("button", name="Theme: light").click()
    assert page.evaluate(colour) == dark


def test_text_stands_out_from_its_ground(page: Page) -> None:
    pairs = [(text, ground) for text in ("ink", "muted") for ground in ("ground", "surface", "raised", "sunken")]
    pairs += [("bad", "bad-ground"), ("muted", "bad-ground"), ("near", "near-ground"), ("muted", "near-ground")]
    pairs += [("bad", "surface"), ("near", "surface"), ("accent", "surface"), ("limit", "surface")]
    pairs += [("ink", "note-ground"), ("on-accent", "accent")]
    grounds = set()
    for scheme in _SCHEMES:
        page.emulate_media(color_scheme=scheme)
        grounds.add(page.evaluate("getComputedStyle(document.documentElement).getPropertyValue('--ground')"))
        ratios = page.evaluate(_CONTRASTS, pairs)
        too_faint = {pair: round(ratio, 2) for pair, ratio in zip(pairs, ratios, strict=True) if ratio < 4.5}
        assert too_faint == {}, scheme
    assert len(grounds) == len(_SCHEMES)
