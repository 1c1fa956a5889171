"""The processor's answer: exactly one `Decision` for each lifecycle record. No timestamps inside."""

from enum import StrEnum

from pydantic import Field

from rollbook.schemas.records.common import LearnerRef, PolicyRef
from rollbook.schemas.types import Count, Digest, Finite, Flag, Id, NonNegative, Part, RunId, Text


class Outcome(StrEnum):
    """What became of a record."""

    ACCEPTED = "accepted"
    REJECTED = "rejected"
    DUPLICATE = "duplicate"
    PENDING = "pending"
    INVALID = "invalid"
    UNDECODABLE = "undecodable"


class SourcePosition(Part):
    """The record that is decided."""

    partition: Count = Field(description="Partition of the lifecycle topic.")
    offset: Count = Field(description="Its offset.")
    sha256: Digest = Field(description="sha256 of its value.")


class Subject(Part):
    """What the record is about."""

    kind: Id = Field(description="run, contract, trajectory, reward, learner, update, policy or worker.")
    id: Text = Field(description="Its name; the version in decimal for a policy.")
    artifact_hash: Text = Field(default="", description="Artifact hash where it is a policy.")


class ItemDecision(Part):
    """What became of one trajectory."""

    trajectory_id: Id = Field(description="The trajectory.")
    reason: Id = Field(description="Why; see the reference of reasons.")
    state_before: Text | None = Field(default=None, description="Its state before; none: unknown.")
    state_after: Text | None = Field(default=None, description="Its state after.")
    revision_before: Count | None = Field(default=None, description="Its revision before.")
    revision_after: Count | None = Field(default=None, description="Its revision after.")
    lag: int | None = Field(default=None, description="Learner's number minus the oldest model span's, in lag_unit.")
    freshness: Text | None = Field(default=None, description="future, fresh, tolerated or stale.")
    mean_abs_log_ratio: NonNegative | None = Field(default=None, description="Mean |current - behavior|, nats.")
    generated_offset: Count | None = Field(default=None, description="Offset of its Generated in this partition.")
    reward_offset: Count | None = Field(default=None, description="Offset of its RewardReady in this partition.")


class Released(Part):
    """A kept fact whose turn came with this record."""

    offset: Count = Field(description="Offset of the kept record.")
    record_type: Id = Field(description="Its type.")
    subject_id: Id = Field(description="Trajectory, worker or policy it is about.")
    reason: Id = Field(description="What became of it.")


class MassChange(Part):
    """Many trajectories or policies changed at once."""

    predicate: Text = Field(description="Which ones.")
    count: Count = Field(description="How many.")
    digest: Digest = Field(
        description="sha256 over their ids, sorted, joined by newlines; over nothing where they are forgotten."
    )
    first_ids: tuple[Id, ...] = Field(description="The first 100 of them, sorted.")


class Decision(Part):
    """Everything needed to know why, and a chain whose head vouches for the whole prefix."""

    run_id: Id = Field(description="The run; for undecodable and misplaced records the partition's pseudo-run.")
    sequence: Count = Field(description="Counts the decisions of the run, from 1.")
    source: SourcePosition = Field(description="The record decided.")
    record_type: Text = Field(description="Its type; empty when undecodable.")
    event_id: Text = Field(description="Its event id; empty when undecodable.")
    outcome: Outcome = Field(description="What became of it.")
    violation: Flag = Field(default=False, description="A rule was broken: observe mode, or an unreserved Commit.")
    reason: Id = Field(description="Why; see the reference of reasons.")
    detail: Text = Field(default="", description="Field or figure that explains the reason.")
    subject: Subject | None = Field(default=None, description="What it is about.")
    update_id: Text | None = Field(default=None, description="The update it belongs to.")
    learner: LearnerRef | None = Field(default=None, description="The learner and its current epoch.")
    active_policy: PolicyRef | None = Field(default=None, description="The active policy after this record.")
    config_version: Count = Field(description="Configuration in force; 0 before the first.")
    fold_version: Count = Field(description="Rules in force; 0 before the first configuration.")
    missing_workers: tuple[Id, ...] = Field(default=(), description="Required workers without a report.")
    mismatched_workers: tuple[Id, ...] = Field(default=(), description="Required workers that serve something else.")
    items: tuple[ItemDecision, ...] = Field(default=(), description="What became of each trajectory named.")
    released: tuple[Released, ...] = Field(default=(), description="Kept facts whose turn came.")
    mass_changes: tuple[MassChange, ...] = Field(default=(), description="Roll-backs, orphans and the like.")
    chain: Digest = Field(description="sha256 over previous chain, source sha256 and this record without chain.")


