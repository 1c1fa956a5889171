"""What stands in for programs that pages name and that are not run here: it looks at what they are given.

python -m rollbook.tests.docs.stand_ins make installs NOX_ARGS="-s lowest"
python -m rollbook.tests.docs.stand_ins python rollbook.tests.simulation.run --seeds 5

Exits as the program would at once: not at 0 where a target, an extra, a path, a module or an option is none.
"""

import argparse
import os
import re
import runpy
import shlex
import subprocess
import sys
import tomllib
from collections.abc import Callable, Mapping, Sequence
from importlib.util import find_spec
from pathlib import Path
from typing import Any

from rollbook.tests.docs.blocks import ROOT


def make(arguments: Sequence[str]) -> str | None:
    """The targets, and what `installs` hands on to nox."""
    done = subprocess.run(["make", "-n", *arguments], cwd=ROOT, capture_output=True, text=True, check=False)
    if done.returncode != 0:
        return done.stderr
    for name, _, value in (one.partition("=") for one in arguments):
        if name == "NOX_ARGS":
            listed = [str(Path(sys.executable).with_name("nox")), "--list", *shlex.split(value)]
            nox = subprocess.run(listed, cwd=ROOT, capture_output=True, text=True, check=False)
            if nox.returncode != 0:
                return nox.stderr
    return None


def pip(arguments: Sequence[str]) -> str | None:
    """The extras of what is ours."""
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    for one in arguments:
        ours = re.fullmatch(r"(?:rollbook|\.)\[([^\]]*)\].*", one)
        unknown = {extra.strip() for extra in ours[1].split(",")} - {*project["optional-dependencies"]} if ours else ()
        if unknown:
            return f"{one}: no extra {', '.join(sorted(unknown))}"
    return None


def pytest(arguments: Sequence[str]) -> str | None:
    """The paths of tests."""
    missing = [one for one in arguments if one.startswith("tests/") and not (ROOT / one.partition("::")[0]).exists()]
    return f"no {', '.join(missing)}" if missing else None


def python(arguments: Sequence[str]) -> str | None:
    """A programme of the tests, until it has read its options; one that has none is only looked for."""
    name, *rest = arguments
    try:
        spec = find_spec(f"{name}.__main__" if _is_package(name) else name)
    except ModuleNotFoundError:
        spec = None
    if spec is None or spec.origin is None:
        return f"no module {name}"
    if "argparse" in Path(spec.origin).read_text(encoding="utf-8"):
        _end_behind_options()
        sys.argv = [name, *rest]
        runpy.run_module(name, run_name="__main__", alter_sys=True)
        return f"{name} reads no options"
    return None


def _is_package(name: str) -> bool:
    spec = find_spec(name)
    return spec is not None and spec.submodule_search_locations is not None


def _end_behind_options() -> None:
    read = argparse.ArgumentParser.parse_args

    def parse_args(self: argparse.ArgumentParser, *given: Any, **named: Any) -> None:
        read(self, *given, **named)
        os._exit(0)

    argparse.ArgumentParser.parse_args = parse_args  # type: ignore[method-assign,assignment]


CHECKED: Mapping[str, Callable[[Sequence[str]], str | None]] = {
    "make": make,
    "pip": pip,
    "pytest": pytest,
    "python": python,
}

if __name__ == "__main__":
    sys.exit(CHECKED[sys.argv[1]](sys.argv[2:]))
