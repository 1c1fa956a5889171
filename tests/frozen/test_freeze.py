"""The command adds, and takes nothing back that is not named."""

from functools import partial
from pathlib import Path
from typing import Any

import pytest

from rollbook.tests.frozen import table
from rollbook.tests.frozen.freeze import TABLES, main
from rollbook.tests.frozen.table import Table

Things = dict[str, dict[str, Any]]


@pytest.fixture
def things(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Things:
    """What there is today, of which two are frozen."""
    monkeypatch.setattr(table, "FOLDER", tmp_path)
    made: Things = {"a": {"of": 1}, "b": {"of": [2]}}
    assert freeze(made) == 0
    return made


def of(things: Things) -> Table:
    return Table("things", lambda: {name: partial(dict, entry) for name, entry in things.items()})


def freeze(things: Things, *arguments: str) -> int:
    return main(arguments, (of(things),))


def test_what_is_new_is_added(things: Things, capsys: pytest.CaptureFixture[str]) -> None:
    things["c"] = {"of": "3" * 300}
    assert freeze(things) == 0
    assert capsys.readouterr().out.splitlines()[-1] == "things: c"
    assert of(things).kept() == things


def test_where_nothing_is_new_nothing_is_written(things: Things, capsys: pytest.CaptureFixture[str]) -> None:
    before = of(things).path.read_bytes()
    capsys.readouterr()
    assert freeze(things) == 0
    assert capsys.readouterr().out == ""
    assert of(things).path.read_bytes() == before


@pytest.mark.parametrize("change", [{"of": 9}, None])
def test_what_has_changed_or_is_gone_is_refused_and_with_it_all_that_is_new(
    things: Things, change: dict[str, Any] | None, capsys: pytest.CaptureFixture[str]
) -> None:
    before = of(things).kept()
    things["c"] = {}
    del things["a"]
    if change is not None:
        things["a"] = change
    assert freeze(things) == 1
    assert capsys.readouterr().err == "things.json: a: frozen otherwise than it is today\n"
    assert of(things).kept() == before
    assert freeze(things, "--thaw", "b") == 1
    assert freeze(things, "--thaw", "a") == 0
    assert of(things).kept() == things


def test_a_table_that_names_what_there_is_has_an_entry_of_each() -> None:
    for one in TABLES:
        assert one.kept().keys() == one.today().keys()
        assert len(one.kept()) >= 2
