"""Records that belong to no run: what cannot be decoded, and what lies under a wrong key or in a wrong partition. They
are decided for their partition, so among the decisions of a run there is none of them, whosever key they have."""

from rollbook.processors.ledger.fold import STRAYS, Ledger, NewerFoldVersion, SourceRecord
from rollbook.processors.lifecycle_schema import FIRST, read_since
from rollbook.replay.history.source import StoredRecord
from rollbook.schemas.codec import PREFIX_LENGTH


def is_stray(stored: StoredRecord, topic_partitions: int) -> bool:
    """Whether a lifecycle record is such a one, which no run's state has a say in. `topic_partitions`: how many the
    topic has."""
    if read_since((stored.value or b"")[2:PREFIX_LENGTH].hex()) > FIRST:
        return False  # the run's state has a say
    ledger = Ledger(stored.partition, topic_partitions)
    try:
        folded = ledger.fold(SourceRecord(stored.partition, stored.offset, stored.key, stored.value))
    except NewerFoldVersion:
        return False
    return folded.decision.run_id.startswith(STRAYS)
