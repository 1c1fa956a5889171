"""Where a page may be kept, and keeping it: in place of an older one, and of nothing else."""

from pathlib import Path

from rollbook.replay.survivorship.page import START, page
from rollbook.replay.survivorship.result import SurvivorshipReport
from rollbook.replay.text import visible
from rollbook.replay.wholefile import replace_file
from rollbook.schemas.errors import BadInput, EnvironmentFault


def check_place(path: Path) -> None:
    """Before the report, which may take long: raises BadInput for a name that is no HTML page's, and for a place where
    something else than an older page would be lost; EnvironmentFault."""
    if path.suffix != ".html":
        raise BadInput(f"{visible(path)}: a report is a page: name it .html")
    try:
        if path.is_dir() or not path.parent.is_dir():
            raise BadInput(f"{visible(path)} is a folder, or lies in none: name a file in a folder that there is")
        if path.is_file() and path.stat().st_size:
            with path.open("rb") as file:
                if file.read(len(START)) != START.encode():
                    raise BadInput(
                        f"{visible(path)} is there already and is no page of a report: name another file, or remove it"
                    )
    except OSError as fault:
        raise _cannot_write(path, fault) from None


def keep(report: SurvivorshipReport, path: Path) -> None:
    """Write the page. Raises as `check_place`; what was there stays then."""
    check_place(path)
    try:
        replace_file(path, page(report))
    except OSError as fault:
        raise _cannot_write(path, fault) from None


def _cannot_write(path: Path, fault: OSError) -> EnvironmentFault:
    return EnvironmentFault(f"{visible(path)} cannot be written ({fault.strerror}): give another place")
