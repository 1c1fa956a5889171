"""One partition of the lifecycle topic as a list, folded as it grows, and what tests ask of its state."""

from dataclasses import dataclass, field

from rollbook.processors.ledger.fold import Folded, Ledger, SourceRecord
from rollbook.processors.ledger.store import Run
from rollbook.schemas.codec import decode, encode
from rollbook.schemas.partition import partition_of
from rollbook.schemas.records.common import Header, LearnerRef, Lifecycle, PolicyRef, SourceKind
from rollbook.schemas.records.decision import Decision, ItemDecision
from rollbook.schemas.records.ledger import TrajectoryState
from rollbook.tests.processors import parts
from rollbook.tests.processors.parts import policy

LEARNER = "trainer"


@dataclass
class Log:
    """One partition of the lifecycle topic with its fold; several runs can share it."""

    partition: int = 0
    topic_partitions: int = 1
    records: list[SourceRecord] = field(default_factory=list)
    folded: list[Folded] = field(default_factory=list)
    next_offset: int = 0

    def __post_init__(self) -> None:
        self.ledger = Ledger(self.partition, self.topic_partitions)

    def append(self, key: bytes | None, value: bytes | None) -> Decision:
        """Put a record at the end, whatever it is, and fold it."""
        record = SourceRecord(self.partition, self.next_offset, key, value)
        folded = self.ledger.fold(record)
        assert decode(folded.encoded) == folded.decision, "what is read is what was decided"
        self.records.append(record)
        self.folded.append(folded)
        self.next_offset += 1
        return folded.decision

    @property
    def decisions(self) -> list[bytes]:
        """The decisions so far, as they lie on the decisions topic."""
        return [folded.encoded for folded in self.folded]


def refold(log: Log) -> list[bytes]:
    """The decisions of a log folded anew from its first record."""
    ledger = Ledger(log.partition, log.topic_partitions)
    return [ledger.fold(record).encoded for record in log.records]


class Past:
    """One run on a log of its own, or on the log of another."""

    def __init__(self, run: str = "r", *, topic_partitions: int = 1, log: Log | None = None) -> None:
        self.run_id = run
        self.log = log or Log(partition_of(run, topic_partitions), topic_partitions)

    # --- the log and its state

    @property
    def run(self) -> Run:
        """The folded state."""
        return self.log.ledger.run(self.run_id)

    @property
    def last(self) -> Decision:
        """The newest decision on the log."""
        return self.log.folded[-1].decision

    def send(self, record: Lifecycle) -> Decision:
        """Put a record on the log under its run's key."""
        return self.log.append(record.header.run_id.encode(), encode(record))

    def again(self, back: int = 1) -> Decision:
        """Put the record that was sent `back` records ago on the log once more, byte for byte."""
        old = self.log.records[-back]
        return self.log.append(old.key, old.value)

    def trajectory(self, trajectory_id: str) -> TrajectoryState:
        """A known trajectory."""
        found = self.run.trajectories.get(trajectory_id)
        assert found is not None, f"{trajectory_id} is unknown"
        return found

    def status(self, trajectory_id: str) -> str:
        """Lifecycle state of a trajectory; none when nobody reported it."""
        found = self.run.trajectories.get(trajectory_id)
        return "none" if found is None else found.status.value

    def update_status(self, update_id: str) -> str:
        """State of an update; none when it is unknown."""
        found = self.run.updates.get(update_id)
        return "none" if found is None else found.status.value

    def revision(self, trajectory_id: str) -> int:
        """Revision of a trajectory; 0 when nobody reported it."""
        found = self.run.trajectories.get(trajectory_id)
        return 0 if found is None else found.revision

    def epoch(self, learner: str = LEARNER) -> int:
        """Epoch of a learner; 0 before its first start."""
        found = self.run.learners.get(learner)
        return 0 if found is None else found.epoch

    def header(self, kind: SourceKind = SourceKind.TRAINER) -> Header:
        """A header with an event id of its own."""
        return parts.header(self.run_id, f"event-{self.log.next_offset}", kind, f"{kind.value}-0")

    def _ref(self, learner: str, epoch: int | None) -> LearnerRef:
        return LearnerRef(learner_id=learner, epoch=self.epoch(learner) if epoch is None else epoch)

    def _active(self) -> PolicyRef:
        return self.run.head.active or policy(0)


def reasons(decision: Decision) -> dict[str, str]:
    """Reason by trajectory; the last one where a trajectory is named twice."""
    return {item.trajectory_id: item.reason for item in decision.items}


def item(decision: Decision, trajectory_id: str) -> ItemDecision:
    """The decision on one trajectory."""
    return next(found for found in decision.items if found.trajectory_id == trajectory_id)


def says(decision: Decision) -> str:
    """Outcome and reason in two words."""
    return f"{decision.outcome.value} {decision.reason}"
