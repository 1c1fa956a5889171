"""Which versions the locks name. What holds of these alone is asked of no other: `nox -s lowest` has the oldest."""

from importlib.metadata import version
from pathlib import Path

_LOCK = Path(__file__).resolve().parents[1] / "requirements" / "dev.lock"


def is_locked(name: str) -> bool:
    """Whether the version of a package that is installed is the locked one."""
    return f"\n{name}=={version(name).partition('+')[0]} " in _LOCK.read_text()
