"""What takes long and is told by a share of it: whole where ROLLBOOK_NIGHTLY is set, as it is every night."""

import os
from typing import TypeVar

import pytest

T = TypeVar("T")

NIGHTLY = bool(os.environ.get("ROLLBOOK_NIGHTLY"))


def nightly(reason: str) -> pytest.MarkDecorator:
    """A test of which another one tells most."""
    return pytest.mark.skipif(not NIGHTLY, reason=f"one of the nightly tests ({reason}): set ROLLBOOK_NIGHTLY=1")


def often(each_time: T, each_night: T) -> T:
    """How much of it, or which cases."""
    return each_night if NIGHTLY else each_time
