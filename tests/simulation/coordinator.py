"""The transaction coordinator: ids with epochs, fences, time-outs, and markers that are written a while later.

EndTxn is that of version 1: a commit leaves the epoch as it is, so that one that arrives late can end the next
transaction of the same producer.
"""

from collections.abc import Callable
from dataclasses import dataclass, field
from enum import StrEnum

from confluent_kafka import KafkaError

from rollbook.tests.simulation.errors import Again, fatal, fenced
from rollbook.tests.simulation.group import Group, GroupMetadata
from rollbook.tests.simulation.log import Headers, PartitionLog, Place, Txn
from rollbook.tests.simulation.scheduler import Scheduler


class Phase(StrEnum):
    """Where a transactional id stands."""

    EMPTY = "empty"
    ONGOING = "ongoing"
    PREPARED = "prepared"
    COMPLETE = "complete"


@dataclass(slots=True)
class Owner:
    """A transactional id."""

    name: str
    epoch: int = -1
    timeout_s: float = 3.0
    phase: Phase = Phase.EMPTY
    txn: Txn = field(default_factory=lambda: Txn("", 0.0))


class Coordinator:
    """All transactional ids."""

    def __init__(
        self,
        scheduler: Scheduler,
        logs: dict[Place, PartitionLog],
        group: Group,
        pause: Callable[[], float],
        lost: Callable[[bool], Callable[[Place | None], bool]],
    ) -> None:
        self._scheduler = scheduler
        self._logs = logs
        self._group = group
        self._pause = pause
        self._lost = lost
        self._owners: dict[str, Owner] = {}
        self.awaited: dict[str, list[Callable[[], None]]] = {}
        """Requests under way that arrive when the next transaction of an id opens."""
        self.takers: dict[str, set[str]] = {}
        """Who asked for which id: a process that is fenced must have had a rival."""
        self.expired = 0

    def init(self, name: str, timeout_s: float) -> int:
        """A new epoch; what was open is aborted first."""
        owner = self._owners.setdefault(name, Owner(name))
        if owner.phase is Phase.ONGOING:
            owner.epoch += 1
            self._prepare(owner, commit=False)
        if owner.phase is Phase.PREPARED:
            raise Again
        owner.epoch += 1
        owner.phase = Phase.EMPTY
        owner.timeout_s = timeout_s
        return owner.epoch

    def take_part(self, name: str, epoch: int) -> Owner:
        """Join the id's open transaction, or open one."""
        owner = self._known(name, epoch)
        if owner.phase is Phase.PREPARED:
            raise Again
        if owner.phase is not Phase.ONGOING:
            owner.phase = Phase.ONGOING
            owner.txn = Txn(name, self._scheduler.now)
            for arrive in self.awaited.pop(name, []):
                self._scheduler.later(self._scheduler.random.random() * 0.02, arrive)
        return owner

    def write(
        self,
        name: str,
        epoch: int,
        place: Place,
        key: bytes | None,
        value: bytes | None,
        timestamp: int,
        headers: Headers = (),
    ) -> None:
        """A record of the producer's transaction, which it opens if need be."""
        owner = self.take_part(name, epoch)
        if place not in owner.txn.places:
            owner.txn.places.append(place)
        self._logs[place].append(key, value, timestamp, owner.txn, headers=headers)

    def offsets(self, name: str, epoch: int, offsets: dict[int, int], member: GroupMetadata) -> None:
        """AddOffsetsToTxn and TxnOffsetCommit; the group refuses who is no longer in it."""
        owner = self.take_part(name, epoch)
        self._group.check(member)
        self._group.hold(owner.txn, offsets)

    def end(self, name: str, epoch: int, *, commit: bool) -> None:
        """EndTxn."""
        owner = self._known(name, epoch)
        if owner.phase is Phase.ONGOING:
            self._prepare(owner, commit=commit)
        elif owner.phase is Phase.EMPTY or owner.txn.committed is not commit:
            raise fatal(KafkaError.INVALID_TXN_STATE, f"{name}: EndTxn in phase {owner.phase}")
        elif owner.phase is Phase.PREPARED:
            raise Again

    def tick(self) -> None:
        """Abort what has been open for too long, and fence its producer."""
        for owner in self._owners.values():
            if owner.phase is Phase.ONGOING and self._scheduler.now - owner.txn.started > owner.timeout_s:
                self._scheduler.say("broker", f"transaction of {owner.name} timed out")
                self.expired += 1
                owner.epoch += 1
                self._prepare(owner, commit=False)

    def is_open(self, name: str) -> bool:
        """Whether a transaction of this id is open."""
        return name in self._owners and self._owners[name].phase is Phase.ONGOING

    @property
    def quiet(self) -> bool:
        """Whether every transaction that was decided has its markers."""
        return all(owner.phase is not Phase.PREPARED for owner in self._owners.values())

    def _known(self, name: str, epoch: int) -> Owner:
        owner = self._owners[name]
        if epoch != owner.epoch:
            raise fenced(name)
        return owner

    def _prepare(self, owner: Owner, *, commit: bool) -> None:
        """Decided; each partition hears of it when its marker comes."""
        owner.phase = Phase.PREPARED
        txn = owner.txn
        txn.committed = commit
        self._scheduler.say(
            "broker", f"{'commit' if commit else 'abort'} of {owner.name} decided, offsets {txn.offsets}"
        )
        lost = self._lost(commit)
        for place in txn.places:
            if lost(place):
                txn.marked.add(place)
            else:
                self._scheduler.later(self._pause(), lambda place=place: self._mark(owner, txn, place))  # type: ignore[misc]
        if lost(None):
            txn.offsets_marked = True
            self._finish(owner, txn)
        else:
            self._scheduler.later(self._pause(), lambda: self._mark_offsets(owner, txn))

    def _mark(self, owner: Owner, txn: Txn, place: Place) -> None:
        self._logs[place].append(None, None, 0, txn, marker=True)
        self._finish(owner, txn)

    def _mark_offsets(self, owner: Owner, txn: Txn) -> None:
        txn.offsets_marked = True
        if txn.offsets:
            self._group.close(txn)
        self._finish(owner, txn)

    def _finish(self, owner: Owner, txn: Txn) -> None:
        if txn.offsets_marked and len(txn.marked) == len(txn.places):
            owner.phase = Phase.COMPLETE
