"""When the leases of open updates end: a lease is a time, and neither ledger nor snapshot has any."""

from collections.abc import Mapping, Sequence
from contextlib import suppress

from rollbook.infra.settings import Settings, Topic
from rollbook.replay.history.kafka import KafkaLog
from rollbook.schemas.errors import RollbookError
from rollbook.schemas.records.decision import OpenUpdate

MOST = 50
"""Updates whose leases are looked up; more of them no screen shows."""


def ends(updates: Sequence[OpenUpdate], since: Mapping[int, int]) -> tuple[tuple[str, int], ...]:
    """When each lease ends, by the times of records; of those that have one of which that is known."""
    return tuple(
        (one.update_id, since[one.last_activity_offset] + one.lease_ms)
        for one in updates[:MOST]
        if one.lease_ms and one.last_activity_offset in since
    )


class Leases:
    """The times of the records since which leases run: among what was read, or asked of the log once."""

    def __init__(self, settings: Settings) -> None:
        self._log = KafkaLog(settings)
        self._topic = settings.topic(Topic.LIFECYCLE)
        self._since: dict[int, int] = {}

    def of(self, updates: Sequence[OpenUpdate]) -> tuple[tuple[str, int], ...]:
        """When each ends, of those that have a lease of which that is known."""
        return ends(updates, self._since)

    def look(self, updates: Sequence[OpenUpdate], partition: int, read: Mapping[int, int]) -> None:
        """Find what is not known yet. A log that may not be read, or does not go back so far, is no fault: the lease
        is not known then."""
        wanted = {one.last_activity_offset for one in updates[:MOST] if one.lease_ms}
        found = {offset: at_ms for offset in wanted if (at_ms := self._since.get(offset, read.get(offset))) is not None}
        with suppress(RollbookError):
            for stored in self._log.read_at(self._topic, partition, wanted - found.keys()):
                found[stored.offset] = stored.timestamp_ms
        self._since = found

    def forget(self) -> None:
        """The log is another: its offsets are of other records."""
        self._since = {}

    def close(self) -> None:
        self._log.close()
