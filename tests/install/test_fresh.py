"""The share of the nightly installs that every test run has: the core, in one fresh environment, of this Python. The
whole are `make installs`: every Python, every extra."""

import os
import subprocess
import sys
from pathlib import Path

from rollbook.tests.install.distributions import ROOT

UV = Path(sys.executable).with_name("uv")
CHECK = ROOT / "tests" / "install" / "check.py"


def test_the_wheel_alone_is_enough_for_the_core(wheel: Path, tmp_path: Path) -> None:
    python = tmp_path / "fresh" / "bin" / "python"
    uv("venv", "--quiet", "--python", sys.executable, str(tmp_path / "fresh"))
    locked = ("--constraint", str(ROOT / "requirements" / "dev.lock"))
    install = ("pip", "install", "--quiet", "--python", str(python), *locked, str(wheel))
    if uv("--offline", *install, must=False):  # what `make setup` fetched is in uv's cache, unless somebody emptied it
        uv(*install)
    uv("pip", "check", "--python", str(python))
    clean = {name: value for name, value in os.environ.items() if not name.startswith(("PYTHON", "ROLLBOOK_"))}
    told = subprocess.run(
        [python, CHECK, ROOT / "tests" / "data"], cwd=tmp_path, env=clean, capture_output=True, text=True, check=False
    )
    assert (told.returncode, told.stdout) == (0, "all is well\n"), told.stdout + told.stderr


def uv(*arguments: str, must: bool = True) -> int:
    done = subprocess.run([UV, *arguments], capture_output=True, text=True, check=False)
    assert not must or done.returncode == 0, done.stderr
    return done.returncode
