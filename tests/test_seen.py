"""The message of a wait in vain."""

import pytest

from rollbook.tests.processors.test_host import _await
from rollbook.tests.seen import last_seen


def test_what_is_compared_is_said() -> None:
    found = [1, 2]
    assert last_seen(lambda: len(found) == 3) == "len(found) == 3, and is 2"
    assert last_seen(lambda found=found: sorted(found) > [9]) == "sorted(found) > [9], and is [1, 2]"  # type: ignore[misc]


def test_what_compares_nothing_is_named() -> None:
    def ready() -> bool:
        return False

    found = [1]
    assert last_seen(ready) == "ready"
    assert last_seen(lambda: bool(found)) == "bool(found)"
    assert last_seen([].__len__) == "__len__"  # type: ignore[arg-type]
    assert last_seen(lambda: found[7] == 1).startswith("found[7] == 1, and is not to be had (IndexError")


def test_a_wait_in_vain_says_what_it_saw() -> None:
    with pytest.raises(AssertionError, match=r"waited 0 s for len\(\[1\]\) == 2, and is 1"):
        _await(lambda: len([1]) == 2, seconds=0)
