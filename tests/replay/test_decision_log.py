"""The decision of a record is found wherever it lies, and the better the more was read before."""

import random
from collections.abc import Iterator

import pytest

from rollbook.replay.history.decisions import DecisionLog
from rollbook.replay.history.source import StoredRecord
from rollbook.schemas.codec import encode
from rollbook.schemas.records.decision import Decision, Outcome, SourcePosition
from rollbook.tests.replay.memory_log import MemoryLog

DIGEST = "0" * 64


class CountingLog(MemoryLog):
    """Counts how often a read begins: each costs a jump."""

    jumps = 0

    def read(self, topic: str, partition: int, start: int, end: int) -> Iterator[StoredRecord]:
        self.jumps += 1
        return super().read(topic, partition, start, end)


def written(records: int, seed: int) -> CountingLog:
    """Decisions of that many records, in transactions of any size; some offsets of the source are gaps, too."""
    log, chance, source = CountingLog(), random.Random(seed), 0
    for sequence in range(1, records + 1):
        source += 1 if chance.random() < 0.9 else chance.randint(1, 40)
        position = SourcePosition(partition=0, offset=source, sha256=DIGEST)
        decision = Decision(
            run_id="r", sequence=sequence, source=position, record_type="Commit", event_id="e",
            outcome=Outcome.ACCEPTED, reason="ok", config_version=1, fold_version=1, chain=DIGEST,
        )  # fmt: skip
        log.append("decisions", 0, b"r", encode(decision))
        if chance.random() < 0.3:
            log.marker("decisions", 0)
    return log


@pytest.mark.parametrize("seed", range(4))
@pytest.mark.parametrize("records", [0, 1, 30, 1_500])
@pytest.mark.parametrize("known", [False, True])
def test_the_decision_of_any_record_is_found(records: int, seed: int, known: bool) -> None:
    log = written(records, seed) if records else CountingLog()
    if not records:
        log.append("decisions", 0, b"r", b"")
        log.lose("decisions", 0, below=1)
    decisions = DecisionLog(log, "decisions", 0)
    plain = [(found.decision.source.offset, found.stored.offset) for found in DecisionLog(log, "decisions", 0).read()]
    if known:
        list(decisions.read())
    chance = random.Random(seed)
    for wanted in [0, *(chance.randint(0, 2 * records) for _ in range(60)), 10**9]:
        first = next((offset for source, offset in plain if source >= wanted), decisions.bounds.end)
        assert decisions.locate(wanted) == first
    asked = chance.sample(range(2 * records + 1), min(20, records))
    assert [found.decision.source.offset for found in decisions.of(asked)] == sorted(
        {source for source, _ in plain} & set(asked)
    )


def test_what_was_read_before_saves_the_search() -> None:
    log = written(20_000, seed=0)
    decisions = DecisionLog(log, "decisions", 0)

    def jumps_for(*offsets: int) -> int:
        before = log.jumps
        for offset in offsets:
            decisions.locate(offset)
        return log.jumps - before

    assert jumps_for(12_345) > 5
    assert jumps_for(12_345, 12_350) == 2, "one each: its neighbours are known"
    list(decisions.read())
    assert jumps_for(*range(0, 20_000, 1_000)) == 20, "one each, wherever it lies"
