"""What a trainer's integration has shown in a run so far, counted record by record: what the checklist judges. Pure."""

from collections import Counter
from dataclasses import dataclass, field

from rollbook.infra.looking.refold import Step
from rollbook.processors.ledger.store import Run
from rollbook.schemas.records.decision import Outcome
from rollbook.schemas.records.rollout import Generated, GenerationFailed
from rollbook.schemas.records.update import Admit, Commit, RecordingSealed

_TAKEN = (Outcome.ACCEPTED, Outcome.PENDING)


@dataclass(slots=True)
class Figures:
    """Mean |log-ratio| of trajectories, in nats. `far`: how many are above half the limit."""

    count: int = 0
    total: float = 0.0
    largest: float = 0.0
    far: int = 0

    @property
    def mean(self) -> float:
        return self.total / self.count if self.count else 0.0

    def take(self, value: float, limit: float) -> None:
        self.count += 1
        self.far += value > limit / 2
        self.total += value
        self.largest = max(self.largest, value)


@dataclass(slots=True)
class Group:
    """A group as its members describe it."""

    expected: int
    known: set[int] = field(default_factory=set)


@dataclass(slots=True)
class Recorded:
    """What a committed update said of its recordings, and which ranks have sealed one for each step."""

    steps: int
    ranks: tuple[int, ...]
    whole: set[int] = field(default_factory=set)


@dataclass(slots=True)
class Integration:
    """Counts over the records that the processor has decided. A watch of `refold`."""

    accepted: Counter[str] = field(default_factory=Counter)
    rejected: Counter[str] = field(default_factory=Counter)
    """Reasons of records that were refused."""
    reasons: Counter[str] = field(default_factory=Counter)
    """The same, and those of all items."""
    violations: int = 0
    groups: dict[str, Group] = field(default_factory=dict)
    without_payload: int = 0
    unproven: int = 0
    """Admitted rows whose current log-probs were not kept."""
    drift: dict[int, Figures] = field(default_factory=dict)
    """By lag, of all rows that an Admit showed."""
    admitted: Figures = field(default_factory=Figures)
    recorded: dict[str, Recorded] = field(default_factory=dict)

    def before(self, run: Run) -> None:
        """Nothing is compared with what was."""

    def after(self, step: Step) -> None:
        decision = step.decision
        self.violations += decision.violation
        if decision.outcome is Outcome.REJECTED:
            self.rejected[decision.reason] += 1
            self.reasons[decision.reason] += 1
        self.reasons.update(item.reason for item in decision.items if item.reason != decision.reason)
        if decision.outcome not in _TAKEN:
            return
        self.accepted[decision.record_type] += 1
        match step.record:
            case Generated() as record:
                self._member(record)
                self.without_payload += any(segment.payload is None for segment in record.segments)
            case GenerationFailed() as record:
                self._member(record)
            case Admit() as record:
                self._admit(step, record)
            case Commit() as record:
                self.recorded[record.update_id] = Recorded(len(record.steps), record.expected_ranks)
            case RecordingSealed() as record:
                self._sealed(record)

    def _member(self, record: Generated | GenerationFailed) -> None:
        identity = record.identity
        group = self.groups.setdefault(identity.group_id, Group(identity.group_expected))
        group.known.add(identity.sample_index)

    def _admit(self, step: Step, record: Admit) -> None:
        limit = step.run.config.admission.max_mean_abs_log_ratio
        kept = {item.trajectory_id for item in record.items if item.payload is not None}
        for item in step.decision.items:
            if item.mean_abs_log_ratio is None or item.lag is None:
                continue
            self.drift.setdefault(item.lag, Figures()).take(item.mean_abs_log_ratio, limit)
            if item.reason == "ok":
                self.admitted.take(item.mean_abs_log_ratio, limit)
                self.unproven += item.trajectory_id not in kept

    def _sealed(self, record: RecordingSealed) -> None:
        known = self.recorded.get(record.update_id)
        if known is not None and len(record.recordings) == known.steps:
            known.whole.add(record.rank)