class DeadLetter(Part):
    """A record that could not be decoded; its bytes stay in `lifecycle`."""

    topic: Id = Field(description="Topic.")
    partition: Count = Field(description="Partition.")
    offset: Count = Field(description="Offset.")
    size: Count = Field(description="Bytes of its value.")
    sha256: Digest = Field(description="sha256 of its value.")
    error: Text = Field(description="What was wrong with it.")


class VersionCount(Part):
    """Live trajectories of one behavior version in one state."""

    version: Count = Field(description="Oldest behavior version of the trajectory.")
    state: Id = Field(description="Lifecycle state.")
    count: Count = Field(description="How many.")


class Tally(Part):
    """How often something has happened in the run so far, also to what is forgotten by now."""

    name: Id = Field(description="What: an event of the lifecycle, with its reason where it is a failure; a refusal.")
    count: Count = Field(description="How often.")


class LagCount(Part):
    """Trajectories at one lag."""

    lag: int = Field(description="Lag, in the run's lag unit; of the consumed 1,000 stands for more, -1 for less.")
    count: Count = Field(description="How many.")


class DriftBin(Part):
    """Rows at the drift gate whose mean |current - behavior| lies in one interval."""

    up_to: NonNegative | None = Field(description="Its upper bound in nats, included; none: all above the others.")
    admitted: Count = Field(description="Rows admitted so far.")
    refused: Count = Field(description="Rows refused so far for their drift.")


class DriftFloor(Part):
    """Drift of rows at lag 0, admitted and refused: engine mismatch, since the policy is the same."""

    version: Count = Field(description="Their oldest behavior version.")
    rows: Count = Field(description="How many were judged.")
    mean_abs_log_ratio: NonNegative = Field(
        description="Mean over them in nats; summed in billionths, of a row at most 1,000."
    )


class RefusalCount(Part):
    """Refusals for one reason."""

    record_type: Text = Field(description="The record refused; of Reserve and Admit rows are counted, not records.")
    reason: Id = Field(description="Why; see the reference of reasons.")
    count: Count = Field(description="How many so far.")


class FailureCount(Part):
    """Failures at one stage for one cause."""

    stage: Id = Field(description="generation or reward.")
    cause: Text = Field(description="Why.")
    count: Count = Field(description="How many so far.")


class OpenUpdate(Part):
    """An update that has not ended."""

    update_id: Id = Field(description="Its id.")
    learner: LearnerRef = Field(description="Its learner.")
    status: Id = Field(description="open or started.")
    held: Count = Field(description="Trajectories that it holds.")
    in_doubt: Flag = Field(description="Its lease expired after its start: its rows may be in living weights.")
    opened_sequence: Count = Field(description="Sequence of its first Reserve.")
    last_activity_offset: Count = Field(description="Offset of its last Reserve, Admit or Renew: its lease runs since.")
    lease_ms: Count = Field(description="Its lease; 0: none.")


class WorkerReport(Part):
    """What a worker last reported, or that a required one has not."""

    worker_id: Id = Field(description="Its id.")
    required: Flag = Field(description="Whether an activation needs its ack.")
    serves: PolicyRef | None = Field(description="What it serves; none: it has not reported, or failed to load.")
    serves_active: Flag = Field(description="Whether that is the active policy.")
    failure: Text = Field(description="Why it does not serve.")
    incarnation: Count | None = Field(description="Its incarnation; none: it has not reported.")
    report_seq: Count | None = Field(description="Number of the report.")
    offset: Count | None = Field(description="Offset of the report.")


