"""A trainer process that keeps to the client's rules, with true weights: every row that an optimizer step applied.

A process is a generator: it yields what it sends and is given the decision, or yields None between two things that it
does; it can be stopped for ever, or for a while, at every yield. `Rules` can be switched off one at a time: then the
search must find a harm, or it would not have found ours.
"""

import random
from collections.abc import Generator
from dataclasses import dataclass, field
from typing import TypeAlias

from rollbook.schemas.records.common import Header, Lifecycle, SourceKind
from rollbook.schemas.records.decision import Decision, Outcome
from rollbook.schemas.records.update import AbortDisposition, Checkpoint, ClaimOrder, Disposition, ReserveMode
from rollbook.tests.processors import parts
from rollbook.tests.processors.history import History

Weights: TypeAlias = frozenset[tuple[str, str]]
"""(trajectory, update) of every row that the weights have learnt from."""


@dataclass(frozen=True)
class File:
    """A checkpoint on disk: whose it is, its weights, and the updates that its writer knew to be in them."""

    owner: str
    weights: Weights
    updates: frozenset[str]


@dataclass(frozen=True)
class Sent:
    """A record on its way; `awaited`: the process stands still until it has read the decision."""

    record: Lifecycle
    awaited: bool = True


Process: TypeAlias = Generator[Sent | None, Decision | None, None]


@dataclass(frozen=True)
class Rules:
    """What a client keeps to (DESIGN section 5)."""

    await_started: bool = True
    await_admit: bool = True
    export_at_rest: bool = True
    fresh_checkpoint_ids: bool = True
    exit_when_refused: bool = True


@dataclass
class Disk:
    """What outlives a process: checkpoint files, and exported policies by version."""

    files: dict[str, File] = field(default_factory=dict)
    policies: dict[int, Weights] = field(default_factory=dict)
    versions: int = 0


class Desk(History):
    """Writes records without sending them."""

    draft: Lifecycle | None = None
    events: int = 0

    def header(self, kind: SourceKind = SourceKind.TRAINER) -> Header:
        """Records that are not sent yet have event ids of their own, too."""
        self.events += 1
        return parts.header(self.run_id, f"event-{self.events}", kind, f"{kind.value}-0")

    def send(self, record: Lifecycle) -> Decision:
        """Keep the record; the first one, which configures the run, goes out at once."""
        if not self.log.folded:
            return self.deliver(record)
        self.draft = record
        return self.last

    def deliver(self, record: Lifecycle) -> Decision:
        """Put a record on the log."""
        return super().send(record)

    def take(self) -> Lifecycle:
        """The record just written."""
        assert self.draft is not None, "nothing is written yet"
        return self.draft


