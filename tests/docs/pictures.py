"""Takes the pictures of the pages: the dashboard while a demo runs, and commands on a terminal. Two minutes.

python -m rollbook.tests.docs.pictures              # all of them, into docs/images
python -m rollbook.tests.docs.pictures terminal     # those of commands alone; or dashboard
"""

import json
import os
import subprocess
import sys
import time
import urllib.request
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Literal

from playwright.sync_api import ViewportSize, sync_playwright

from rollbook.infra.broker import EmbeddedBroker
from rollbook.infra.commands.demo import DASHBOARD
from rollbook.tests.docs.blocks import ROOT
from rollbook.tests.docs.terminal import on_terminal, picture
from rollbook.tests.docs.world import furnish, shared_world

IMAGES = ROOT / "docs" / "images"
CHROMIUM = "/usr/bin/chromium"
LAPTOP, PHONE = ViewportSize(width=1440, height=1250), ViewportSize(width=390, height=1250)
OF_THE_PAGE: tuple[tuple[str, ViewportSize, Literal["light", "dark"]], ...] = (
    ("dashboard-light", LAPTOP, "light"),
    ("dashboard-dark", LAPTOP, "dark"),
    ("dashboard-narrow", PHONE, "light"),
)
OF_COMMANDS = {
    "terminal-watch": ("rollbook watch my-run --once", 100, 24),
    "terminal-explain": ("rollbook explain UPDATE --run my-run", 160, 22),
    "terminal-replay": ("rollbook replay bundles/BUNDLE", 100, 12),
}
"""Command, columns, and lines that are shown."""
_UPDATES = 8
"""Of the demo's twelve, behind its roll-back: then there is something of everything to see."""
_PATIENCE_S = 180
_SETTLES_MS = 2_500


def take_commands() -> None:
    """Of the recorded runs."""
    with TemporaryDirectory() as name, EmbeddedBroker() as broker:
        folder = Path(name)
        with shared_world(broker.bootstrap_servers, folder / "world") as world:
            furnish(folder / "page", world.files)
            environment = {**os.environ, **world.environment(folder / "data"), "TERM": "xterm-256color"}
            environment["PATH"] = f"{Path(sys.executable).parent}:{environment['PATH']}"
            for file, (command, width, lines) in OF_COMMANDS.items():
                asked = world.meant(command).split()
                said = world.as_on_pages(on_terminal(asked, folder / "page", environment, width))
                said = said.replace(broker.bootstrap_servers, "127.0.0.1:9092")
                (IMAGES / f"{file}.svg").write_text(picture(command, said, width, lines), encoding="utf-8")


def take_pages() -> None:
    """Of a demo that runs, all at about the same time: of one state."""
    with TemporaryDirectory() as folder:
        command = [sys.executable, "-m", "rollbook.infra.cli", "demo", "--out", f"{folder}/demo", "--dashboard"]
        demo = subprocess.Popen(command)
        try:
            _await_updates()
            _take(f"http://{DASHBOARD}/#size=1s")
        finally:
            demo.terminate()
            demo.wait()


def _take(url: str) -> None:
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=CHROMIUM, args=["--no-sandbox", "--disable-dev-shm-usage"])
        pages = []
        for name, size, scheme in OF_THE_PAGE:
            page = browser.new_page(viewport=size, color_scheme=scheme, timezone_id="UTC")
            page.goto(url)
            pages.append((name, page))
        for _, page in pages:
            page.wait_for_selector("body[data-view=figures] [data-card=heat] canvas")
        pages[-1][1].wait_for_timeout(_SETTLES_MS)
        for name, page in pages:
            page.screenshot(path=IMAGES / f"{name}.png")
        browser.close()


def _await_updates() -> None:
    deadline = time.monotonic() + _PATIENCE_S
    while time.monotonic() < deadline:
        try:
            with urllib.request.urlopen(f"http://{DASHBOARD}/api/runs", timeout=5) as answer:
                runs = json.load(answer)["runs"]
        except OSError:
            runs = []
        if any((run["active_version"] or 0) >= _UPDATES for run in runs or ()):
            return
        time.sleep(0.5)
    raise AssertionError(f"no run came to version {_UPDATES} within {_PATIENCE_S} s")


if __name__ == "__main__":
    if sys.argv[1:] != ["dashboard"]:
        take_commands()
    if sys.argv[1:] != ["terminal"]:
        take_pages()
