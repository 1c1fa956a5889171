"""The lease clerk: notices updates of which nothing was heard for longer than their lease.

It only writes what it noticed; the fold decides, and refuses an expiry that a later Reserve, Admit or Renew overtook.
Its timers start anew after a restore, so a restart of the processor never shortens a lease.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from rollbook.infra.settings import Settings, Topic
from rollbook.processors.host.clock import Clock
from rollbook.processors.host.kafka import Kafka
from rollbook.processors.ledger.fold import Ledger
from rollbook.processors.ledger.store import Run
from rollbook.schemas.codec import encode, make
from rollbook.schemas.records.common import Header, Source, SourceKind
from rollbook.schemas.records.update import LeaseExpired


@dataclass(slots=True)
class _Timer:
    """Since when an update has stood at this basis."""

    basis: int
    since: float
    told: bool = False


@dataclass(frozen=True, slots=True)
class Expiry:
    """An update whose lease is over."""

    run_id: str
    update_id: str
    basis: int


class Timers:
    """The timers of one partition. Pure: the clock is the caller's."""

    def __init__(self) -> None:
        self._timers: dict[tuple[str, str], _Timer] = {}

    def look(self, ledger: Ledger, now: float) -> list[Expiry]:
        """The leases that ended since the last look, each told once; `now` in seconds of a monotonic clock."""
        seen = set()
        expired = []
        for run, update_id, basis, lease_ms in _held(ledger):
            key = (run.run_id, update_id)
            seen.add(key)
            timer = self._timers.get(key)
            if timer is None or timer.basis != basis:
                self._timers[key] = _Timer(basis, now)
            elif not timer.told and now - timer.since > lease_ms / 1000:
                timer.told = True
                expired.append(Expiry(run.run_id, update_id, basis))
        for key in self._timers.keys() - seen:
            del self._timers[key]
        return expired


def _held(ledger: Ledger) -> Iterator[tuple[Run, str, int, int]]:
    """Open and started updates under a lease, those in doubt apart: nothing more can be said of them."""
    for run in ledger.runs.values():
        for update in run.updates.all_open():
            config = run.configs.get(update.config_version)
            if config is not None and config.lease_ms and not update.in_doubt:
                yield run, update.update_id, update.last_activity_offset, config.lease_ms


class LeaseClerk:
    """Writes expiries to the lifecycle topic, outside the host's transactions, when the host is caught up."""

    def __init__(self, settings: Settings, kafka: Kafka, clock: Clock, name: str) -> None:
        self._settings = settings
        self._kafka = kafka
        self._clock = clock
        self._name = name
        self._timers: dict[int, Timers] = {}
        self._producer: Any = None

    def forget(self, partition: int) -> None:
        """The partition was released or restored: its timers start anew."""
        self._timers.pop(partition, None)

    def look(self, partition: int, ledger: Ledger) -> None:
        """Write what has expired in a partition that is folded to its end."""
        timers = self._timers.setdefault(partition, Timers())
        for expiry in timers.look(ledger, self._clock.monotonic()):
            self._write(partition, expiry)
        if self._producer is not None:
            self._producer.poll(0)

    def close(self) -> None:
        """Send what is queued; an expiry that is lost is noticed again by the next clerk."""
        if self._producer is not None:
            self._producer.flush(1.0)

    def _write(self, partition: int, expiry: Expiry) -> None:
        if self._producer is None:
            self._producer = self._kafka.plain_producer()
        header = make(
            Header,
            run_id=expiry.run_id,
            event_id=f"lease-{expiry.basis}-{self._name}"[:256],
            occurred_at=self._clock.now_ms(),
            source=make(Source, kind=SourceKind.PROCESSOR, id=self._name[:256]),
        )
        record = make(LeaseExpired, header=header, update_id=expiry.update_id, basis=expiry.basis)
        topic = self._settings.topic(Topic.LIFECYCLE)
        self._producer.produce(topic, encode(record), expiry.run_id.encode(), partition)
