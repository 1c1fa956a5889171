"""The modules of the tree, read as text: names, sizes, first lines and imports. Nothing is imported."""

import ast
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import cache
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
PARTS = ("schemas", "producers", "processors", "replay", "infra", "tests")
PRODUCT = PARTS[:-1]


@dataclass(frozen=True, slots=True)
class Module:
    """One file. `imports` holds every module that it names, at its top or inside a function; `from a import b` counts
    as a and, where that is a module, as a.b."""

    name: str
    path: Path
    lines: int
    doc: str
    imports: frozenset[str]

    @property
    def place(self) -> str:
        """The file from the root of the tree."""
        return self.path.relative_to(ROOT).as_posix()

    @property
    def is_package(self) -> bool:
        return self.path.name == "__init__.py"

    @property
    def package(self) -> str:
        return self.name if self.is_package else self.name.rpartition(".")[0]


def paths(part: str) -> Iterator[Path]:
    """The files of a part."""
    yield from sorted(path for path in (ROOT / part).rglob("*.py") if "__pycache__" not in path.parts)


@cache
def modules() -> Mapping[str, Module]:
    """Every module by its name."""
    return {module.name: module for part in PARTS for module in map(_read, paths(part))}


def product() -> tuple[Module, ...]:
    """The modules that users install, those of the tests left out."""
    return tuple(one for one in modules().values() if one.name.split(".")[1] in PRODUCT)


def is_within(module: str, packages: tuple[str, ...]) -> bool:
    """Whether a module is one of these or lies in one."""
    return any(module == package or module.startswith(f"{package}.") for package in packages)


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
        if name in modules():
            waiting += [other for other in modules()[name].imports if other.startswith("rollbook.")]
    return frozenset(seen)


def _read(path: Path) -> Module:
    parts = path.relative_to(ROOT).with_suffix("").parts
    text = path.read_text(encoding="utf-8")
    tree = ast.parse(text)
    return Module(
        ".".join(("rollbook", *(parts[:-1] if parts[-1] == "__init__" else parts))),
        path,
        len(text.splitlines()),
        ast.get_docstring(tree) or "",
        frozenset(_imports(tree, path)),
    )


def _imports(tree: ast.Module, path: Path) -> Iterator[str]:
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            assert node.level == 0, f"{path}: relative imports hide which part is meant"
            yield str(node.module)
            yield from (f"{node.module}.{alias.name}" for alias in node.names)
