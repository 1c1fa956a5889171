"""The layout, checked: what a folder may import, and that the wheel is the tree."""

import ast
import os
import subprocess
import sys
import zipfile
from collections.abc import Iterator
from functools import cache
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[1]
PARTS = ("schemas", "producers", "processors", "replay", "infra", "tests")
SETTINGS_LEAF = "rollbook.infra.settings"

# What a part may import of rollbook. Of the processors, producers and replay may have what is pure.
ALLOWED = {
    "schemas": ("rollbook.schemas", SETTINGS_LEAF),
    "producers": ("rollbook.producers", "rollbook.schemas", "rollbook.processors", SETTINGS_LEAF),
    "processors": ("rollbook.processors", "rollbook.schemas", SETTINGS_LEAF),
    "replay": ("rollbook.replay", "rollbook.schemas", "rollbook.processors", SETTINGS_LEAF),
    "infra": ("rollbook",),
    "tests": ("rollbook",),
}
# A rule or a fold that imports one of these is not a function of the log alone.
IMPURE = ("confluent_kafka", "typer", "rich", "socket", "subprocess", "threading", "time", "random", "uuid", "os")
NO_TORCH = ("schemas", "producers", "processors", "replay")


def modules(part: str) -> Iterator[Path]:
    yield from sorted(path for path in (ROOT / part).rglob("*.py") if "__pycache__" not in path.parts)


def name_of(path: Path) -> str:
    parts = path.relative_to(ROOT).with_suffix("").parts
    return ".".join(("rollbook", *(parts[:-1] if parts[-1] == "__init__" else parts)))


@cache
def imports_of(path: Path) -> frozenset[str]:
    """Every module that the file imports, at its top or inside a function; `from a import b` counts as a and a.b."""
    found: set[str] = set()
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        if isinstance(node, ast.Import):
            found.update(alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            assert node.level == 0, f"{path}: relative imports hide which part is meant"
            found.update((str(node.module), *(f"{node.module}.{alias.name}" for alias in node.names)))
    return frozenset(found)


def is_within(module: str, packages: tuple[str, ...]) -> bool:
    return any(module == package or module.startswith(f"{package}.") for package in packages)


@cache
def files_by_name() -> dict[str, Path]:
    return {name_of(path): path for part in PARTS for path in modules(part)}


def closure(names: frozenset[str]) -> frozenset[str]:
    """The names and all that their modules import of rollbook, with the packages on the way (they run as well)."""
    seen: set[str] = set()
    waiting = [name for name in names if name.startswith("rollbook.")]
    while waiting:
        name = waiting.pop()
        package = name.rpartition(".")[0]
        if name in seen or package == "":
            continue
        seen.add(name)
        waiting.append(package)
        if name in files_by_name():
            waiting += [other for other in imports_of(files_by_name()[name]) if other.startswith("rollbook.")]
    return frozenset(seen)


@pytest.mark.parametrize("part", PARTS)
def test_a_part_imports_only_what_lies_below_it(part: str) -> None:
    wrong = [
        f"{path.relative_to(ROOT)} imports {name}"
        for path in modules(part)
        for name in sorted(imports_of(path))
        if name.startswith("rollbook.") and not is_within(name, ALLOWED[part])
    ]
    assert wrong == []


def test_the_settings_leaf_leans_on_the_errors_alone() -> None:
    leaned = {name for name in imports_of(ROOT / "infra" / "settings.py") if name.startswith("rollbook.")}
    assert {name for name in leaned if not is_within(name, ("rollbook.schemas.errors",))} == set()


@pytest.mark.parametrize("part", ["producers", "replay"])
def test_clients_and_replay_take_only_what_is_pure_of_the_processors(part: str) -> None:
    wrong = []
    for path in modules(part):
        taken = frozenset(name for name in imports_of(path) if is_within(name, ("rollbook.processors",)))
        for name in sorted(closure(taken) & files_by_name().keys()):
            if is_within(name, ("rollbook.processors",)):
                impure = [other for other in imports_of(files_by_name()[name]) if is_within(other, IMPURE)]
                wrong += [f"{path.relative_to(ROOT)} -> {name} -> {other}" for other in impure]
    assert wrong == []


@pytest.mark.parametrize("part", NO_TORCH)
def test_no_part_but_the_demo_imports_torch(part: str) -> None:
    assert [str(path) for path in modules(part) if any(is_within(name, ("torch",)) for name in imports_of(path))] == []
    assert [
        str(path)
        for path in modules("infra")
        if "demo" not in path.parts and any(is_within(name, ("torch",)) for name in imports_of(path))
    ] == []


@pytest.mark.parametrize("part", PARTS)
def test_each_part_is_typed_and_linked(part: str) -> None:
    assert (ROOT / part / "py.typed").exists()
    assert (ROOT / "links" / "rollbook" / part).resolve() == ROOT / part
    assert not (ROOT / "links" / "rollbook" / "__init__.py").exists()


@pytest.fixture(scope="module")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The wheel, built without a network and without isolation."""
    folder = tmp_path_factory.mktemp("wheel")
    subprocess.run(
        [sys.executable, "-m", "hatchling", "build", "-t", "wheel", "-d", str(folder)],
        cwd=ROOT,
        check=True,
        capture_output=True,
    )
    (built,) = folder.glob("rollbook-*.whl")
    return built


def test_the_wheel_holds_the_tree_and_nothing_else(wheel: Path) -> None:
    """By git's list, ignored files left out: a new data file cannot be forgotten, nor a cache shipped."""
    listed = subprocess.run(
        ["git", "ls-files", "-z", "--cached", "--others", "--exclude-standard", *PARTS],
        cwd=ROOT,
        check=True,
        capture_output=True,
        text=True,
    ).stdout.split("\0")
    tree = {f"rollbook/{name}" for name in listed if name and (ROOT / name).exists()}
    with zipfile.ZipFile(wheel) as archive:
        held = {name for name in archive.namelist() if ".dist-info/" not in name}
    assert held == tree


def test_the_wheel_works_without_the_checkout(wheel: Path, tmp_path: Path) -> None:
    with zipfile.ZipFile(wheel) as archive:
        archive.extractall(tmp_path)
    script = (
        "import rollbook.schemas, rollbook.producers, rollbook.processors, rollbook.replay, rollbook.infra, sys\n"
        "parts = [rollbook.schemas, rollbook.producers, rollbook.processors, rollbook.replay, rollbook.infra]\n"
        "print(*[part.__file__ for part in parts], sep='\\n')\n"
        "from rollbook.infra.broker.lock import read_lock; print(read_lock().version)\n"
        "from rollbook.infra.cli import run; sys.exit(run(['--version']))"
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
    assert files == [str(tmp_path / "rollbook" / part / "__init__.py") for part in PARTS[:-1]]
    assert kafka.startswith("4.")
    assert version.startswith("rollbook ")
