"""What became of a run, counted while its records are folded again. Pure.

The fold knows each trajectory that a roll-back or the horizon takes along, while a decision names the first hundred.
`tests/recount.py` counts the same without a line of rollbook, and must come to the same figures.
"""

from collections import Counter, defaultdict
from collections.abc import Mapping
from dataclasses import dataclass, field

from rollbook.infra.demo.telling.rollback import FORGOTTEN, RollBacks, RolledBack
from rollbook.infra.looking.refold import Step
from rollbook.processors.ledger.store import Run
from rollbook.schemas.records.common import Lifecycle
from rollbook.schemas.records.decision import Decision, ItemDecision, Outcome
from rollbook.schemas.records.ledger import UpdateStatus
from rollbook.schemas.records.policy import Activate
from rollbook.schemas.records.reward import RewardFailed, RewardReady
from rollbook.schemas.records.rollout import Generated, GenerationFailed, Purpose
from rollbook.schemas.records.update import Commit

_STATUS_AFTER = {"Reserve": "open", "UpdateStarted": "started", "Commit": "committed", "Abort": "aborted"}
_TAKEN = ("reserved", "idempotent_retry")


@dataclass(frozen=True, slots=True)
class Figures:
    """Counts by name; what the gates decided includes what was rolled back later. Keys of `admitted` and `refused` are
    a reason and a lag: `policy_drift lag 1`."""

    run: str
    trajectories: dict[str, int]
    """By state; what is forgotten as it was before."""
    failures: dict[str, int]
    updates: dict[str, int]
    steps: int
    """Of the updates that stand."""
    trained_twice: int
    """Trajectories that two of the updates that stand trained on."""
    rolled_back: list[RolledBack]
    admitted: dict[str, int]
    refused: dict[str, int]
    freshness: dict[str, int]
    """Of what was admitted."""
    activated: list[int]
    reward_by_version: dict[str, float]
    eval_by_version: dict[str, float]
    outcomes: dict[str, int]

    @property
    def last_version(self) -> int:
        """The policy that was activated last."""
        return self.activated[-1] if self.activated else 0

    def eval_of(self, version: int) -> float:
        """Mean evaluation reward of a policy; not a number when it was not evaluated."""
        return self.eval_by_version.get(str(version), float("nan"))


@dataclass(slots=True)
class FiguresWatch:
    """The counts so far, of a run that is folded again."""

    state: dict[str, str] = field(default_factory=dict)
    generated: dict[str, Generated] = field(default_factory=dict)
    rewards: dict[str, float] = field(default_factory=dict)
    update: dict[str, str] = field(default_factory=dict)
    failures: Counter[str] = field(default_factory=Counter)
    admitted: Counter[str] = field(default_factory=Counter)
    refused: Counter[str] = field(default_factory=Counter)
    freshness: Counter[str] = field(default_factory=Counter)
    outcomes: Counter[str] = field(default_factory=Counter)
    steps: dict[str, int] = field(default_factory=dict)
    activated: list[int] = field(default_factory=list)
    roll_backs: RollBacks = field(default_factory=RollBacks)

    def before(self, run: Run) -> None:
        """Nothing is counted before."""

    def after(self, step: Step) -> None:
        """Count a record."""
        self.roll_backs.after(step)
        if step.record is not None:
            self._decision(step.decision, step.record)
        if step.decision.mass_changes:
            self._many(step.run)

    def _many(self, run: Run) -> None:
        """Many changed at once: look each up."""
        for name in self.state:
            if (known := run.trajectories.get(name)) is not None:
                self.state[name] = known.status.value
        self.state.update(dict.fromkeys(self.roll_backs.forgotten, FORGOTTEN))
        for name in self.update:
            if (update := run.updates.get(name)) is not None and update.status is UpdateStatus.ROLLED_BACK:
                self.update[name] = UpdateStatus.ROLLED_BACK.value

    def _decision(self, decision: Decision, record: Lifecycle) -> None:
        self.outcomes[f"{decision.record_type} {decision.outcome.value}"] += 1
        if decision.outcome is Outcome.DUPLICATE:
            return
        for item in decision.items:
            self._item(decision.record_type, item)
        if decision.outcome in (Outcome.ACCEPTED, Outcome.PENDING):
            self._fact(record)
        if decision.outcome is Outcome.ACCEPTED:
            self._act(decision, record)

    def _item(self, record_type: str, item: ItemDecision) -> None:
        if item.state_after is not None:
            self.state[item.trajectory_id] = item.state_after
        where = f"{item.reason} lag {item.lag}"
        if record_type == "Admit" and item.reason == "ok":
            self.admitted[where] += 1
            self.freshness[str(item.freshness)] += 1
        elif record_type == "Admit" or (record_type == "Reserve" and item.reason not in _TAKEN):
            self.refused[where] += 1

    def _fact(self, record: Lifecycle) -> None:
        if isinstance(record, RewardReady):
            self.rewards.update({item.trajectory_id: item.raw_reward for item in record.items})
        elif isinstance(record, GenerationFailed | RewardFailed):
            self.failures[f"{type(record).__name__} {record.reason.value}"] += 1

    def _act(self, decision: Decision, record: Lifecycle) -> None:
        status = _STATUS_AFTER.get(decision.record_type)
        if status is not None and decision.update_id is not None:
            self.update[decision.update_id] = status
        if isinstance(record, Generated):
            self.generated[record.identity.trajectory_id] = record
        elif isinstance(record, Commit):
            self.steps[record.update_id] = len(record.steps)
        elif isinstance(record, Activate):
            self.activated.append(record.policy.version)


def figures(run_id: str, count: FiguresWatch) -> Figures:
    """The figures of a run that was watched to its end."""
    return Figures(
        run=run_id,
        trajectories=_sorted(Counter(count.state.values())),
        failures=_sorted(count.failures),
        updates=_sorted(Counter(count.update.values())),
        steps=sum(steps for name, steps in count.steps.items() if count.update[name] == UpdateStatus.COMMITTED),
        trained_twice=count.roll_backs.trained_twice,
        rolled_back=count.roll_backs.figures(count.state),
        admitted=_sorted(count.admitted),
        refused=_sorted(count.refused),
        freshness=_sorted(count.freshness),
        activated=count.activated,
        reward_by_version=_mean_rewards(count, Purpose.TRAIN),
        eval_by_version=_mean_rewards(count, Purpose.EVAL),
        outcomes=_sorted(count.outcomes),
    )


def _mean_rewards(count: FiguresWatch, purpose: Purpose) -> dict[str, float]:
    """By the oldest policy of the trajectory."""
    by_version: dict[int, list[float]] = defaultdict(list)
    for trajectory_id, reward in count.rewards.items():
        record = count.generated.get(trajectory_id)
        if record is not None and record.purpose is purpose:
            by_version[_oldest_version(record)].append(reward)
    return {str(version): round(sum(some) / len(some), 6) for version, some in sorted(by_version.items())}


def _oldest_version(record: Generated) -> int:
    spans = (span for segment in record.segments for span in segment.spans)
    return min(span.policy.version for span in spans if span.policy is not None)


def _sorted(counts: Mapping[str, int]) -> dict[str, int]:
    return dict(sorted(counts.items()))
