"""The tests as plain calls: most mutants die of the first few, in a fraction of a second and without a test runner."""

import copy
import importlib
import inspect
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import partial
from itertools import product
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

from rollbook.tests.processors.proof import exhaustive, walks
from rollbook.tests.processors.proof.compare import ProvenLog

HERE = Path(__file__).parent
MODULES = (
    *("test_rules", "test_lifecycle", "test_room"),
    *(f"proof.{name}" for name in ("test_counterexamples", "test_found", "test_corners", "test_bounds", "test_table")),
    *sorted(path.stem for path in HERE.parent.glob("test_fold_*.py")),
    *("test_identity", "test_hostile", "test_hard_cases"),
)
DEPTH, WALKS = 3, 20


@dataclass(frozen=True, slots=True)
class Check:
    """A call that raises when what it looks at is wrong."""

    name: str
    run: Callable[[], object]

    @property
    def source(self) -> str:
        """The file, or the search, that it comes from."""
        return self.name.split("::")[0]


def checks() -> list[Check]:
    """Tests that need no more than their parameters, then short searches."""
    found = [check for name in MODULES for check in _of_module(name)]
    found += [Check(f"exhaustive::{start}", partial(_search, start)) for start in exhaustive.STARTS]
    return [*found, *(Check(f"walk::{seed}", partial(_walk, seed)) for seed in range(WALKS))]


def _search(start: str) -> None:
    exhaustive.Search(start, lean=True).go(DEPTH)


def _walk(seed: int) -> None:
    walks.run(ProvenLog(), walks.deep(seed))


def _of_module(name: str) -> Iterator[Check]:
    module = importlib.import_module(f"rollbook.tests.processors.{name}")
    for test in _tests(module):
        wanted = set(inspect.signature(test).parameters) - {"monkeypatch"}
        for given in _parameters(test):
            if wanted == given.keys():  # another fixture: left to the test runner
                yield Check(f"{name}::{test.__name__}{list(given.values()) or ''}", partial(_call, test, given))


def _tests(module: ModuleType) -> list[Callable[..., object]]:
    named = [getattr(module, attribute) for attribute in vars(module) if attribute.startswith("test_")]
    return [test for test in named if inspect.isfunction(test) and not hasattr(test, "hypothesis")]


def _parameters(test: Callable[..., object]) -> Iterator[dict[str, Any]]:
    """The arguments of each of its cases."""
    axes: list[list[dict[str, Any]]] = []
    for mark in getattr(test, "pytestmark", []):
        if mark.name == "parametrize":
            names, cases = mark.args[0], mark.args[1]
            several = not isinstance(names, str) or "," in names
            names = [name.strip() for name in names.split(",")] if isinstance(names, str) else names
            rows = [getattr(case, "values", case) if several else (case,) for case in cases]
            axes.append([dict(zip(names, row, strict=True)) for row in rows])
    for chosen in product(*axes):
        yield {name: value for one in chosen for name, value in one.items()}


def _call(test: Callable[..., object], given: dict[str, Any]) -> None:
    own = copy.deepcopy(given)  # a test may change what it is given, and is called for the next mutant again
    if "monkeypatch" in inspect.signature(test).parameters:
        with pytest.MonkeyPatch.context() as patch:
            test(**own, monkeypatch=patch)
    else:
        test(**own)