class Trainer:
    """One process of a learner. `weights` are the truth, that the ledger never sees."""

    def __init__(self, desk: Desk, disk: Disk, learner: str, name: str, rules: Rules, dice: random.Random) -> None:
        self.desk = desk
        self.disk = disk
        self.learner = learner
        self.name = name
        self.rules = rules
        self.dice = dice
        self.weights: Weights = frozenset()
        self.epoch = 0
        self.updates: frozenset[str] = frozenset()

    def live(self) -> Process:
        """From its start to its end."""
        wanted = self._choose_checkpoint()
        expected = self.desk.epoch(self.learner)
        yield None  # what it read may be old by now
        self.desk.learner(self.learner, incarnation=self.name, expected=expected, checkpoint=wanted)
        decision = yield Sent(self.desk.take())
        if not _fine(decision):
            return
        assert decision is not None and decision.learner is not None  # noqa: PT018
        self.epoch = decision.learner.epoch
        for _ in range(self.dice.randint(1, 8)):
            going_on = yield from self._update(self._next_update())
            if not going_on:
                return

    def _next_update(self) -> str:
        """Mostly an id that is new to the ledger; a clone, or a process that lags behind, chooses the same."""
        number = len(self.updates) + self.dice.randint(0, 1)
        while f"{self.learner}-{number}" in self.desk.run.updates and self.dice.random() < 0.9:
            number += 1
        return f"{self.learner}-{number}"

    def _choose_checkpoint(self) -> Checkpoint | None:
        """Mostly a checkpoint of its own that stands; sometimes any file that lies on the disk, or none."""
        known = self.desk.run.checkpoints
        standing = {one.checkpoint_id for one in known.values() if one.learner_id == self.learner and not one.orphaned}
        files = standing if standing and self.dice.random() < 0.8 else self.disk.files.keys()
        if not files or self.dice.random() < 0.25:
            return None
        chosen = self.dice.choice(sorted(files))
        self.weights, self.updates = self.disk.files[chosen].weights, self.disk.files[chosen].updates
        return Checkpoint(id=chosen, digest=f"digest of {chosen}")

    def _update(self, update_id: str) -> Generator[Sent | None, Decision | None, bool]:
        """One update; False where the process must end."""
        dice = self.dice
        self._reserve(update_id, part=0)
        if dice.random() < 0.1:  # it gives up waiting, and ends the id whatever became of it
            yield Sent(self.desk.take(), awaited=False)
            self.desk.abort(update_id, learner=self.learner, epoch=self.epoch)
            decision = yield Sent(self.desk.take())
            return _fine(decision) or _ended(decision)
        decision = yield Sent(self.desk.take())
        if _fenced(decision):
            return False
        if decision is None or not _fine(decision):
            return True
        held = {item.trajectory_id for item in decision.items if item.reason in ("reserved", "idempotent_retry")}
        if dice.random() < 0.3:
            self._reserve(update_id, part=1)
            decision = yield Sent(self.desk.take())
            if decision is not None and decision.outcome is Outcome.ACCEPTED:
                held |= {item.trajectory_id for item in decision.items if item.reason == "reserved"}
        if dice.random() < 0.1:
            self.desk.abort(
                update_id, disposition=dice.choice(list(AbortDisposition)), learner=self.learner, epoch=self.epoch
            )
            decision = yield Sent(self.desk.take())
            return _fine(decision) or _ended(decision)
        admitted: set[str] | None = None
        late = dice.random() < 0.5
        if not late:
            admitted = yield from self._admit(update_id, held)
            if admitted is None:
                return False
        self.desk.started(update_id, learner=self.learner, epoch=self.epoch)
        if self.rules.await_started:
            decision = yield Sent(self.desk.take())
            if decision is None or not _fine(decision):
                return not _fenced(decision)
            held = {item.trajectory_id for item in decision.items}
        else:
            yield Sent(self.desk.take(), awaited=False)
        if late:
            if self.rules.await_admit:
                admitted = yield from self._admit(update_id, held)
                if admitted is None:
                    return False
            else:
                admitted = held
        return (yield from self._steps(update_id, sorted(held & (admitted or set())), sorted(held)))

    def _steps(
        self, update_id: str, trainable: list[str], held: list[str]
    ) -> Generator[Sent | None, Decision | None, bool]:
        dice = self.dice
        trained = [name for name in trainable if dice.random() < 0.8]
        for name in trained:
            self.weights |= {(name, update_id)}
            yield None
            if not self.rules.export_at_rest:
                yield Sent(self._write(update_id), awaited=False)
        if not self.rules.await_admit:
            yield from self._admit(update_id, set(held))
        dropped = {name: dice.choice(list(Disposition)) for name in held if name not in trained}
        self.desk.commit(update_id, *trained, dropped=dropped, learner=self.learner, epoch=self.epoch)
        decision = yield Sent(self.desk.take())
        if not _fine(decision):
            if not self.rules.exit_when_refused:
                yield from self._export()
            return False
        self.updates |= {update_id}
        if dice.random() < 0.5 and not (yield from self._save(update_id)):
            return False
        if dice.random() < 0.5:
            yield from self._export()
        return True

    def _reserve(self, update_id: str, part: int) -> None:
        dice = self.dice
        ready = [row.trajectory_id for row in self.desk.run.trajectories.values() if row.status.value == "rewarded"]
        if ready and dice.random() < 0.5:
            some = dice.sample(ready, min(len(ready), dice.randint(1, 2)))
            self.desk.reserve(
                update_id, *some, part=part, mode=ReserveMode.AVAILABLE, learner=self.learner, epoch=self.epoch
            )
        else:
            order = dice.choice(list(ClaimOrder))
            self.desk.claim(update_id, 1, order=order, part=part, learner=self.learner, epoch=self.epoch)

    def _admit(self, update_id: str, held: set[str]) -> Generator[Sent | None, Decision | None, set[str] | None]:
        """The rows that may be trained on; None where the process must end."""
        if not held:
            return set()
        drifts = {name: self.dice.choice((0.0, 0.1, 0.1, 5.0)) for name in sorted(held)}
        self.desk.admit(update_id, drifts, part=self.dice.randint(0, 99), learner=self.learner, epoch=self.epoch)
        decision = yield Sent(self.desk.take())
        if _fenced(decision):
            return None
        if decision is None or not _fine(decision):
            return set()
        return {item.trajectory_id for item in decision.items if item.reason == "ok"}

    def _save(self, update_id: str) -> Generator[Sent | None, Decision | None, bool]:
        """Write a checkpoint, then tell the ledger; it can die in between."""
        record = self._write(update_id)
        yield None
        decision = yield Sent(record)
        return _fine(decision)

    def _write(self, update_id: str) -> Lifecycle:
        number = len(self.disk.files) if self.rules.fresh_checkpoint_ids else 0
        name = f"{self.learner}-c{number}"
        self.disk.files[name] = File(self.learner, self.weights, self.updates)
        self.desk.saved(name, update_id, learner=self.learner, epoch=self.epoch)
        return self.desk.take()

    def _export(self) -> Generator[Sent | None, Decision | None, None]:
        """Export the weights as a policy: its parent is the newest whose updates are all in them."""
        mine = self.updates
        policies = self.desk.run.policies.values()
        contained = {policy.version: self._contains(policy.version) for policy in policies}
        parent = max(version for version, updates in contained.items() if updates <= mine)
        self.disk.versions = version = max(self.disk.versions, *contained) + 1
        self.disk.policies[version] = self.weights
        self.desk.prepared(version, *sorted(mine - contained[parent]), parent=parent)
        yield Sent(self.desk.take())

    def _contains(self, version: int) -> set[str]:
        updates: set[str] = set()
        policy = self.desk.run.policies.get(version)
        while policy is not None:
            updates.update(policy.update_ids)
            policy = None if policy.source_version is None else self.desk.run.policies.get(policy.source_version)
        return updates


def _fine(decision: Decision | None) -> bool:
    return decision is not None and decision.outcome in (Outcome.ACCEPTED, Outcome.DUPLICATE)


def _fenced(decision: Decision | None) -> bool:
    return decision is None or decision.reason == "learner_fenced"


def _ended(decision: Decision | None) -> bool:
    return decision is not None and decision.reason == "update_ended"
