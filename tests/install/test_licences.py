"""Everything that is installed has a licence that is known and may stand beside Apache-2.0; the page says which."""

from collections.abc import Mapping

import pytest

from rollbook.tests.install.licences import JARS, PAGE, jars, refused, rows


@pytest.fixture(scope="module")
def found() -> Mapping[str, tuple[str, str]]:
    return rows()


def test_no_licence_is_unknown_or_one_that_binds_others(found: Mapping[str, tuple[str, str]]) -> None:
    assert {name: licence for name, (_, licence) in found.items() if refused(name, licence)} == {}


@pytest.mark.parametrize(
    "licence", ["UNKNOWN", "GPL-3.0-only", "AGPL-3.0", "GNU General Public License v2 (GPLv2)", ""]
)
def test_such_a_licence_would_be_found(licence: str) -> None:
    assert refused("another", licence)


def test_the_page_has_every_package(found: Mapping[str, tuple[str, str]]) -> None:
    page = PAGE.read_text(encoding="utf-8")
    missing = [name for name, (_, licence) in found.items() if f"| {name} | {licence}" not in page]
    assert missing == [], "run `python -m rollbook.tests.install.licences` and commit what it writes"


def test_every_file_of_the_broker_has_a_licence() -> None:
    assert sorted(name for names in JARS.values() for name in names) == sorted(jars())
