"""Signing in, in a real browser: the link that somebody was sent leads where it says, also after a wrong token."""

from playwright.sync_api import Browser

from rollbook.tests.processors.dashboard.serving import dashboard
from rollbook.tests.processors.dashboard.test_access import NOBODY, TOKEN


def test_a_link_to_a_run_leads_to_the_run_after_signing_in(chromium: Browser) -> None:
    with dashboard(NOBODY, listen="127.0.0.1:0", ROLLBOOK_DASHBOARD_TOKEN=TOKEN) as served:
        page = chromium.new_page()
        try:
            page.goto(f"http://127.0.0.1:{served.port}/#run=my-run")
            for token in ("no token of it", TOKEN):
                page.fill("#token", token)
                with page.expect_navigation():
                    page.click("button")
            assert page.url == f"http://127.0.0.1:{served.port}/#run=my-run"
        finally:
            page.close()
