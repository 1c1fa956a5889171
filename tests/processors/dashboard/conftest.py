"""Fixtures for the page: a Chromium without a window, a server of frames, and tabs that complain about complaints."""

import os
from collections.abc import Iterator
from pathlib import Path

import pytest
from playwright.sync_api import Browser, Page, sync_playwright

from rollbook.processors.dashboard.answers import Frame, Size
from rollbook.tests.processors.dashboard import sample
from rollbook.tests.processors.dashboard.page_server import PageServer
from rollbook.tests.processors.dashboard.page_tabs import Spare, Tabs, wait_for_figures
from rollbook.tests.processors.dashboard.sample_series import RUN

CHROMIUM = Path("/usr/bin/chromium")


@pytest.fixture(scope="module")  # and not longer: while it is there, asyncio.run finds a loop that runs
def chromium() -> Iterator[Browser]:
    if not CHROMIUM.exists():
        if os.environ.get("CI"):
            pytest.fail(f"no Chromium at {CHROMIUM}: the page would go untested")
        pytest.skip(f"no Chromium at {CHROMIUM}")
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(
            executable_path=str(CHROMIUM), args=["--no-sandbox", "--disable-dev-shm-usage"]
        )
        yield browser
        browser.close()


@pytest.fixture
def page_server() -> Iterator[PageServer]:
    with PageServer() as server:
        yield server


@pytest.fixture
def shown(page_server: PageServer) -> Frame:
    """The frame that streams tell: of the other lengths their own."""
    for size in Size:
        page_server.show(sample.frame(size), size, RUN)
    usual = sample.frame()
    page_server.show(usual)
    return usual


@pytest.fixture(scope="module")
def page(chromium: Browser) -> Iterator[Page]:
    """The page with the usual frame, one for all tests of a module that leave it as it is."""
    with PageServer() as server:
        server.show(sample.frame())
        tabs = Tabs(chromium, server.url)
        opened = tabs.open()
        wait_for_figures(opened)
        yield opened
        assert tabs.close() == []


@pytest.fixture(scope="module")
def spare(chromium: Browser) -> Spare:
    return Spare(chromium)


@pytest.fixture
def tabs(chromium: Browser, page_server: PageServer, spare: Spare) -> Iterator[Tabs]:
    """Opens the page. At the end no console error, exception or breach of the content policy may have been seen."""
    opened = Tabs(chromium, page_server.url, spare)
    yield opened
    complaints = opened.close()
    assert complaints == []
