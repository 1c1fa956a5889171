"""Fixtures of the pages: one server of commands, one world, and one site."""

import fcntl
import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from rollbook.tests.docs.blocks import ROOT
from rollbook.tests.docs.commands import served
from rollbook.tests.docs.world import World, shared_world


@pytest.fixture(scope="session")
def together(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The folder in which the session's processes meet."""
    own = tmp_path_factory.getbasetemp()
    return own if "PYTEST_XDIST_WORKER" not in os.environ else own.parent


@pytest.fixture(scope="session")
def programs(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """A folder with the `rollbook` command in it."""
    with served(tmp_path_factory.mktemp("commands")) as found:
        yield found


@pytest.fixture(scope="session")
def runs(broker: str, together: Path) -> Iterator[World]:
    """The recorded runs in the topics and in files."""
    with shared_world(broker, together / "docs-world") as found:
        yield found


@pytest.fixture(scope="session")
def site(together: Path) -> Path:
    """The documentation as a site, built as it is published, once a session."""
    folder = together / "docs-site"
    with (together / "docs-site.lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if not folder.exists():
            built = subprocess.run(
                [sys.executable, "-m", "mkdocs", "build", "--strict", "--site-dir", str(folder)],
                cwd=ROOT,
                env={**os.environ, "NO_MKDOCS_2_WARNING": "1"},
                stdout=subprocess.PIPE,
                stderr=subprocess.STDOUT,
                text=True,
            )
            assert built.returncode == 0, built.stdout
            assert "WARNING" not in built.stdout, built.stdout
    return folder
