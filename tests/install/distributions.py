"""What is published: wheel and sdist, built without a network and without isolation."""

import os
import subprocess
import sys
import tarfile
import zipfile
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
PARTS = ("schemas", "producers", "processors", "replay", "infra")
ONLY_IN_A_CHECKOUT = "infra/reference/"
"""The generator of the reference pages, which reads tables of the tests."""

ALSO_IN_THE_SDIST = (".gitignore", "CHANGELOG.md", "LICENSE", "PKG-INFO", "README.md", "pyproject.toml")


def build(source: Path, into: Path, target: str, umask: int = 0o022) -> Path:
    """`target`: wheel or sdist."""
    into.mkdir(parents=True, exist_ok=True)
    subprocess.run(
        [sys.executable, "-m", "hatchling", "build", "-t", target, "-d", str(into)],
        cwd=source,
        env={**os.environ, "PYTHONHASHSEED": "random"},
        umask=umask,
        check=True,
        capture_output=True,
    )
    (made,) = into.iterdir()
    return made


def listed() -> frozenset[str]:
    """The files of the tree by git's list, ignored ones left out: a new data file cannot be forgotten, nor a cache
    shipped."""
    names = subprocess.run(
        ["git", "ls-files", "-z", "--cached", "--others", "--exclude-standard"],
        cwd=ROOT,
        check=True,
        capture_output=True,
        text=True,
    ).stdout.split("\0")
    return frozenset(name for name in names if name and (ROOT / name).is_file())


def parts_of(names: frozenset[str]) -> frozenset[str]:
    """Those that are published."""
    return frozenset(name for name in names if name.split("/")[0] in PARTS and not name.startswith(ONLY_IN_A_CHECKOUT))


def in_wheel(wheel: Path) -> frozenset[str]:
    with zipfile.ZipFile(wheel) as archive:
        return frozenset(name for name in archive.namelist() if ".dist-info/" not in name)


def in_sdist(sdist: Path) -> frozenset[str]:
    """Its files, without the folder that all of them are in."""
    with tarfile.open(sdist) as archive:
        assert all(member.isfile() for member in archive), "an sdist has neither links nor folders"
        return frozenset(name.partition("/")[2] for name in archive.getnames())
