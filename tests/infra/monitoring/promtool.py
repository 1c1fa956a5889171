"""Prometheus' own tools, which Debian packages; where they are missing a test says so, and in CI it fails."""

import os
import shutil
import subprocess
from collections.abc import Sequence

import pytest


def tool(name: str) -> str:
    """The program's path. Skips the test where there is none."""
    found = shutil.which(name)
    if found is None:
        told = f"there is no {name}: apt-get install prometheus"
        if os.environ.get("CI"):
            pytest.fail(told)
        pytest.skip(told)
    return found


def promtool(*arguments: str | os.PathLike[str], given: str | None = None) -> "subprocess.CompletedProcess[str]":
    """Run it; whatever comes of it."""
    command: Sequence[str | os.PathLike[str]] = (tool("promtool"), *arguments)
    return subprocess.run(command, input=given, capture_output=True, text=True, timeout=120, check=False)
