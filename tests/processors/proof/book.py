"""The naive model's memory: plain dictionaries of what was accepted, and everything else counted anew from them.

Nothing here is kept beside its cause: whether a trajectory is reserved or consumed follows from the updates, whether
a policy or a checkpoint is orphaned from the updates that it contains, depth and ordinal from the ancestors.
"""

from dataclasses import dataclass, field, fields, replace
from typing import Any, NamedTuple

from rollbook.schemas.records.common import Lifecycle
from rollbook.schemas.records.run import LagUnit, RunConfigured

Body = tuple[Any, ...]
"""The content of a record: its type and all fields but the header."""
Ref = tuple[int, str]
"""A policy: version and artifact hash."""

WAITED_FOR = ("dispatched", "generated")
"""A group is not complete while a member is one of these."""
USABLE = ("dispatched", "generated", "reward_failed", "rewarded")
"""What can still be discarded, quarantined or put offline, while nobody holds it."""


def body(record: Lifecycle) -> Body:
    """What two records must share to be the same."""
    model = type(record)
    return (model.__name__, *(getattr(record, name) for name in model.model_fields if name != "header"))


@dataclass(frozen=True)
class Row:
    """One trajectory. `shelf` is its state while no update holds or consumed it."""

    group: str
    sample: int
    expected: int
    apart: tuple[Any, ...]
    train: bool
    spans: tuple[Ref, ...]
    tokens: int
    evidence: str
    said: Body
    offset: int
    shelf: str
    revision: int = 1
    reward: Body = ()
    failure: Body = ()
    reward_offset: int | None = None
    lag: int | None = None
    ratio: float | None = None

    @property
    def oldest(self) -> int:
        """Its behavior version."""
        return min(version for version, _ in self.spans)


class Waiting(NamedTuple):
    """A fact that came before what it is about."""

    kind: str
    said: Body
    offset: int
    apart: tuple[Any, ...] = ()
    replaced: Body = ()


class Item(NamedTuple):
    """What a decision says of one trajectory."""

    name: str
    reason: str
    before: str | None = None
    revision_before: int | None = None
    after: str | None = None
    revision_after: int | None = None
    lag: int | None = None
    freshness: str | None = None
    ratio: float | None = None


class First(NamedTuple):
    """The first answer to a command."""

    kind: str
    part: int
    said: Body
    items: tuple[Item, ...]


@dataclass(frozen=True)
class Update:
    """One update. `end` is the body of the Commit, Abort or LeaseExpired that ended it."""

    learner: str
    epoch: int
    config: int
    opened: int
    heard: int
    state: str = "open"
    held: tuple[str, ...] = ()
    trained: tuple[str, ...] = ()
    firsts: tuple[First, ...] = ()
    sealed: tuple[tuple[int, Body], ...] = ()
    doubt: bool = False
    end: Body = ()
    order: int = 0

    @property
    def over(self) -> bool:
        """Whether it has ended."""
        return self.state not in ("open", "started")


@dataclass(frozen=True)
class Learner:
    """Who may speak for a learner."""

    epoch: int
    incarnation: str
    said: Body
    fenced: bool = False


@dataclass(frozen=True)
class Saved:
    """A checkpoint with the updates that it contains, as they stood when it was saved."""

    learner: str
    digest: str
    said: Body
    contains: frozenset[str]
    order: int


@dataclass(frozen=True)
class Policy:
    """One policy; `source` is its parent, or what it rolls back to."""

    version: int
    hash: str
    said: Body
    source: int | None
    rollback: bool
    adds: tuple[str, ...]
    written: bool
    activated_by: Body | None = None
    activated_at: int | None = None
    abandoned: bool = False


@dataclass(frozen=True)
class Worker:
    """The report of a worker that counts."""

    report: tuple[int, int]
    serves: Ref | None
    said: Body
    offset: int


