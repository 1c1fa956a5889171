"""A folder where a bundle has a file: the bundle is refused in one line, never a defect."""

import shutil
from pathlib import Path

import pytest

from rollbook.infra.command import run
from rollbook.tests.replay.reseal import FIXTURES

FILES = ["COMPLETE", "COMPLETE.0", "manifest.json", "index.json", "expected.json", "payloads/kl.pt"]


@pytest.mark.parametrize("name", FILES)
def test_a_folder_in_place_of_a_file(name: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    bundle = tmp_path / "bundle"
    shutil.copytree(FIXTURES / "full-k1", bundle)
    (bundle / name).unlink()
    (bundle / name).mkdir()

    assert run(["validate", str(bundle)]) == 1
    assert f"{name}: a folder, not a regular file" in " ".join(capsys.readouterr().out.split())

    assert run(["replay", str(bundle)]) == 2
    told = capsys.readouterr()
    assert (told.out, told.err.count("\n")) == ("", 1)
    assert f"{name}: a folder, not a regular file; capture the bundle again" in told.err