class FreshnessSnapshot(Part):
    """How stale is what is left, after one decision."""

    run_id: RunId = Field(description="The run.")
    sequence: Count = Field(description="Sequence of the last decision it contains.")
    active_policy: PolicyRef | None = Field(description="The active policy.")
    lag_unit: Id = Field(description="Unit of the lags below.")
    max_lag: Count = Field(description="Largest tolerated lag.")
    by_version: tuple[VersionCount, ...] = Field(
        description="Live trajectories, by version and state; of very many versions the newest."
    )
    ready_fresh: Count = Field(description="Rewarded, lag 0 against the active policy.")
    ready_tolerated: Count = Field(description="Rewarded, lag 1 to max_lag.")
    ready_expiring: Count = Field(description="Rewarded, lag equal to max_lag: stale with the next activation.")
    ready_stale: Count = Field(description="Rewarded, lag above max_lag.")
    open_updates: tuple[Id, ...] = Field(description="The first 100 updates reserved or started, by first Reserve.")
    open_update_count: Count = Field(default=0, description="All of them.")
    mean_lag: Finite | None = Field(description="Mean lag of the ready; none when nothing is ready.")
    happened: tuple[Tally, ...] = Field(default=(), description="What became of trajectories so far, by name.")
    learner_policy: PolicyRef | None = Field(
        default=None, description="The learner's: the newest policy that is neither orphaned nor abandoned."
    )
    ready_future: Count = Field(default=0, description="Rewarded, lag below 0: of a policy ahead of the active one.")
    ready_unknown: Count = Field(default=0, description="Rewarded, but a span's policy is not prepared: no lag yet.")
    ready_by_lag: tuple[LagCount, ...] = Field(
        default=(), description="Rewarded, by lag against the active policy; of very many lags the lowest."
    )
    ready_stale_for_learner: Count = Field(
        default=0, description="Rewarded, lag above max_lag against the learner's policy: a Reserve refuses them now."
    )
    consumed_by_lag: tuple[LagCount, ...] = Field(
        default=(), description="Consumed so far, also what was rolled back since, by lag when last judged."
    )
    consumed_lag_unknown: Count = Field(default=0, description="Consumed so far without having been judged.")
    drift_gate: Text = Field(default="", description="required or off.")
    max_mean_abs_log_ratio: NonNegative = Field(default=0.0, description="Threshold of the drift gate, in nats.")
    drift: tuple[DriftBin, ...] = Field(
        default=(), description="Drift of rows at the gate so far; empty bins left out."
    )
    drift_floor: tuple[DriftFloor, ...] = Field(
        default=(), description="Drift at lag 0 by version: the 64 newest that are not below the floor."
    )
    refusals: tuple[RefusalCount, ...] = Field(default=(), description="Refusals so far, by record and reason.")
    failures: tuple[FailureCount, ...] = Field(default=(), description="Failures so far, by stage and cause.")
    updates: tuple[OpenUpdate, ...] = Field(default=(), description="Those of open_updates, with their leases.")
    in_doubt_count: Count = Field(default=0, description="Updates in doubt.")
    workers: tuple[WorkerReport, ...] = Field(
        default=(), description="The required ones, then all others; the first 256 of them."
    )
    worker_count: Count = Field(default=0, description="All of them.")
    workers_behind: Count = Field(default=0, description="Required ones that do not serve the active policy.")
    rows_per_update: Count | None = Field(
        default=None, description="Most rows of an update, of the last 8 commits and those started; none: none yet."
    )
    updates_left: Count = Field(
        default=0, description="Updates, from the next one on, that can still train on what is generated now."
    )
    capacity: Count | None = Field(
        default=None, description="How many more trajectories begun now find their update; none: not known yet."
    )
    figures_since: Count = Field(
        default=0,
        description="First decision counted by consumed_by_lag, drift and drift_floor; 0: none yet.",
    )
