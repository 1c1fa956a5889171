"""What a proof holds: policies, updates, trajectories, and what the log cannot tell."""

from dataclasses import dataclass
from enum import StrEnum

from rollbook.schemas.records.common import PolicyRef
from rollbook.schemas.records.rollout import Purpose, TaskSource
from rollbook.schemas.records.run import Artifact, RewardIdentity
from rollbook.schemas.records.update import DroppedItem
from rollbook.schemas.types import NamedNumber


class Membership(StrEnum):
    """Whether an update is in the weights."""

    IN_WEIGHTS = "in_weights"
    NOT_RULED_OUT = "not_ruled_out"


class Standing(StrEnum):
    """What became of an update. Unknown: the log never heard of it."""

    COMMITTED = "committed"
    ROLLED_BACK = "rolled_back"
    ABORTED = "aborted"
    NOT_COMMITTED = "not_committed"
    UNKNOWN = "unknown"


class DoubtKind(StrEnum):
    """What the log cannot tell, or tells only as somebody's word."""

    NO_COMMIT = "no_commit"
    NOT_NAMED = "not_named"
    LEFT_OUT = "left_out"
    UNDONE = "undone"
    NO_GENERATED = "no_generated"
    NO_REWARD = "no_reward"
    NOT_PUBLISHED = "not_published"
    TAKEN_AS_FACT = "taken_as_fact"
    DROPPED = "dropped"
    DECLARED = "declared"
    UNDECIDED = "undecided"


DOUBTS = {
    DoubtKind.NO_COMMIT: "a policy names an update that has no Commit: what it trained on is not known",
    DoubtKind.NOT_NAMED: "an update was committed before the policy was prepared, and no policy names it: whether it "
    "is in the weights the log does not tell",
    DoubtKind.LEFT_OUT: "an update stood when its learner went on to these weights, and their lineage leaves it out: a "
    "learner's weights have all that it committed",
    DoubtKind.UNDONE: "the lineage names an update that was undone: it is in these weights, which are orphaned for it",
    DoubtKind.NO_GENERATED: "a row was trained on that the log does not know: its task is not known",
    DoubtKind.NO_REWARD: "a row was trained on whose reward is not in the log",
    DoubtKind.NOT_PUBLISHED: "rows were trained on whose prompt hash or task id was not published, or truncated: they "
    "cannot be compared with what is asked for",
    DoubtKind.TAKEN_AS_FACT: "the ledger did not give leave: what the trainer says it did is taken as a fact",
    DoubtKind.DROPPED: "rows were held and dropped: that they were not trained on is the trainer's word",
    DoubtKind.DECLARED: "nobody checked the artifact hash against the weights: it was declared",
    DoubtKind.UNDECIDED: "records at the end have no decision yet: the proof ends before them",
}


@dataclass(frozen=True, slots=True)
class Doubt:
    """One thing the log cannot tell. `about`: which policy, update or trajectories; `offset`: where it shows."""

    kind: DoubtKind
    about: str
    offset: int | None = None


@dataclass(frozen=True, slots=True)
class ProvenPolicy:
    """A policy of the lineage. `source_version`: whose weights it continues, or for a roll-back has again; None for the
    initial one. `prepared_chain`: the chain of the decision on its PolicyPrepared."""

    version: int
    label: str
    artifact: Artifact
    parent_version: int | None = None
    rollback_of: int | None = None
    update_ids: tuple[str, ...] = ()
    prepared_offset: int = 0
    prepared_chain: str = ""
    activated_offset: int | None = None
    abandoned_offset: int | None = None

    @property
    def source_version(self) -> int | None:
        return self.parent_version if self.rollback_of is None else self.rollback_of


@dataclass(frozen=True, slots=True)
class ProvenUpdate:
    """An update of the lineage, or one that cannot be ruled out. `policy_version`: the policy that adds it, None where
    none does; `steps`: how many trajectories each optimizer step had; `reason`: of the decision on its Commit."""

    update_id: str
    membership: Membership
    standing: Standing
    policy_version: int | None
    learner_id: str = ""
    epoch: int | None = None
    rollout_id: int | None = None
    steps: tuple[int, ...] = ()
    trajectories: int = 0
    dropped: tuple[DroppedItem, ...] = ()
    commit_offset: int | None = None
    decision_offset: int | None = None
    undone_offset: int | None = None
    reason: str = ""


