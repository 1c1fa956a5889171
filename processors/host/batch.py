"""One batch: records of several partitions, folded, with all that the transaction has to write."""

from collections import deque
from dataclasses import dataclass, field

from confluent_kafka import Message

from rollbook.processors.host.clock import Clock
from rollbook.processors.ledger.fold import Folded, Ledger, SourceRecord

MAX_RECORDS = 5_000
MAX_BYTES = 8 * 1024 * 1024
MAX_FOLD_S = 0.050
BEHIND = 500
"""Where so many records wait the host is behind, and who waits for a decision waits for those before it."""
BEHIND_FOLD_S = 0.250
"""Then a transaction, of which the end must be waited for, holds more, and what changes again is written once."""
MOST_CHANGES = 10_000
"""Changes of rows with which a batch ends all the same: half of those for which a transaction gets another time-out,
and with it a new producer. That costs more than a larger batch saves."""


@dataclass(frozen=True, slots=True)
class Failure:
    """A record that the fold cannot decide, and why."""

    partition: int
    offset: int
    error: BaseException


@dataclass(slots=True)
class Batch:
    """What was folded, in order, and where each partition stands after it."""

    folded: list[tuple[Message, Folded]] = field(default_factory=list)
    next_offsets: dict[int, int] = field(default_factory=dict)
    size: int = 0
    seconds: float = 0.0
    """What the folding took, and how it is shared among the runs."""
    run_seconds: dict[str, float] = field(default_factory=dict)
    failure: Failure | None = None
    """A record that could not be folded ends the batch: what came before it is committed, then the partition stops."""


def fold_batch(waiting: "deque[Message]", ledgers: dict[int, Ledger], clock: Clock) -> Batch:
    """Fold waiting records into the ledgers' journals, up to the limits of a batch; the rest goes on waiting."""
    batch = Batch()
    began = now = clock.monotonic()
    longest = BEHIND_FOLD_S if len(waiting) > BEHIND else MAX_FOLD_S
    changes = 0
    while waiting and len(batch.folded) < MAX_RECORDS:
        message = waiting[0]
        value = message.value() or b""
        if batch.folded and (batch.size + len(value) > MAX_BYTES or now - began > longest or changes > MOST_CHANGES):
            break
        partition, offset = message.partition(), message.offset()
        assert partition is not None, "a consumed record has a partition"
        assert offset is not None, "a consumed record has an offset"
        key = message.key()
        record = SourceRecord(partition, offset, key.encode() if isinstance(key, str) else key, message.value())
        ledger = ledgers[partition]
        mark = ledger.journal.mark()
        try:
            folded = ledger.fold(record)
        except Exception as error:
            batch.failure = Failure(partition, offset, error)
            break
        waiting.popleft()
        batch.folded.append((message, folded))
        batch.next_offsets[partition] = offset + 1
        batch.size += len(value)
        changes += ledger.journal.mark() - mark
        before, now = now, clock.monotonic()
        run_id = folded.decision.run_id
        batch.run_seconds[run_id] = batch.run_seconds.get(run_id, 0.0) + now - before
    batch.seconds = now - began
    return batch
