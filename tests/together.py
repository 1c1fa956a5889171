"""Which tests run in one worker: those of a module, and those that share a cluster, a browser, a built site or a wheel.

Workers of pytest-xdist take one test after the other from a common list. What lives longer than a test (a fixture, what
a module has read once, TRL, which takes seconds to import) each of them would make for itself.
"""

from collections.abc import Sequence
from typing import Any

import pytest

_EVERYBODYS = ("", "tests")
"""Whose fixtures count for nothing: pytest's own, and the session's broker, which all workers share already."""
_WIDE = ("session", "package")
_FIRST = (
    "tests/producers/trl",
    "tests/docs",
    "tests/install",
    "tests/processors/test_host.py",
    "tests/processors/test_handover.py",
    "tests/producers/",
    "tests/processors/test_race.py",
    "tests/processors/test_lost_markers.py",
    "tests/processors/dashboard/",
    "tests/infra/test_broker",
    "tests/infra/test_watch_terminal.py",
    "tests/soak",
    "tests/simulation",
    "tests/demo",
    "tests/processors/",
    "tests/infra/",
)
"""What takes long begins first: a long test that comes last is waited for by all but one."""
_AS_ONE = ("tests/producers/trl",)
"""Folders whose tests share what they import."""
_APART = (
    "tests/processors/test_host.py",
    "tests/processors/test_handover.py",
    "tests/processors/test_poison.py",
    "tests/processors/order/test_order.py",
    "tests/processors/proof/test_exhaustive.py",
    "tests/processors/proof/test_mutants.py",
    "tests/processors/dashboard/test_server_faults.py",
    "tests/infra/test_watch_terminal.py",
    "tests/infra/test_broker_daemon.py",
    "tests/infra/test_broker.py",
    "tests/test_bad_input.py",
)
"""Modules of a few long tests, which share nothing."""


def put_together(items: Sequence[pytest.Item]) -> None:
    """Mark them for the workers."""
    for item in items:
        group = _group(item)
        if group is not None:
            item.add_marker(pytest.mark.xdist_group(group))


def in_order(items: list[pytest.Item]) -> None:
    """Those that take long first."""
    items.sort(key=lambda item: next((at for at, one in enumerate(_FIRST) if _path(item).startswith(one)), len(_FIRST)))


def _group(item: pytest.Item) -> str | None:
    path = _path(item)
    whole = next((one for one in _AS_ONE if path.startswith(one)), None)
    if whole is not None:
        return whole
    shared = [one for one in _fixtures(item) if one.scope != "function" and one.baseid not in _EVERYBODYS]
    wide: list[str] = [one.baseid for one in shared if one.scope in _WIDE]
    if wide:
        return min(wide, key=len)
    return path if shared or path not in _APART else None


def _fixtures(item: pytest.Item) -> list[Any]:
    info = getattr(item, "_fixtureinfo", None)
    return [] if info is None else [found[-1] for found in info.name2fixturedefs.values()]


def _path(item: pytest.Item) -> str:
    return item.nodeid.partition("::")[0]
