"""A restart in the middle of a run: from the whole ledger topic, and from what compaction leaves of it."""

from collections.abc import Sequence

from rollbook.tests.processors.log import Log
from rollbook.tests.processors.proof import walks
from rollbook.tests.processors.state import Topic, all_rows, compacted, indexes, restored, write_changes


def check_rebuild(rolls: Sequence[bytes], stop: int, batch: int) -> None:
    """Fold a run in batches, restore after `stop` acts, and let both go on: same rows, indexes and bytes."""
    log = Log()
    walker = walks.begin(log, rolls[0])
    topic: Topic = []
    for at, one in enumerate(rolls[1:][:stop]):
        walks.step(walker, one)
        if at % batch == 0:
            write_changes(topic, log.ledger)
    write_changes(topic, log.ledger)
    whole = restored(topic, log.partition, log.topic_partitions)
    again = restored(compacted(topic), log.partition, log.topic_partitions)
    assert all_rows(whole) == all_rows(again) == all_rows(log.ledger)
    assert indexes(whole.run(walker.run_id)) == indexes(again.run(walker.run_id)) == indexes(walker.run)
    start = len(log.records)
    for one in rolls[1:][stop:]:
        walks.step(walker, one)
    assert [again.fold(record).encoded for record in log.records[start:]] == log.decisions[start:]
    assert sorted(again.changes()) == sorted(log.ledger.changes())
