"""Temporary data directories, named after the process that owns them, and those that killed processes left behind."""

import re
import shutil
import time
from pathlib import Path
from tempfile import gettempdir, mkdtemp

from rollbook.infra.broker.config import NodeLayout
from rollbook.infra.broker.storage import is_in_use

_NAME = re.compile(r"rollbook-broker-(?P<pid>\d+)-.*")
# A directory is younger than this while its broker has not yet taken the lock that proves it alive.
_YOUNG_S = 120.0


def temporary_directory(pid: int) -> Path:
    """A new directory for the process; removes those whose process and broker are both gone."""
    for left in Path(gettempdir()).glob("rollbook-broker-*"):
        if _is_orphan(left):
            shutil.rmtree(left, ignore_errors=True)
    return Path(mkdtemp(prefix=f"rollbook-broker-{pid}-"))


def _is_orphan(path: Path) -> bool:
    match = _NAME.fullmatch(path.name)
    try:
        is_young = time.time() - path.stat().st_mtime < _YOUNG_S
    except OSError:
        return False
    owner_lives = match is None or Path(f"/proc/{match['pid']}").exists()
    return not (owner_lives or is_young or is_in_use(NodeLayout(path)))
