"""The group coordinator: static members, generations, cooperative rebalances, sessions, committed offsets."""

from dataclasses import dataclass, field

from confluent_kafka import KafkaError

from rollbook.tests.simulation.errors import abortable
from rollbook.tests.simulation.log import Txn
from rollbook.tests.simulation.scheduler import Scheduler

REBALANCE_S = 300.0
NOBODY = -1
NOTHING_COMMITTED = -1001


@dataclass(frozen=True, slots=True)
class GroupMetadata:
    """What a consumer says of itself when offsets are sent: under which name, membership and generation."""

    instance: str
    member: int
    generation: int


@dataclass(slots=True)
class Member:
    """A static member; `member` is its number since the last join without one."""

    instance: str
    member: int
    session_s: float
    seen: float
    joined: bool = True
    owned: frozenset[int] = frozenset()
    assigned: frozenset[int] = frozenset()
    generation: int = -1


@dataclass(slots=True)
class Group:
    """One group on one topic. `open` are transactions with offsets of this group that no marker has settled."""

    scheduler: Scheduler
    partitions: int
    generation: int = 0
    rebalancing: bool = False
    rebalances: int = 0
    expired: int = 0
    members: dict[str, Member] = field(default_factory=dict)
    open: list[Txn] = field(default_factory=list)
    _committed: dict[int, int] = field(default_factory=dict)
    _numbered: int = 0
    _since: float = 0.0

    # ---- membership

    def join(self, instance: str, member: int, owned: frozenset[int], session_s: float) -> int:
        """Join, or join again in a rebalance. Returns the member's number; -1 when it is not the member any more."""
        known = self.members.get(instance)
        if member != NOBODY and (known is None or known.member != member):
            return NOBODY
        if member == NOBODY:
            self._numbered += 1
            member = self._numbered
            if known is not None and not self.rebalancing:  # a static member that comes back keeps what it had
                known.member, known.seen, known.session_s = member, self.scheduler.now, session_s
                return member
        before, generation = (frozenset(), -1) if known is None else (known.assigned, known.generation)
        self.members[instance] = Member(
            instance,
            member,
            session_s,
            self.scheduler.now,
            owned=owned,
            assigned=before,
            generation=generation,
        )
        if not self.rebalancing:
            self._rebalance(instance)
        return member

    def heartbeat(self, instance: str, member: int) -> int | None:
        """The error code that a heartbeat brings, if any."""
        known = self.members.get(instance)
        if known is None:
            return int(KafkaError.UNKNOWN_MEMBER_ID)
        if known.member != member:
            return int(KafkaError.FENCED_INSTANCE_ID)
        known.seen = self.scheduler.now
        return None

    def must_join(self, instance: str) -> bool:
        """Whether a rebalance waits for this member."""
        return self.rebalancing and not self.members[instance].joined

    def tick(self) -> None:
        """Sessions end, rebalances finish."""
        now = self.scheduler.now
        for one in list(self.members.values()):
            late = self.rebalancing and not one.joined and now - self._since > REBALANCE_S
            if now - one.seen > one.session_s or late:
                self.scheduler.say("broker", f"session of {one.instance} ended")
                self.expired += 1
                del self.members[one.instance]
                self._rebalance(None)
        if self.rebalancing and all(one.joined for one in self.members.values()):
            self._assign()

    def restart(self) -> None:
        """The broker came back: sessions begin anew."""
        for one in self.members.values():
            one.seen = self.scheduler.now

    def _rebalance(self, first: str | None) -> None:
        self.rebalancing = True
        self.rebalances += 1
        self._since = self.scheduler.now
        for one in self.members.values():
            one.joined = one.instance == first

    def _assign(self) -> None:
        """Sticky and cooperative: who owns a partition keeps it until it was given back."""
        self.rebalancing = False
        self.generation += 1
        everyone = [self.members[name] for name in sorted(self.members)]
        if not everyone:
            return
        most = -(-self.partitions // len(everyone))
        target: dict[str, list[int]] = {one.instance: sorted(one.owned)[:most] for one in everyone}
        taken = {partition for owned in target.values() for partition in owned}
        for partition in range(self.partitions):
            if partition not in taken:
                least = min(everyone, key=lambda one: (len(target[one.instance]), one.instance))
                target[least.instance].append(partition)
        for one in everyone:
            elsewhere = {p for other in everyone if other is not one for p in other.owned}
            one.generation = self.generation
            one.assigned = frozenset(target[one.instance]) - elsewhere
        self.scheduler.say(
            "broker", f"generation {self.generation}: { {o.instance: sorted(o.assigned) for o in everyone} }"
        )

    # ---- offsets

    def check(self, member: GroupMetadata) -> None:
        """Refuse offsets of who is not the member, or not of this generation."""
        code = self.heartbeat(member.instance, member.member)
        if code is None and member.generation != self.generation:
            code = KafkaError.ILLEGAL_GENERATION
        if code is not None:
            raise abortable(code, f"offsets of {member.instance} refused")

    def hold(self, txn: Txn, offsets: dict[int, int]) -> None:
        """Offsets of an open transaction; what hangs of an earlier one of its producer ends as this one does."""
        for older in [one for one in self.open if one.owner == txn.owner and one is not txn]:
            self.open.remove(older)
            txn.offsets = older.offsets | txn.offsets
        if txn not in self.open:
            self.open.append(txn)
        txn.offsets.update(offsets)

    def is_stable(self, partition: int) -> bool:
        """Whether no open transaction holds an offset of the partition."""
        return not any(partition in txn.offsets for txn in self.open)

    def committed(self, partition: int) -> int:
        """The committed offset."""
        return self._committed.get(partition, NOTHING_COMMITTED)

    def forget(self) -> None:
        """Offsets expire, or an operator deletes them."""
        self._committed.clear()

    def close(self, txn: Txn) -> None:
        """A transaction's marker: its offsets stand, or are forgotten."""
        self.open.remove(txn)
        if txn.committed:
            self._committed.update(txn.offsets)
