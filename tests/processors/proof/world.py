"""A run with simulated trainers: processes start, crash at any point, stand still and go on; records are late, lost or
doubled. After every record the true weights are held against what the ledger says they contain."""

import random
from dataclasses import dataclass, field

from rollbook.schemas.records.common import Lifecycle
from rollbook.schemas.records.decision import Decision
from rollbook.schemas.records.ledger import TrajectoryStatus, UpdateState, UpdateStatus
from rollbook.schemas.records.run import DriftGate
from rollbook.schemas.records.update import AbortDisposition
from rollbook.tests.processors.log import Log
from rollbook.tests.processors.proof.trainers import Desk, Disk, Process, Rules, Sent, Trainer, Weights

LEARNERS = ("a", "b")


class Harm(AssertionError):
    """Rows lost, trained twice, or in weights that the ledger vouches for wrongly."""


@dataclass
class Running:
    """A process and what it waits for."""

    trainer: Trainer
    process: Process
    begun: bool = False
    waits_for: str | None = None
    answer: Decision | None = None


@dataclass
class World:
    """Everything, driven by one random source."""

    seed: int
    log: Log
    rules: Rules = field(default_factory=Rules)
    horizon: int = 0
    gate: DriftGate = DriftGate.REQUIRED

    def __post_init__(self) -> None:
        self.dice = random.Random(self.seed)
        self.desk = Desk(log=self.log)
        self.disk = Disk()
        self.running: list[Running] = []
        self.trainers: dict[str, Trainer] = {}
        self.under_way: list[Lifecycle] = []
        self.generated = 0

    # --- what happens

    def play(self, steps: int) -> None:
        """A run of so many steps; then all learners start from nothing, and nothing may be left behind."""
        self.desk.configured(horizon=self.horizon, gate=self.gate, lease_ms=1000, max_lag=2)
        self.desk.contract()
        self._deliver(self.desk.take())
        for _ in range(3):
            self._roll_out()
        for _ in range(steps):
            self._step()
        self._end()

    def _step(self) -> None:
        dice = self.dice
        chance = dice.random()
        if chance < 0.62 and self.running:
            self._run_on(dice.choice(self.running))
        elif chance < 0.87 and self.under_way:
            record = self.under_way.pop(dice.randrange(len(self.under_way)))
            if dice.random() < 0.1:
                self.under_way.append(record)
            self._deliver(record)
        elif chance < 0.88 and self.running:
            self.running.remove(dice.choice(self.running))  # killed: what it sent may still come, or not
            if self.under_way and dice.random() < 0.5:
                self.under_way.pop()
        elif chance < 0.89 or not self.running:
            self._start(dice.choice(LEARNERS))
        elif chance < 0.94:
            self._roll_out()
        else:
            self._meddle()

    def _start(self, learner: str) -> None:
        trainer = Trainer(self.desk, self.disk, learner, f"process-{len(self.trainers)}", self.rules, self.dice)
        self.trainers[trainer.name] = trainer
        self.running.append(Running(trainer, trainer.live()))

    def _run_on(self, one: Running) -> None:
        if one.waits_for is not None and one.answer is None:
            return
        try:
            sent = one.process.send(one.answer) if one.begun else next(one.process)
        except StopIteration:
            self.running.remove(one)
            return
        one.begun, one.waits_for, one.answer = True, None, None
        if isinstance(sent, Sent):
            self.under_way.append(sent.record)
            one.waits_for = sent.record.header.event_id if sent.awaited else None

    def _deliver(self, record: Lifecycle) -> None:
        decision = self.desk.deliver(record)
        for one in self.running:
            if one.waits_for == decision.event_id and one.answer is None:
                one.answer = decision
        self.check()

    def _roll_out(self) -> None:
        """A trajectory of the active policy, mostly rewarded; sometimes the reward is first."""
        name = f"t{self.generated}"
        self.generated += 1
        active = self.desk.run.head.active
        self.desk.generated(name, *([active] if active is not None else []))
        records = [self.desk.take()]
        self.desk.rewarded(name)
        records.insert(self.dice.randrange(2), self.desk.take())
        for record in records:
            self._deliver(record)

    def _meddle(self) -> None:
        """Coordinator, lease clerk, operator, filters."""
        dice, run = self.dice, self.desk.run
        kind = dice.choice(("activate",) * 8 + ("expire", "expire", "operator", "discard", "abandon"))
        opened = run.updates.all_open()
        newest = run.policies.values()[-1]
        if kind == "activate":
            self.desk.activate(newest.version, newest.artifact.hash)
        elif kind == "expire" and opened:
            self.desk.expired(dice.choice(opened).update_id)
        elif kind == "operator" and opened:
            self.desk.abort(
                dice.choice(opened).update_id, operator=True, disposition=dice.choice(list(AbortDisposition))
            )
        elif kind == "discard":
            self.desk.discarded(f"t{dice.randrange(self.generated)}")
        elif kind == "abandon":
            self.desk.abandoned(newest.version)
        else:
            return
        if dice.random() < 0.3:
            self.under_way.append(self.desk.take())  # it comes late
        else:
            self._deliver(self.desk.take())

    def _end(self) -> None:
        self.running.clear()
        for record in self.under_way:
            self._deliver(record)
        for learner in LEARNERS:
            trainer = Trainer(self.desk, self.disk, learner, f"last of {learner}", self.rules, self.dice)
            self.trainers[trainer.name] = trainer
            self.desk.learner(learner, incarnation=trainer.name)
            self._deliver(self.desk.take())
        for row in self.desk.run.trajectories.values():
            if row.status in (TrajectoryStatus.RESERVED, TrajectoryStatus.CONSUMED):
                raise Harm(f"{row.trajectory_id} is lost: {row.status.value} by {row.update_id}")

    # --- what must be true

    def check(self) -> None:
        """The truth beside the ledger."""
        for learner in self.desk.run.learners.values():
            trainer = self.trainers[learner.incarnation]
            if not learner.fenced:
                self._check_live(trainer)
        for saved in self.desk.run.checkpoints.values():
            if not saved.orphaned:
                mine = [u for u in self._standing(saved.learner_id) if u.commit_order <= saved.commit_order]
                self._same(f"checkpoint {saved.checkpoint_id}", self.disk.files[saved.checkpoint_id].weights, mine)
        for policy in self.desk.run.policies.values():
            if policy.activated and not policy.orphaned and policy.version in self.disk.policies:
                contained = self._contained(policy.version)
                self._same(f"policy {policy.version}", self.disk.policies[policy.version], contained)

    def _check_live(self, trainer: Trainer) -> None:
        consumed = _rows(self._standing(trainer.learner))
        beyond = trainer.weights - consumed
        if consumed - trainer.weights:
            raise Harm(f"{trainer.name} lacks {sorted(consumed - trainer.weights)}")
        started = [u for u in self.desk.run.updates.open_of(trainer.learner) if u.status is UpdateStatus.STARTED]
        allowed = {(name, update.update_id) for update in started for name in update.held}
        if beyond - allowed:
            raise Harm(f"{trainer.name} has learnt from {sorted(beyond - allowed)}, the ledger says otherwise")
        names = [name for name, _ in trainer.weights]
        if len(names) != len(set(names)):
            raise Harm(f"{trainer.name} has learnt twice from one of {sorted(names)}")

    def _standing(self, learner: str) -> list[UpdateState]:
        updates = self.desk.run.updates.values()
        mine = [u for u in updates if u.learner is not None and u.learner.learner_id == learner]
        return [update for update in mine if update.status is UpdateStatus.COMMITTED]

    def _contained(self, version: int) -> list[UpdateState]:
        updates, policy = [], self.desk.run.policies.get(version)
        while policy is not None:
            found = [self.desk.run.updates.get(name) for name in policy.update_ids]
            updates += [update for update in found if update is not None]
            policy = None if policy.source_version is None else self.desk.run.policies.get(policy.source_version)
        return updates

    def _same(self, what: str, weights: Weights, updates: list[UpdateState]) -> None:
        if weights != _rows(updates):
            raise Harm(f"{what} holds {sorted(weights)}, the ledger says {sorted(_rows(updates))}")


def _rows(updates: list[UpdateState]) -> Weights:
    return frozenset((name, update.update_id) for update in updates for name in update.trained)
