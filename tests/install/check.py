"""Whether an installed rollbook works: run by the Python of a fresh environment, which has no test tools.

    python check.py DATA [EXTRA,...]

DATA is `tests/data`, EXTRA what was installed beside the core. Says what is wrong, a line each; exits with 1 if
anything is. It is one file with the table beside it, and imports nothing of the checkout.
"""

import importlib
import pkgutil
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from importlib.metadata import version
from pathlib import Path

from extras import DEVELOPERS, EXTRAS  # type: ignore[import-not-found]  # lies beside this file

ROLLBOOK = Path(sys.executable).with_name("rollbook")
ENVIRONMENT = 3
_FEWEST_MODULES = 400


def main(data: Path, present: frozenset[str]) -> Iterator[str]:
    """Every fault found. `present`: the packages that the extras are there for."""
    yield from imports(present)
    yield from command_line(data, present)
    yield from small_round(data)


def imports(present: frozenset[str]) -> Iterator[str]:
    """Every module of the wheel can be imported, but for those that need what is not installed."""
    import rollbook

    here = Path(sys.prefix).resolve()
    if any(here not in Path(part).resolve().parents for part in rollbook.__path__):
        yield f"rollbook comes from {list(rollbook.__path__)}, not from this environment"
    count = 0
    for found in pkgutil.walk_packages(rollbook.__path__, "rollbook."):
        count += 1
        if found.name.endswith("__main__"):
            continue
        try:
            importlib.import_module(found.name)
        except ModuleNotFoundError as missing:
            package = str(missing.name).partition(".")[0]
            if DEVELOPERS.get(found.name) == package:
                continue
            if package in present or not _may_need(found.name, package):
                yield f"{found.name} cannot be imported: {missing}"
    if count < _FEWEST_MODULES:
        yield f"only {count} modules are installed"


def _may_need(module: str, package: str) -> bool:
    return any(
        package in extra.modules and any(module == part or module.startswith(f"{part}.") for part in extra.needs)
        for extra in EXTRAS.values()
    )


def command_line(data: Path, present: frozenset[str]) -> Iterator[str]:
    """Help and version work; a command of an extra that is missing says in one line which one to install."""
    told = run("--version")
    if told.returncode or told.stdout.split()[:2] != ["rollbook", version("rollbook")]:
        yield f"--version: {told}"
    told = run("--help")
    if told.returncode or "Usage" not in told.stdout or told.stderr:
        yield f"--help: {told}"
    with tempfile.TemporaryDirectory() as folder:
        places = {"bundle": str(_bundle(data, Path(folder))), "folder": folder}
        for name, extra in EXTRAS.items():
            if extra.command is None or present.intersection(extra.modules) or name == "trl":
                continue
            told = run(*(word.format(**places) for word in extra.command))
            lines = told.stderr.strip().splitlines()
            if told.returncode != ENVIRONMENT or len(lines) != 1 or f"rollbook[{name}]" not in lines[0]:
                yield f"`rollbook {' '.join(extra.command)}` without the extra {name}: {told}"


def small_round(data: Path) -> Iterator[str]:
    """A record there and back; a recorded history folded again; a bundle recomputed."""
    from rollbook.schemas.codec import decode, encode
    from rollbook.schemas.records.common import PolicyRef
    from rollbook.schemas.records.ledger import Position

    record = Position(next_offset=7, transactional_id="instance-0")
    if decode(encode(record)) != record:
        yield f"{record} is not what was encoded"
    if PolicyRef(version=1, artifact_hash="a").version != 1:
        yield "a policy's version is lost"
    told = run("audit", str(data / "archives" / "exported" / "run.avro"))
    if told.returncode:
        yield f"audit: {told}"
    with tempfile.TemporaryDirectory() as folder:
        told = run("replay", str(_bundle(data, Path(folder))))
    if told.returncode:
        yield f"replay: {told}"


def _bundle(data: Path, folder: Path) -> Path:
    target = folder / "bundle"
    if not target.exists():
        shutil.copytree(data / "bundles-1.0.0" / "full-k1", target)
    return target


def run(*arguments: str) -> "subprocess.CompletedProcess[str]":
    return subprocess.run([ROLLBOOK, *arguments], capture_output=True, text=True, timeout=120, check=False)


if __name__ == "__main__":
    asked = "".join(sys.argv[2:]).split(",")
    faults = list(
        main(Path(sys.argv[1]), frozenset(name for extra in asked if extra for name in EXTRAS[extra].modules))
    )
    print("\n".join(faults) or "all is well")
    sys.exit(bool(faults))
