"""Every bundle of a folder comes out as its table of verdicts states: the folder is ROLLBOOK_BUNDLES, by default the
fixtures. Where a folder has no `verdicts.json`, what came out is printed, and that there is an answer is all that is
asked."""

import json
import shutil
from pathlib import Path

import pytest

from rollbook.tests.replay import verdicts
from rollbook.tests.replay.reseal import FIXTURES


def test_each_bundle_has_the_verdict_that_the_table_states(capsys: pytest.CaptureFixture[str]) -> None:
    found = verdicts.rows()
    with capsys.disabled():
        print("", *found, sep="\n")
    assert found, f"no bundle in {verdicts.FOLDER}"
    assert [str(row) for row in found if not row.holds and (row.stated or verdicts.has_table())] == []


def test_another_folder_is_held_against_its_own_table(tmp_path: Path) -> None:
    shutil.copytree(FIXTURES / "pr65", tmp_path / "pr65")
    shutil.copytree(FIXTURES / "full-k1", tmp_path / "nobody-stated")
    stated = {"pr65": {"validate": "valid", "replay": "pass"}, "gone": {"validate": "valid", "replay": "pass"}}
    assert not verdicts.has_table(tmp_path)
    (tmp_path / verdicts.TABLE).write_text(json.dumps(stated))
    found = {row.name: (row.found.replay, row.holds) for row in verdicts.rows(tmp_path)}
    assert verdicts.has_table(tmp_path)
    assert found == {"pr65": ("diverges", False), "gone": ("refused", False), "nobody-stated": ("pass", False)}
