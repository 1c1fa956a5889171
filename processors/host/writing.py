"""What a transaction writes for a batch: positions, decisions, dead letters, ledger rows and freshness."""

import hashlib
from collections.abc import Mapping, Sequence

from confluent_kafka import Message

from rollbook.infra.settings import Settings, Topic
from rollbook.processors.freshness import snapshot
from rollbook.processors.host.batch import Batch
from rollbook.processors.host.transaction import Transactions
from rollbook.processors.ledger.fold import Ledger
from rollbook.processors.ledger.keys import position_key
from rollbook.schemas.codec import encode
from rollbook.schemas.records.decision import DeadLetter
from rollbook.schemas.records.ledger import Position

Changes = Mapping[int, Sequence[tuple[bytes, bytes | None]]]
"""Rows of the ledger topic by partition; None removes a key."""


def write(out: Transactions, settings: Settings, ledgers: Mapping[int, Ledger], batch: Batch, changes: Changes) -> None:
    """All of it, into the open transaction."""
    decisions, ledger = settings.topic(Topic.DECISIONS), settings.topic(Topic.LEDGER)
    for partition, next_offset in batch.next_offsets.items():
        position = Position(next_offset=next_offset, transactional_id=out.name)
        out.produce(ledger, partition, position_key(partition), encode(position))
    for message, folded in batch.folded:
        key = folded.decision.run_id.encode()
        out.produce(decisions, folded.decision.source.partition, key, folded.encoded, timestamp=message.timestamp()[1])
        if folded.undecodable is not None:
            _dead_letter(out, settings, message, folded.undecodable)
    for partition, changed in changes.items():
        for row, value in changed:
            out.produce(ledger, partition, row, value)
    _freshness(out, settings, ledgers, batch)


def _freshness(out: Transactions, settings: Settings, ledgers: Mapping[int, Ledger], batch: Batch) -> None:
    """A snapshot of each run in the batch, also while others wait: it may be the last batch with that run in it."""
    touched = {(folded.decision.source.partition, folded.decision.run_id): None for _, folded in batch.folded}
    for partition, run_id in touched:
        run = ledgers[partition].run(run_id)
        if run.head.config_version:
            out.produce(settings.topic(Topic.FRESHNESS), partition, run_id.encode(), encode(snapshot(run)))


def _dead_letter(out: Transactions, settings: Settings, message: Message, error: str) -> None:
    value = message.value() or b""
    partition, offset = message.partition(), message.offset()
    assert partition is not None, "a consumed record has a partition"
    assert offset is not None, "a consumed record has an offset"
    letter = DeadLetter(
        topic=settings.topic(Topic.LIFECYCLE),
        partition=partition,
        offset=offset,
        size=len(value),
        sha256=hashlib.sha256(value).hexdigest(),
        error=error,
    )
    out.produce(settings.topic(Topic.DEAD_LETTERS), 0, f"{partition}:{offset}".encode(), encode(letter))
