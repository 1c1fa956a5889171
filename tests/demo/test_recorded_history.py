"""A demo's run as it was recorded gives the same decisions for ever, byte for byte."""

from rollbook.processors.ledger.fold import Ledger
from rollbook.tests.demo.recorded import read_history


def test_the_recorded_decisions_come_out_again() -> None:
    history = read_history()
    ledger = Ledger(history.partition, history.topic_partitions)
    folded = [ledger.fold(record).encoded for record in history.records]
    assert len(folded) > 1000
    for offset, (again, recorded) in enumerate(zip(folded, history.decisions, strict=True)):
        assert again == recorded, f"offset {offset} is decided otherwise than recorded, which it never may be"
