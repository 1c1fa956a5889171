"""The library that the page draws with is the one that was published, and nothing is loaded from elsewhere."""

import hashlib
import re

import pytest

from rollbook.tests.processors.dashboard.page_server import STATIC

OURS = sorted(path for path in STATIC.rglob("*") if path.is_file() and "vendor" not in path.parts)


def test_the_vendored_file_has_the_sum_that_is_written_beside_it() -> None:
    table = (STATIC / "vendor" / "README.md").read_text()
    listed = dict(re.findall(r"\| `([^`]+)` \|.*\| `([0-9a-f]{64})` \|", table))
    scripts = {path.name: hashlib.sha256(path.read_bytes()).hexdigest() for path in (STATIC / "vendor").glob("*.js")}
    assert scripts == listed
    assert listed == {"echarts.min.js": "b66b25aeb4df84e33199dc21694014d336d222cbd9deb0e5a7c14bd6aa0d0fd0"}


def test_its_licences_lie_beside_it() -> None:
    """Those of the library, and of what its builders put into it."""
    of_parts = {path.name for path in (STATIC / "vendor" / "licenses").iterdir()}
    assert of_parts == {"LICENSE-d3", "LICENSE-tslib", "LICENSE-zrender"}
    assert {path.name for path in (STATIC / "vendor").iterdir()} >= {"LICENSE", "NOTICE"}


@pytest.mark.parametrize("path", OURS, ids=lambda path: path.name)
def test_nothing_is_loaded_from_elsewhere_and_nothing_is_parsed_as_html(path: object) -> None:
    text = STATIC.joinpath(str(path)).read_text()
    elsewhere = [url for url in re.findall(r"(?:https?:)?//[\w.-]+\.\w+[^\s\"')]*", text) if "www.w3.org" not in url]
    assert elsewhere == []
    assert not re.search(
        r"innerHTML|outerHTML|insertAdjacentHTML|document\.write|DOMParser|\beval\(|new Function", text
    )
    assert not re.search(r"<[^>]+\s(style|on\w+)=", text) or path != STATIC / "index.html"


@pytest.mark.parametrize("path", [one for one in OURS if one.suffix == ".js"], ids=lambda path: path.name)
def test_a_module_says_first_what_it_is_for_and_stays_readable(path: object) -> None:
    lines = STATIC.joinpath(str(path)).read_text().splitlines()
    assert lines[0].startswith("// ")
    assert len(lines) <= 350
    assert max(map(len, lines)) <= 240
