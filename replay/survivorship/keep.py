"""Where a page may be kept, and keeping it: in place of an older one, and of nothing else."""

from pathlib import Path

from rollbook.replay.survivorship.page import START, page
from rollbook.replay.survivorship.result import SurvivorshipReport
from rollbook.replay.wholefile import check_place, keep_page


def check_page(path: Path) -> None:
    """Before the report, which may take long: raises BadInput for a name that is no HTML page's, and for a place where
    something else than an older page would be lost; EnvironmentFault."""
    check_place(path, {".html": START}, "a report")


def keep(report: SurvivorshipReport, path: Path) -> None:
    """Write the page. Raises as `check_page`; what was there stays then."""
    check_page(path)
    keep_page(path, page(report))
