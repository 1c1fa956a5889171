"""Every recorded case of a folder, put through the recomputation: passed, unsupported or failed, none left out.

`python -m rollbook.tests.replay.goldens.tally [FOLDER]` prints the table.
"""

import os
import sys
from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass, field
from itertools import groupby
from pathlib import Path
from typing import Any

import numpy as np
import torch

from rollbook.tests.replay.goldens import areal, openrlhf, skyrl, slime, trl, verl
from rollbook.tests.replay.goldens.case import Adapter, case_of, read
from rollbook.tests.replay.goldens.compare import Widths, differences

OURS = Path(__file__).parents[2] / "data" / "goldens"
FOLDER = Path(os.environ.get("ROLLBOOK_GOLDENS") or OURS)
LIBRARIES: Mapping[str, Any] = {
    "verl": verl,
    "skyrl": skyrl,
    "slime": slime,
    "areal": areal,
    "openrlhf": openrlhf,
    "trl": trl,
}


@dataclass(slots=True)
class Row:
    """One function of one library."""

    library: str
    function: str
    passed: int = 0
    unsupported: int = 0
    reason: str = ""
    failures: list[str] = field(default_factory=list)

    def __str__(self) -> str:
        reason = f"  ({self.reason})" if self.reason else ""
        counts = f"{self.passed:5} passed {self.unsupported:5} unsupported {len(self.failures):5} failed"
        return f"{self.library:38} {self.function:50} {counts}{reason}"


def files(folder: Path = FOLDER) -> list[Path]:
    return sorted(folder.glob("*.json.gz"))


def rows(path: Path) -> Iterator[Row]:
    """A row for each function of a file of cases."""
    name, _, version = path.name.removesuffix(".json.gz").partition("-")
    library = f"{name} {version}"
    if name not in LIBRARIES:
        yield Row(library, "?", failures=["nothing is known of this library"])
        return
    module = LIBRARIES[name]
    recorded = read(path)
    cases = recorded if isinstance(recorded, list) else module.cases(recorded)
    for function, of_function in groupby(sorted(cases, key=lambda raw: str(raw["function"])), _function):
        yield row(library, function, list(of_function), module)


def _function(raw: Mapping[str, Any]) -> str:
    return str(raw["function"])


def row(library: str, function: str, cases: list[Mapping[str, Any]], module: Any) -> Row:
    if function in module.UNSUPPORTED:
        return Row(library, function, unsupported=len(cases), reason=module.UNSUPPORTED[function])
    ignored = module.IGNORED.get(function, {})
    reason = "; ".join(f"{output}: {why}" for output, why in ignored.items())
    found = Row(library, function, reason=reason and f"not compared: {reason}")
    adapter = module.ADAPTERS.get(function)
    for raw in cases:
        lines = ["no such function is known"] if adapter is None else failures(raw, adapter, ignored)
        found.passed += not lines
        found.failures += [f"{raw['id']}: {'; '.join(lines)}"] if lines else []
    return found


def failures(raw: Mapping[str, Any], adapter: Adapter, ignored: Collection[str] = ()) -> list[str]:
    """What differs on numpy or on torch. A case that cannot be computed at all differs, too."""
    lines = []
    of_torch = Widths(case_of(raw, torch), case_of(raw, torch, np.float32))
    of_numpy = Widths(case_of(raw, np), case_of(raw, np, np.float32))
    for name, cases, peers in (("numpy", of_numpy, of_torch), ("torch", of_torch, None)):
        try:
            with np.errstate(all="ignore"):
                found = differences(cases, adapter, ignored, peers)
        except Exception as error:
            found = [f"{type(error).__name__}: {error}"]
        lines += [f"{name}: {line}" for line in found]
    return lines


def main() -> None:
    folder = Path(sys.argv[1]) if len(sys.argv) > 1 else FOLDER
    failed = 0
    for path in files(folder):
        for found in rows(path):
            print(found)
            failed += len(found.failures)
            for line in found.failures:
                print(f"    {line}")
    sys.exit(1 if failed else 0)


if __name__ == "__main__":
    main()
