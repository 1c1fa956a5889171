"""Recorded histories of every record type fold to the bytes that they once folded to."""

import pytest

from rollbook.processors.ledger.fold import HANDLERS
from rollbook.schemas.records.common import Lifecycle
from rollbook.schemas.records.run import RunConfigured
from rollbook.tests.processors.proof import recorded

NAMES = ("every-record", *recorded.WALKS)


@pytest.mark.parametrize("name", NAMES)
def test_a_recorded_history_folds_to_the_same_bytes(name: str) -> None:
    log, decisions = recorded.read(name)
    assert len(decisions) > 50
    for got, expected in zip(log.folded, decisions, strict=True):
        assert got.encoded == expected, f"{name} at {got.decision.source.offset}: {got.decision.record_type}"


def test_every_record_type_is_in_them_and_is_accepted() -> None:
    log, _ = recorded.read("every-record")
    accepted = {one.decision.record_type for one in log.folded if one.decision.outcome == "accepted"}
    every: tuple[type[Lifecycle], ...] = (RunConfigured, *HANDLERS)
    assert accepted == {model.__name__ for model in every}


def test_the_scripted_history_is_what_the_command_writes() -> None:
    log, (kept, decisions) = recorded.every_record(), recorded.read("every-record")
    assert [record.value for record in kept.records] == [record.value for record in log.records]
    assert decisions == log.decisions
