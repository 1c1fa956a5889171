"""A browser has six connections to a host for all its pages: they are shared, and who is not looked at has none."""

from rollbook.tests.processors.dashboard import sample
from rollbook.tests.processors.dashboard.page_server import PageServer
from rollbook.tests.processors.dashboard.page_tabs import Tabs, hide, wait_for_figure, wait_for_figures
from rollbook.tests.processors.dashboard.sample_series import RUN

CONNECTIONS = 6
FOLLOW = 4
"""So many pages of a browser follow; those that came later look in."""


def test_a_page_that_nobody_sees_has_no_connection_and_catches_up(tabs: Tabs, page_server: PageServer) -> None:
    frame = sample.frame()
    assert frame.now is not None
    assert frame.now.snapshot is not None
    page_server.show(frame)
    page = tabs.open(f"#run={RUN}&size=10s", hidden=True, clock=True)
    page.wait_for_selector("body[data-standing=paused]")
    page.clock.run_for(30_000)
    assert [path for path in page_server.asked if "/api/stream" in path] == []

    hide(page, False)
    wait_for_figures(page)
    page_server.await_streams(1)

    hide(page)
    page.clock.run_for(4_000)
    page_server.await_streams(0)
    page.clock.run_for(60_000)  # neither watchdog nor anything else opens one
    snapshot = frame.now.snapshot.model_copy(update={"ready_stale": 4_711})
    page_server.show(frame.model_copy(update={"now": frame.now.model_copy(update={"snapshot": snapshot})}))
    assert page_server.streaming == 0
    assert hide(page, False) == "paused"  # and not cut off: it has only just asked
    assert page.locator("[data-banner]").count() == 0
    wait_for_figure(page, "ready_stale", 4_711)
    page.wait_for_selector("body[data-standing=live]")


def test_more_pages_than_there_are_connections_are_all_told(tabs: Tabs, page_server: PageServer) -> None:
    page_server.show(sample.empty())
    pages = [tabs.open()]
    for _ in range(CONNECTIONS):
        pages[-1].wait_for_selector("[data-message=empty]")
        pages.append(tabs.open(beside=pages[0]))
    for page in pages[FOLLOW:]:
        page.wait_for_selector("[data-banner=shared]", state="attached")
    assert [page.locator("[data-banner=shared]").count() for page in pages[:FOLLOW]] == [0] * FOLLOW
    page_server.await_streams(FOLLOW)
    assert pages[0].evaluate("fetch('/icon.svg').then((answer) => answer.ok)")

    pages[0].goto("about:blank")
    pages[FOLLOW].wait_for_selector("[data-banner=shared]", state="detached")
    page_server.await_streams(FOLLOW)
