"""Wheel and sdist are the tree and nothing else, and the same bytes wherever and whenever they are built."""

import os
import re
import shutil
import subprocess
import sys
import tarfile
import zipfile
from email import message_from_bytes
from pathlib import Path

import pytest

from rollbook.tests.install.distributions import (
    ALSO_IN_THE_SDIST,
    PARTS,
    ROOT,
    build,
    in_sdist,
    in_wheel,
    listed,
    parts_of,
)
from rollbook.tests.install.extras import EXTRAS

MOST_BYTES = 2 << 20
LONG_AGO = 1_000_000_000


def test_the_wheel_holds_what_is_published_and_nothing_else(wheel: Path) -> None:
    assert in_wheel(wheel) == {f"rollbook/{name}" for name in parts_of(listed())}


def test_the_sdist_holds_what_the_wheel_is_made_of(sdist: Path) -> None:
    assert in_sdist(sdist) == parts_of(listed()) | set(ALSO_IN_THE_SDIST)


def test_its_metadata_is_for_users(wheel: Path) -> None:
    """No extra that only developers need; the licences of all that it holds, others' code included, with texts."""
    with zipfile.ZipFile(wheel) as archive:
        (folder,) = {name.split("/")[0] for name in archive.namelist() if ".dist-info/" in name}
        said = message_from_bytes(archive.read(f"{folder}/METADATA"))
        texts = {name.removeprefix(f"{folder}/licenses/") for name in archive.namelist() if "/licenses/" in name}
    vendor = "processors/dashboard/static/vendor"
    theirs = {name for name in listed() if re.match(rf"{vendor}/.*(LICENSE|NOTICE)[^/]*$", name)}
    assert set(said.get_all("Provides-Extra", ())) == EXTRAS.keys()
    assert said["License-Expression"] == "Apache-2.0 AND BSD-3-Clause AND 0BSD"
    assert {*said.get_all("License-File", ())} == {"LICENSE"} | theirs
    assert {name for name in texts if not name.startswith("rollbook/")} == {"LICENSE"} | theirs


def test_neither_is_large(wheel: Path, sdist: Path) -> None:
    assert {path.name for path in (wheel, sdist) if path.stat().st_size > MOST_BYTES} == set()


def test_nothing_that_is_published_imports_what_is_not() -> None:
    wrong = [
        name
        for name in parts_of(listed())
        if name.endswith(".py")
        and any(part in (ROOT / name).read_text(encoding="utf-8") for part in ("rollbook.tests", "infra.reference"))
    ]
    assert wrong == []


@pytest.fixture(scope="module")
def elsewhere(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A copy of the tree as another clone has it: another folder, other times, other rights."""
    copy = tmp_path_factory.mktemp("another clone") / "tree"
    for name in parts_of(listed()) | {"pyproject.toml", "README.md", "LICENSE", "CHANGELOG.md", ".gitignore"}:
        target = copy / name
        target.parent.mkdir(parents=True, exist_ok=True)
        shutil.copyfile(ROOT / name, target)
        target.chmod(0o664)
        os.utime(target, (LONG_AGO, LONG_AGO))
    return copy


def test_another_clone_builds_the_same_bytes(wheel: Path, sdist: Path, elsewhere: Path, tmp_path: Path) -> None:
    for mine, target in ((wheel, "wheel"), (sdist, "sdist")):
        theirs = build(elsewhere, tmp_path / target, target, umask=0o077)
        assert theirs.name == mine.name
        assert theirs.read_bytes() == mine.read_bytes()


def test_the_sdist_builds_the_same_wheel(wheel: Path, sdist: Path, tmp_path: Path) -> None:
    with tarfile.open(sdist) as archive:
        archive.extractall(tmp_path, filter="data")
    (unpacked,) = tmp_path.iterdir()
    assert build(unpacked, tmp_path / "dist", "wheel").read_bytes() == wheel.read_bytes()


def test_the_wheel_works_without_the_checkout(wheel: Path, tmp_path: Path) -> None:
    with zipfile.ZipFile(wheel) as archive:
        archive.extractall(tmp_path)
    script = (
        "import rollbook.schemas, rollbook.producers, rollbook.processors, rollbook.replay, rollbook.infra, sys\n"
        "parts = [rollbook.schemas, rollbook.producers, rollbook.processors, rollbook.replay, rollbook.infra]\n"
        "print(*[part.__file__ for part in parts], sep='\\n')\n"
        "from rollbook.infra.broker.lock import read_lock; print(read_lock().version)\n"
        "from rollbook.infra.command import run; sys.exit(run(['--version']))"
    )
    done = subprocess.run(
        [sys.executable, "-c", script],
        cwd=tmp_path,
        env={**os.environ, "PYTHONPATH": str(tmp_path)},  # before the editable install
        check=True,
        capture_output=True,
        text=True,
    )
    *files, kafka, version = done.stdout.splitlines()
    assert files == [str(tmp_path / "rollbook" / part / "__init__.py") for part in PARTS]
    assert kafka.startswith("4.")
    assert version.startswith("rollbook ")
