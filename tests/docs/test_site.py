"""The site builds without a warning; its links lead somewhere, and it asks for nothing outside."""

from dataclasses import dataclass, field
from html.parser import HTMLParser
from pathlib import Path
from urllib.parse import unquote, urlsplit

import pytest

from rollbook.infra.monitoring.alerts import ALERTS
from rollbook.tests.docs.blocks import PAGES, ROOT
from rollbook.tests.docs.pictures import OF_COMMANDS, OF_THE_PAGE

_LOADS = {("link", "href"), ("script", "src"), ("img", "src"), ("iframe", "src"), ("source", "src"), ("object", "data")}


@dataclass
class Read:
    """What a page links to, what it loads, and the names within it."""

    links: set[str] = field(default_factory=set)
    loads: set[str] = field(default_factory=set)
    names: set[str] = field(default_factory=set)


class Reader(HTMLParser):
    def __init__(self) -> None:
        super().__init__()
        self.read = Read()

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        given = {name: value or "" for name, value in attrs}
        if "id" in given:
            self.read.names.add(given["id"])
        for name, value in given.items():
            if (tag, name) in _LOADS:
                self.read.loads.add(value)
            elif (tag, name) == ("a", "href"):
                self.read.links.add(value)


@pytest.fixture(scope="module")
def built(site: Path) -> dict[Path, Read]:
    found = {}
    for path in site.rglob("*.html"):
        reader = Reader()
        reader.feed(path.read_text(encoding="utf-8"))
        found[path] = reader.read
    return found


def test_every_link_leads_somewhere(built: dict[Path, Read], site: Path) -> None:
    dead = []
    for page, read in built.items():
        for link in read.links:
            parts = urlsplit(link)
            if parts.scheme or page.name == "404.html":
                continue
            target = (page.parent / unquote(parts.path)).resolve() if parts.path else page
            known = target.is_file() and (
                not parts.fragment or unquote(parts.fragment) in built[target].names | {"__top"}
            )
            if not known:
                dead.append(f"{page.relative_to(site)}: {link}")
    assert not dead


def test_nothing_is_loaded_from_outside(built: dict[Path, Read]) -> None:
    loads = {load for page, read in built.items() for load in read.loads if page.name != "404.html"}
    assert {load for load in loads if urlsplit(load).scheme not in ("", "data") or load.startswith("//")} == set()


def test_every_page_is_in_the_navigation(built: dict[Path, Read], site: Path) -> None:
    reached = {(site / urlsplit(link).path).resolve() for link in built[site / "index.html"].links if "://" not in link}
    assert {page for page in built if page.name not in ("404.html", "overview.html")} <= reached


def test_every_alert_leads_to_its_heading(built: dict[Path, Read], site: Path) -> None:
    names = {name for read in built.values() for name in read.names}
    assert {alert.anchor for alert in ALERTS} <= names


def test_every_picture_is_shown_somewhere() -> None:
    """And is one that a command makes."""
    text = "".join(page.read_text(encoding="utf-8") for page in PAGES)
    made = {"lifecycle.svg", *(f"{name}.svg" for name in OF_COMMANDS), *(f"{name}.png" for name, *_ in OF_THE_PAGE)}
    assert {path.name for path in (ROOT / "docs" / "images").iterdir()} == made | {"favicon.svg"}
    assert {name for name in made if f"images/{name}" in text} == made
