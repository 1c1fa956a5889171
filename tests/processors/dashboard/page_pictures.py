"""Takes the pictures of the documentation from a dashboard that runs: laptop in light and dark, and a phone.

rollbook demo --dashboard &
python -m rollbook.tests.processors.dashboard.page_pictures http://127.0.0.1:9401/#size=1s docs/images
"""

import sys
from pathlib import Path
from typing import Literal

from playwright.sync_api import ViewportSize, sync_playwright

CHROMIUM = "/usr/bin/chromium"
LAPTOP, PHONE = ViewportSize(width=1440, height=1250), ViewportSize(width=390, height=1250)
PICTURES: tuple[tuple[str, ViewportSize, Literal["light", "dark"]], ...] = (
    ("dashboard-light", LAPTOP, "light"),
    ("dashboard-dark", LAPTOP, "dark"),
    ("dashboard-narrow", PHONE, "light"),
)
PATIENCE_MS = 120_000
_SETTLES_MS = 2_500


def take(url: str, folder: Path) -> None:
    """All of them at about the same time: of one state."""
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=CHROMIUM, args=["--no-sandbox", "--disable-dev-shm-usage"])
        pages = []
        for name, size, scheme in PICTURES:
            page = browser.new_page(viewport=size, color_scheme=scheme, timezone_id="UTC")
            page.goto(url)
            pages.append((name, page))
        for _, page in pages:
            page.wait_for_selector("body[data-view=figures] [data-card=heat] canvas", timeout=PATIENCE_MS)
        pages[-1][1].wait_for_timeout(_SETTLES_MS)
        for name, page in pages:
            page.screenshot(path=folder / f"{name}.png")
        browser.close()


if __name__ == "__main__":
    take(sys.argv[1], Path(sys.argv[2]))
