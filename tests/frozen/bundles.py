"""Recorded bundles: their bytes, and what validation and replay say of them.

All below `tests/data/bundles-*` are taken, so that none is forgotten.
"""

from collections.abc import Callable, Mapping
from functools import partial
from pathlib import Path

from rollbook.replay.bundle.reading.cohort import read_cohort, validate
from rollbook.replay.engine.engine import replay_cohort
from rollbook.schemas.errors import RollbookError
from rollbook.tests.frozen.reports import digest_of, stages_of
from rollbook.tests.frozen.table import Entry, Table

DATA = Path(__file__).parents[1] / "data"


def names() -> tuple[str, ...]:
    """All that were ever recorded."""
    folders = (path for path in DATA.glob("bundles-*/*") if path.is_dir())
    return tuple(sorted(path.relative_to(DATA).as_posix() for path in folders))


def frozen(name: str) -> Entry:
    """What must come out again."""
    path = DATA / name
    problems = [f"{one.file} {one.field or ''}".strip() for one in validate(path).problems]
    return {"files": digest_of(path), "problems": problems, "replay": _replayed(path)}


def _replayed(path: Path) -> Entry:
    try:
        return stages_of(replay_cohort(read_cohort(path)))
    except RollbookError as refused:
        return {"refused": type(refused).__name__}


def bundles() -> Mapping[str, Callable[[], Entry]]:
    return {name: partial(frozen, name) for name in names()}


BUNDLES = Table("bundles", bundles)
