"""The site in a real browser, opened as files: light, dark and narrow, without a request to anywhere."""

import os
import re
import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Literal

import pytest
from playwright.sync_api import Browser, sync_playwright

from rollbook.tests.docs.blocks import ROOT

NAMED = re.compile(r"^ +-(?: [^:]+:)? ([\w/-]+)\.md", flags=re.MULTILINE)
PAGES = [name for name in NAMED.findall((ROOT / "mkdocs.yml").read_text(encoding="utf-8")) if "README" not in name]
REFERENCE = [f"reference/{name}" for name in ("README", "lifecycle", "commands", "records-and-states", "api-producers")]
Scheme = Literal["light", "dark"]
ONE_OF_EACH = [
    "index",
    "get-started",
    "guide-watch",
    "connect-your-trainer",
    "operating",
    "design",
    "proved",
    *REFERENCE,
]
VISITS: tuple[tuple[Scheme, int, list[str]], ...] = (
    ("light", 360, [*PAGES, *REFERENCE]),
    ("light", 1280, ONE_OF_EACH),
    ("dark", 1280, ONE_OF_EACH),
)
_OVERFLOWS = """() => [...document.querySelectorAll('.md-content__inner > *')]
    .filter(one => one.getBoundingClientRect().right > innerWidth + 1)
    .map(one => one.tagName + ' ' + one.textContent.slice(0, 60))"""


@pytest.fixture(scope="module")
def browser() -> Iterator[Browser]:
    chromium = shutil.which("chromium")
    if chromium is None:
        if os.environ.get("CI"):
            pytest.fail("no chromium is installed")
        pytest.skip("no chromium is installed")
    with sync_playwright() as found:
        opened = found.chromium.launch(executable_path=chromium, args=["--no-sandbox", "--disable-dev-shm-usage"])
        yield opened
        opened.close()


@pytest.mark.parametrize(("scheme", "width", "pages"), VISITS)
def test_a_page_fits_and_asks_for_nothing(
    browser: Browser, site: Path, scheme: Scheme, width: int, pages: list[str]
) -> None:
    page = browser.new_page(viewport={"width": width, "height": 800}, color_scheme=scheme)
    asked: list[str] = []
    errors: list[str] = []
    page.on("request", lambda request: asked.append(request.url))
    page.on("pageerror", lambda error: errors.append(str(error)))
    too_wide = []
    for name in pages:
        file = site / f"{name}.html" if not name.endswith("README") else site / "reference" / "index.html"
        page.goto(file.as_uri())
        assert page.evaluate("document.body.dataset.mdColorScheme") == {"light": "default", "dark": "slate"}[scheme]
        if page.evaluate("document.documentElement.scrollWidth") > width or page.evaluate(_OVERFLOWS):
            too_wide.append((name, page.evaluate(_OVERFLOWS)))
    page.close()
    assert not too_wide
    assert {url for url in asked if not url.startswith(("file:", "data:", "blob:"))} == set()
    assert not errors


def test_the_search_finds_without_a_server(browser: Browser, site: Path) -> None:
    page = browser.new_page()
    asked: list[str] = []
    page.on("request", lambda request: asked.append(request.url))
    page.goto((site / "index.html").as_uri())
    page.fill("input[name=query]", "quarantine")
    page.wait_for_selector(".md-search-result__item a")
    assert page.locator(".md-search-result__item").count() > 2
    assert {url for url in asked if not url.startswith(("file:", "data:", "blob:"))} == set()
    page.close()


def test_the_palette_is_turned_by_hand(browser: Browser, site: Path) -> None:
    page = browser.new_page(color_scheme="light")
    page.goto((site / "reference" / "lifecycle.html").as_uri())
    ink = "getComputedStyle(document.querySelector('.lifecycle text')).fill"
    light = page.evaluate(ink)
    page.click("label[for=__palette_1]:visible")
    assert page.evaluate("document.body.dataset.mdColorScheme") == "slate"
    assert page.evaluate(ink) != light
    page.close()
