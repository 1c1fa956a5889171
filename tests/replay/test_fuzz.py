"""A share of the fuzzing programme: every field once, and each kind of damage a few hundred times."""

import pytest
from hypothesis import strategies as st

from rollbook.tests.replay import fuzz

# A whole file's worth in seconds: fields of the first sample and the first contract stand for the others'.
SHORT = [
    (name, path)
    for name, path in fuzz.FIELDS
    if not (path[0] == "samples" and len(path) > 1 and path[1] != 0)
    and not (path[0] in ("stage_contracts", "payloads") and len(path) > 1 and path[1] not in ("loss.policy", "kl"))
]
ODD = [fuzz.GONE, None, True, "x", [], -1]


def test_every_field_is_refused_or_accepted_whatever_it_holds() -> None:
    found = [fuzz.check_field(place, ODD[at % len(ODD)]) for at, place in enumerate(SHORT)]
    assert len(found) > 100
    assert 0 < sum(found) < len(found) / 2


@pytest.mark.parametrize("case", fuzz.CASES, ids=[case[0] for case in fuzz.CASES])
def test_a_share_of_the_programme(case: fuzz.Case) -> None:
    tried, accepted = fuzz.run(case, 400 if case[0].startswith("payload") else 60)
    assert tried >= 20
    assert accepted < tried


def test_the_programme_notices_what_must_not_happen() -> None:
    """Reading elsewhere, or a traceback: else it could not fail."""
    with pytest.raises(AssertionError, match="opened '/etc/hostname'"), fuzz.watched(fuzz.ONE), open("/etc/hostname"):  # noqa: PTH123
        pass
    with pytest.raises(AssertionError, match=r"pickle\.find_class"), fuzz.watched(fuzz.ONE):
        __import__("pickle").loads(b"cbuiltins\nlen\n.")
    with pytest.raises(ZeroDivisionError):
        fuzz.run(("division", st.just(0), lambda zero: bool(1 / zero)), 1)