@dataclass(frozen=True, slots=True)
class ProvenReward:
    """A reward as its service gave it."""

    raw_reward: float
    components: tuple[NamedNumber, ...]
    rule: RewardIdentity
    remote: bool
    label_hash: str


@dataclass(frozen=True, slots=True)
class ProvenTrajectory:
    """A trajectory that an update trained on, in these of its optimizer steps. `task` and `reward` are None where the
    log does not have them; `reason`: what the decision on the Commit says of it."""

    trajectory_id: str
    update_id: str
    membership: Membership
    steps: tuple[int, ...]
    group_id: str
    task: TaskSource | None
    purpose: Purpose | None
    behavior: tuple[PolicyRef, ...]
    contract_hash: str
    reward: ProvenReward | None
    generated_offset: int | None
    reward_offset: int | None
    lag: int | None
    mean_abs_log_ratio: float | None
    reason: str


class Found(StrEnum):
    """What became of a row of a task that was asked for."""

    IN_WEIGHTS = "in_weights"
    NOT_RULED_OUT = "not_ruled_out"
    DROPPED = "dropped"
    OTHER_WEIGHTS = "other_weights"


@dataclass(frozen=True, slots=True)
class Hit:
    """A trajectory of a task that was asked for, in an update. `asked`: the name that asks."""

    asked: str
    found: Found
    trajectory_id: str
    update_id: str
    generated_offset: int
    commit_offset: int


@dataclass(frozen=True, slots=True)
class Absence:
    """The answer about tasks that should not have been trained on. `known_prompt_hashes` and `known_task_ids`: how many
    of those that ask occur in the run at all, trained on or not; `open_questions`: doubts that leave room for them;
    `hits` has also rows that were dropped or went into other weights, which count for nothing here."""

    prompt_hashes: int
    task_ids: int
    known_prompt_hashes: int
    known_task_ids: int
    hits: tuple[Hit, ...]
    open_questions: tuple[Doubt, ...]

    @property
    def occurring(self) -> int:
        """How many of the names occur in the run."""
        return self.known_prompt_hashes + self.known_task_ids

    @property
    def warning(self) -> str:
        """What is doubtful about the names themselves; empty where some of each kind occur in the run."""
        counts = {
            "prompt hashes": (self.prompt_hashes, self.known_prompt_hashes),
            "task ids": (self.task_ids, self.known_task_ids),
        }
        unknown = [f"none of the {kind} ({asked:,})" for kind, (asked, known) in counts.items() if asked and not known]
        if not unknown:
            return ""
        return (
            f"the run knows {' and '.join(unknown)}, trained on or not: nothing shows that its clients publish them in "
            "this form; ask by other names, too, or with the key of their redaction"
        )

    @property
    def present(self) -> tuple[Hit, ...]:
        return tuple(hit for hit in self.hits if hit.found in (Found.IN_WEIGHTS, Found.NOT_RULED_OUT))

    @property
    def proven(self) -> bool:
        """Whether none of them was trained on; see `warning`, too."""
        return not self.present and not self.open_questions


@dataclass(frozen=True, slots=True)
class Proof:
    """Everything that went into a policy's weights. `policies`: its lineage, the initial one first; `updates` in that
    order, then those that cannot be ruled out; `chain`: the run's head, which vouches for all of it."""

    run_id: str
    lifecycle: str
    partition: int
    observed: bool
    policies: tuple[ProvenPolicy, ...]
    updates: tuple[ProvenUpdate, ...]
    trajectories: tuple[ProvenTrajectory, ...]
    doubts: tuple[Doubt, ...]
    sequence: int
    chain: str
    fold_version: int
    decided_to: int
    absence: Absence | None = None

    @property
    def policy(self) -> ProvenPolicy:
        return self.policies[-1]
