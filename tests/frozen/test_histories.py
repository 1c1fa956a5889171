"""Recorded histories fold, audit and replay to the same bytes for ever, and so do recorded archives and bundles."""

import pytest

from rollbook.tests.frozen.archives import ARCHIVES
from rollbook.tests.frozen.bundles import BUNDLES
from rollbook.tests.frozen.histories import HISTORIES

HOW = "what is frozen is never made anew: a change of behaviour is a new fold version beside the old one"
NEW = "it is not frozen yet: python -m rollbook.tests.frozen.freeze"


@pytest.mark.parametrize("name", HISTORIES.names())
def test_a_recorded_history_comes_out_as_it_was_frozen(name: str) -> None:
    kept = HISTORIES.kept().get(name)
    assert kept is not None, NEW
    assert HISTORIES.of_today(name) == kept, HOW
    assert kept["decisions"] == kept["recorded_decisions"]
    assert kept["audit"]["findings"] == []
    assert (kept["audit"]["decided"], kept["audit"]["undecided"]) == (kept["records"], 0)


def test_they_are_worth_it() -> None:
    """Rows of every kind, snapshots, updates of every outcome and bundles are among them."""
    kept = HISTORIES.kept().values()
    assert sum(one["written"]["snapshots"] for one in kept) > 1_000
    assert {update["outcome"] for one in kept for update in one["updates"].values()} >= {"pass", "rolled back"}
    assert sum(len(one["bundles"]) for one in kept) > 50


@pytest.mark.parametrize("name", BUNDLES.names())
def test_a_recorded_bundle_replays_as_it_was_frozen(name: str) -> None:
    kept = BUNDLES.kept().get(name)
    assert kept is not None, NEW
    assert BUNDLES.of_today(name) == kept, HOW


@pytest.mark.parametrize("name", ARCHIVES.names())
def test_a_recorded_archive_is_read_as_it_was_frozen(name: str) -> None:
    kept = ARCHIVES.kept().get(name)
    assert kept is not None, NEW
    assert ARCHIVES.of_today(name) == kept, HOW
    assert (kept["audit"]["findings"], kept["verified"], kept["audit"]["undecided"]) == ([], [], 0)
    assert kept["audit"]["decided"] > 20
