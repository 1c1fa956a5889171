"""Every bundle of a folder, validated and replayed, against a table of verdicts; none left out.

`python -m rollbook.tests.replay.verdicts [FOLDER]` prints what came out of each. The table is `verdicts.json` in the
folder, {bundle: {"validate", "replay", "first"}}, or for the fixtures the one beside them.
"""

import json
import os
import sys
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from rollbook.replay.bundle.reading.cohort import read_cohort, validate
from rollbook.replay.engine.engine import replay_cohort
from rollbook.schemas.errors import RollbookError
from rollbook.tests.replay.reseal import FIXTURES

FOLDER = Path(os.environ.get("ROLLBOOK_BUNDLES") or FIXTURES)
TABLE = "verdicts.json"
OURS = FIXTURES.with_name(f"{FIXTURES.name}-{TABLE}")
REFUSED = "refused"


@dataclass(frozen=True, slots=True)
class Verdicts:
    """What validate and replay say of a bundle, and the stage, sample and token of the first divergence, if any."""

    validate: str
    replay: str
    first: str = ""

    def __str__(self) -> str:
        return f"{self.validate:8} {self.replay:12} {self.first}".rstrip()


@dataclass(frozen=True, slots=True)
class Row:
    """One bundle; `stated` is None where the table has nothing of it."""

    name: str
    found: Verdicts
    stated: Verdicts | None

    def __str__(self) -> str:
        said = "not in the table" if self.stated is None else "as stated" if self.holds else f"stated: {self.stated}"
        return f"{self.name:32} {self.found!s:60} {said}"

    @property
    def holds(self) -> bool:
        return self.stated == self.found


def rows(folder: Path = FOLDER) -> list[Row]:
    """A row for each folder within, and for each bundle that only the table names."""
    table = _table(folder)
    names = {path.name for path in folder.iterdir() if path.is_dir()} | table.keys()
    return [Row(name, verdicts_of(folder / name), table.get(name)) for name in sorted(names)]


def has_table(folder: Path = FOLDER) -> bool:
    return (folder / TABLE).exists() or folder == FIXTURES


def _table(folder: Path) -> Mapping[str, Verdicts]:
    if not has_table(folder):
        return {}
    path = folder / TABLE if (folder / TABLE).exists() else OURS
    return {name: Verdicts(**stated) for name, stated in json.loads(path.read_text()).items()}


def verdicts_of(bundle: Path) -> Verdicts:
    """Whatever is no answer of ours but a defect is raised."""
    try:
        valid = "valid" if validate(bundle).valid else "invalid"
    except RollbookError:
        valid = REFUSED
    try:
        report = replay_cohort(read_cohort(bundle))
    except RollbookError:
        return Verdicts(valid, REFUSED)
    first = report.first_divergence
    if first is None:
        return Verdicts(valid, report.verdict)
    place = (first.stage, first.point.sample_id, first.point.token_offset)
    return Verdicts(valid, report.verdict, " ".join(str(part) for part in place if part is not None))


def main() -> None:
    found = rows(Path(sys.argv[1]) if len(sys.argv) > 1 else FOLDER)
    print(*found, sep="\n")
    sys.exit(0 if all(row.holds for row in found) else 1)


if __name__ == "__main__":
    main()
