"""Small scope, all of it: the share that each run of the tests can afford; the whole is a command (`exhaustive.py`)."""

import pytest

from rollbook.tests.processors.proof.exhaustive import ALPHABET, STARTS, Search


@pytest.mark.parametrize("start", STARTS)
def test_four_records_that_change_something_in_every_order(start: str) -> None:
    search = Search(start, lean=True)
    search.go(4)
    assert len(search.seen) > 25


@pytest.mark.parametrize("start", STARTS)
def test_a_sample_of_all_sequences_of_five(start: str) -> None:
    assert Search(start, sample=15).go(5) > 700


def test_the_alphabet_covers_the_named_events() -> None:
    named = ("Generated", "RewardReady", "Reserve", "Commit", "Abort", "ActivationAck")
    assert len(ALPHABET) >= 12
    assert all(any(letter.startswith(event) for letter in ALPHABET) for event in named)
