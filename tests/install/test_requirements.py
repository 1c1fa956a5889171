"""The development environment is the lock, without a conflict; the lock says what is installed and not from where."""

import re
import subprocess
import sys
import tomllib

import pytest
from packaging.requirements import Requirement

from rollbook.tests.install.distributions import ROOT
from rollbook.tests.install.extras import EXTRAS
from rollbook.tests.install.licences import GROUPS

LOCKS = ("bootstrap.lock", "dev.lock")
WHOLE = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))
PROJECT = WHOLE["project"]


def test_pip_finds_nothing_wrong() -> None:
    done = subprocess.run([sys.executable, "-m", "pip", "check"], capture_output=True, text=True, check=False)
    assert (done.returncode, done.stdout) == (0, "No broken requirements found.\n")


@pytest.mark.parametrize("lock", LOCKS)
def test_a_lock_is_pins_and_hashes_and_names_no_index(lock: str) -> None:
    pin, digest = re.compile(r"[a-z0-9-]+==\S+( ; .+)? \\"), re.compile(r"    --hash=sha256:[0-9a-f]{64}( \\)?")
    lines = (ROOT / "requirements" / lock).read_text(encoding="utf-8").splitlines()
    assert [line for line in lines if not (line.startswith("#") or pin.fullmatch(line) or digest.fullmatch(line))] == []


def test_nothing_is_locked_against_what_a_package_asks_for() -> None:
    """No override: a user could not install what was tested."""
    assert "--override" not in (ROOT / "Makefile").read_text(encoding="utf-8")


def test_the_tables_of_the_tests_have_every_extra_and_group() -> None:
    assert EXTRAS.keys() == PROJECT["optional-dependencies"].keys()
    assert GROUPS.keys() == WHOLE["dependency-groups"].keys()


def test_every_dependency_of_users_has_a_lowest_version() -> None:
    """Which `nox -s lowest` installs."""
    extras = [text for name in EXTRAS for text in PROJECT["optional-dependencies"][name]]
    wanted = [Requirement(text) for text in PROJECT["dependencies"] + extras]
    assert [str(one) for one in wanted if not any(bound.operator == ">=" for bound in one.specifier)] == []