@dataclass
class Book:
    """Everything accepted in one run. Values are never changed in place, so that a copy is cheap."""

    sequence: int = 0
    active: Ref | None = None
    floor: int = 0
    commits: int = 0
    closed: bool = False
    lapsed: bool = False
    configs: dict[int, RunConfigured] = field(default_factory=dict)
    contracts: dict[str, None] = field(default_factory=dict)
    rows: dict[str, Row] = field(default_factory=dict)
    early_rewards: dict[str, Waiting] = field(default_factory=dict)
    marks: dict[str, tuple[tuple[str, int], ...]] = field(default_factory=dict)
    """Updates that trained on a trajectory as a fact, without having it, with the offset of their Commit."""
    early_commits: dict[Ref, Waiting] = field(default_factory=dict)
    updates: dict[str, Update] = field(default_factory=dict)
    learners: dict[str, Learner] = field(default_factory=dict)
    checkpoints: dict[str, Saved] = field(default_factory=dict)
    policies: dict[int, Policy] = field(default_factory=dict)
    workers: dict[str, Worker] = field(default_factory=dict)
    forgotten: set[tuple[str, str]] = field(default_factory=set)
    touched: set[str] = field(default_factory=set)

    def copy(self) -> "Book":
        """A book that goes its own way from here."""
        return replace(self, **{one.name: _copied(getattr(self, one.name)) for one in fields(self)})

    # --- the run

    @property
    def config(self) -> RunConfigured:
        """The configuration in force."""
        return self.configs[max(self.configs)]

    @property
    def observes(self) -> bool:
        """Whether what happened is a fact, whatever the rules say."""
        return bool(self.configs) and self.config.enforcement.value == "observe"

    # --- trajectories

    def holder(self, name: str) -> str | None:
        """The open update that holds a trajectory, or the standing one that trained on it."""
        for update_id, update in self.updates.items():
            if not update.over and name in update.held:
                return update_id
            if update.state == "committed" and name in update.trained and (update_id, name) not in self.forgotten:
                return update_id
        return None

    def remembered(self, update_id: str) -> tuple[tuple[str, ...], int]:
        """What an update trained on and is still known as its own, and how many are not known any more."""
        update = self.updates[update_id]
        gone = [name for name in update.trained if (update_id, name) in self.forgotten]
        left = tuple(name for name in update.trained if name not in gone)
        return (left if update.state == "committed" else ()), len(gone)

    def state(self, name: str) -> str | None:
        """The lifecycle state of a trajectory; None for an unknown one."""
        if name not in self.rows:
            return None
        holder = self.holder(name)
        if holder is None:
            return self.rows[name].shelf
        return "consumed" if self.updates[holder].state == "committed" else "reserved"

    def live(self) -> int:
        """What counts against max_live."""
        return sum(self.state(name) in (*USABLE, "reserved") for name in self.rows)

    def ready(self, name: str) -> bool:
        """Whether a trajectory waits to be trained on."""
        return self.state(name) == "rewarded" and self.rows[name].train

    def change(self, name: str, **changes: Any) -> None:
        """One change of a trajectory: its revision rises. A record changes none twice."""
        assert name not in self.touched, f"{name} changes twice in one record"
        self.touched.add(name)
        self.rows[name] = replace(self.rows[name], revision=self.rows[name].revision + 1, **changes)

    def free(self, name: str, shelf: str) -> None:
        """A trajectory leaves its update; one of a tainted policy, or below the floor, never goes back to
        where it can be taken."""
        if shelf == "rewarded":
            if self.tainted(name):
                shelf = "quarantined"
            elif not self.consume_marked(name) and self.rows[name].oldest < self.entrance:
                shelf = "offline"
        self.change(name, shelf=shelf, lag=None, ratio=None)

    def let_go(self, *names: str) -> tuple[tuple[int, str, str, str], ...]:
        """A reward waits for what is unknown or dispatched; for what has ended it waits no longer."""
        over = [name for name in names if name in self.early_rewards and self.state(name) not in (None, "dispatched")]
        facts = [(name, self.early_rewards.pop(name)) for name in over]
        return tuple((fact.offset, fact.kind, name, "illegal_transition") for name, fact in facts)

    def strange(self) -> dict[str, int]:
        """What was trained on and is not known, with the offset of the last Commit that says so."""
        return {name: marks[-1][1] for name, marks in self.marks.items() if marks and name not in self.rows}

    def make_room(self, offset: int) -> tuple[bool, tuple[tuple[int, str, str, str], ...]]:
        """Room for one more fact: rewards that wait longest go, but not those of the same record."""
        waiting = len(self.early_rewards) + len(self.strange()) + len(self.early_commits)
        over = max(0, waiting + 1 - self.config.max_pending)
        rewards = sorted((fact.offset, name) for name, fact in self.early_rewards.items())[:over]
        if len(rewards) < over or any(since == offset for since, _ in rewards):
            return False, ()
        return True, tuple((since, self.early_rewards.pop(name).kind, name, "pending_full") for since, name in rewards)

    def consume_marked(self, name: str) -> bool:
        """A trajectory that would be free now is consumed by the first standing update that trained on it."""
        for update_id, _ in self.marks.get(name, ()):
            update = self.updates.get(update_id)
            if update is not None and update.state == "committed":
                self.updates[update_id] = replace(update, trained=(*update.trained, name))
                self.marks[name] = tuple(one for one in self.marks[name] if one[0] != update_id)
                return True
        return False

    @property
    def entrance(self) -> int:
        """The version below which nothing is taken in."""
        if self.observes and self.active is not None:
            return min(self.floor, self.active[0])
        return self.floor

    def tainted(self, name: str) -> bool:
        """Whether a span's policy was undone, given up, or is known with another hash."""
        for version, artifact_hash in self.rows[name].spans:
            known = self.policies.get(version)
            if known is not None and (known.hash != artifact_hash or known.abandoned or self.orphaned(version)):
                return True
        return False

    def sweep(self) -> None:
        """Nothing tainted stays where it could be taken."""
        for name in sorted(self.rows):
            if self.state(name) in USABLE and self.tainted(name):
                self.change(name, shelf="quarantined")

    # --- updates

    def of(self, learner: str, *states: str) -> dict[str, Update]:
        """A learner's updates in these states, oldest first."""
        mine = [(u.opened, name, u) for name, u in self.updates.items() if u.learner == learner and u.state in states]
        return {name: update for _, name, update in sorted(mine, key=lambda one: one[:2])}

    def own_updates(self, learner: str, update_id: str) -> int:
        """The ordinal of a learner that works on an update: its standing commits and its open ones before that."""
        before = list(self.of(learner, "open", "started"))
        earlier = before.index(update_id) if update_id in before else len(before)
        return len(self.of(learner, "committed")) + earlier

    # --- policies

    def contains(self, version: int) -> frozenset[str]:
        """All updates in the weights of a policy."""
        found: set[str] = set()
        at: int | None = version
        while at is not None:
            found.update(self.policies[at].adds)
            at = self.policies[at].source
        return frozenset(found)

    def depth(self, version: int) -> int:
        """Exports since the initial policy; a roll-back has that of what it restores."""
        known = self.policies[version]
        if known.source is None:
            return 0
        return self.depth(known.source) + (0 if known.rollback else 1)

    def number(self, version: int, unit: LagUnit) -> int:
        """What lag compares."""
        return len(self.contains(version)) if unit is LagUnit.ORDINAL else self.depth(version)

    def orphaned(self, version: int) -> bool:
        """Whether a policy contains what was aborted or rolled back."""
        states = {self.updates[name].state for name in self.contains(version) if name in self.updates}
        return bool(states & {"aborted", "rolled_back"})

    def prepared(self, ref: Ref) -> bool:
        """Whether this version is known with this hash."""
        return ref[0] in self.policies and self.policies[ref[0]].hash == ref[1]

    def lost(self, checkpoint: Saved) -> bool:
        """Whether a checkpoint contains what was rolled back."""
        return any(self.updates[name].state == "rolled_back" for name in checkpoint.contains)

    # --- items

    def item(self, name: str, reason: str, before: "Book | None" = None, **figures: Any) -> Item:
        """An item about a trajectory that was as in `before` (unchanged, where none is given) and is as it is now."""
        old = before or self
        then, now = old.rows.get(name), self.rows.get(name)
        return Item(
            name,
            reason,
            old.state(name),
            None if then is None else then.revision,
            self.state(name),
            None if now is None else now.revision,
            **figures,
        )


def _copied(value: Any) -> Any:
    return value.copy() if isinstance(value, dict | set) else value


def freshness(lag: int, max_lag: int) -> str:
    """What a lag means."""
    if lag < 0:
        return "future"
    return "fresh" if lag == 0 else "tolerated" if lag <= max_lag else "stale"
