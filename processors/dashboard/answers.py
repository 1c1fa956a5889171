"""What the JSON API answers, and the page shows: typed, so that its description (OpenAPI) follows from it.

Times are milliseconds since 1970 (UTC) of the log: a decision has the time of the record that it decides. Figures that
begin with "so far" count from the run's first decision, those of a window only what fell into it.
"""

from enum import StrEnum

from pydantic import BaseModel, ConfigDict, Field

from rollbook.schemas.records.decision import FreshnessSnapshot


class Answer(BaseModel):
    """Frozen, with no field but the named."""

    model_config = ConfigDict(frozen=True, extra="forbid")


class Size(StrEnum):
    """Length of a window."""

    SECOND = "1s"
    TEN_SECONDS = "10s"
    MINUTE = "1m"
    TEN_MINUTES = "10m"


class Reading(StrEnum):
    """Where the dashboard stands with the log."""

    WAITING = "waiting"
    """No broker, or no topics yet: nothing was read."""
    CATCHING_UP = "catching_up"
    LIVE = "live"
    CUT_OFF = "cut_off"
    """What is shown was read before the broker went away."""


class Status(Answer):
    """The dashboard itself."""

    version: str = Field(description="Version of rollbook.")
    instance: str = Field(
        description="Changes with each start of the dashboard, and where it reads everything anew: what was told "
        "before is void."
    )
    now_ms: int = Field(description="The dashboard's clock.")
    reading: Reading = Field(description="waiting, catching_up, live or cut_off.")
    fault: str = Field(description="What keeps it from reading, and what to do; empty while it reads.")
    records: int = Field(description="Records folded since it started.")
    unreadable: int = Field(description="Of these such that are no decision or snapshot, and were skipped.")
    behind: int | None = Field(description="Offsets that are left to read, markers included; none: not known.")
    topic_prefix: str = Field(description="Prefix of the topics that it reads.")


class RunLine(Answer):
    """A run in the list of runs."""

    run_id: str = Field(description="The run.")
    first_ms: int = Field(description="Time of its first decision that was read.")
    last_ms: int = Field(description="Time of its last decision.")
    decisions: int = Field(description="Sequence of its last decision.")
    since: int = Field(
        description="Sequence of its first decision that is counted: above 1 where it had given its place to a busier "
        "run, or the topic does not go back further; 0 where no decision is left, and only its last snapshot is known."
    )
    closed: bool = Field(description="Whether it is closed.")
    active_version: int | None = Field(description="Its active policy.")
    ready: int | None = Field(description="Trajectories that wait to be trained on; none: no snapshot yet.")
    stale: int | None = Field(description="Of these the stale ones.")


class Runs(Answer):
    """All runs that are kept, the one with the newest decision first."""

    runs: tuple[RunLine, ...] = Field(description="The runs.")
    left_out: int = Field(description="Open runs that are not among them, because others are busier.")


class Count(Answer):
    """How often something was."""

    name: str = Field(description="What.")
    count: int = Field(description="How often.")


class Refusals(Answer):
    """Refusals of one record type for one reason; of Reserve and Admit rows are counted, else records."""

    record_type: str = Field(description="The record.")
    reason: str = Field(description="Why; see the reference of reasons.")
    count: int = Field(description="How many.")


class At(Answer):
    """How many at one lag, or of one version."""

    at: int = Field(description="The lag in the run's unit, or the version.")
    count: int = Field(description="How many.")


class DriftCount(Answer):
    """Rows at the drift gate, by mean |current - behavior|."""

    up_to: float | None = Field(description="Upper bound of the bin in nats, included; none: above the others.")
    admitted: int = Field(description="Admitted.")
    refused: int = Field(description="Refused for their drift.")


class Took(Answer):
    """Trajectories by the time from Generated to Commit."""

    up_to_s: float | None = Field(description="Upper bound of the bin in seconds, included; none: above the others.")
    count: int = Field(description="How many.")


class Totals(Answer):
    """What decisions counted for: those of a window, or all that were read of the run, from its first."""

    decisions: int = Field(description="Decisions.")
    stages: tuple[Count, ...] = Field(
        description="Trajectories by what became of them: dispatched, generated, rewarded, reserved, admitted, "
        "consumed, discarded. What a roll-back gives back and another update had trained on is in the snapshot alone."
    )
    failures: tuple[Count, ...] = Field(description="Failures by stage: generation, reward.")
    outcomes: tuple[Count, ...] = Field(description="Decisions by outcome.")
    violations: int = Field(description="Decisions that broke a rule (observe mode, unreserved commits).")
    refusals: tuple[Refusals, ...] = Field(description="Refusals by record and reason.")
    judged_by_lag: tuple[At, ...] = Field(description="Rows judged by Admit, by lag (64 stands for more, -1 for less).")
    consumed_by_lag: tuple[At, ...] = Field(
        description="Rows consumed, by the lag at which they were last judged (64: more)."
    )
    drift: tuple[DriftCount, ...] = Field(description="Drift of judged rows; empty bins left out.")
    took: tuple[Took, ...] = Field(description="From generation to consumption; empty bins left out.")
    took_count: int = Field(description="Consumed rows whose generation's time is known.")
    took_sum_s: float = Field(description="Sum of these times in seconds.")


class Window(Totals):
    """What happened in one window of event time."""

    start_ms: int = Field(description="Its start; it ends one length later, excluded.")
    ready_by_lag: tuple[At, ...] | None = Field(
        description="Ready at the window's last snapshot, by lag; none: no snapshot of it is kept (the topic is "
        "compacted)."
    )
    ready_by_version: tuple[At, ...] | None = Field(description="The same by oldest behavior version.")


class Series(Answer):
    """Windows of one length, in order of time; those without a decision or snapshot are left out."""

    run_id: str = Field(description="The run.")
    size: Size = Field(description="Length of the windows.")
    size_ms: int = Field(description="The same in milliseconds.")
    kept: int = Field(description="So many windows of this length are kept, counted back from the run's newest.")
    revision: int = Field(description="Ask with since=REVISION for the windows that changed afterwards.")
    windows: tuple[Window, ...] = Field(description="The windows.")


class Step(StrEnum):
    """How far an update has come."""

    RESERVED = "reserved"
    STARTED = "started"
    IN_DOUBT = "in_doubt"
    COMMITTED = "committed"
    ABORTED = "aborted"
    EXPIRED = "expired"
    ROLLED_BACK = "rolled_back"


class UpdateLine(Answer):
    """An update on the time line."""

    update_id: str = Field(description="Its id.")
    learner_id: str = Field(description="Its learner; empty where the first decision that was read names none.")
    step: Step = Field(description="How far it has come.")
    reserved_ms: int | None = Field(description="Its first Reserve (observe mode: none).")
    started_ms: int | None = Field(description="UpdateStarted.")
    ended_ms: int | None = Field(description="Commit, Abort or LeaseExpired; none: it is open.")
    reserved: int = Field(description="Rows reserved.")
    refused: int = Field(description="Rows that its Reserves and Admits refused.")
    consumed: int = Field(description="Rows consumed.")
    reason: str = Field(description="Why it was aborted.")
    lease_until_ms: int | None = Field(description="When its lease runs out; none: it has none, or has ended.")


class WorkerLine(Answer):
    """A worker on the activation board."""

    worker_id: str = Field(description="Its id.")
    required: bool = Field(description="Whether an activation needs its ack.")
    version: int | None = Field(description="What it serves; none: it has not reported, or failed to load.")
    artifact_hash: str = Field(description="Its hash.")
    serves_active: bool = Field(description="Whether that is the active policy.")
    failure: str = Field(description="Why it does not serve.")
    reported_ms: int | None = Field(description="Time of its last report; none: not known.")


class PolicyLine(Answer):
    """A policy on the activation board."""

    version: int = Field(description="Its version.")
    artifact_hash: str = Field(description="Hash of its artifact.")
    state: str = Field(
        description="prepared (also where it was written whole at once), committed, active, retired (was active) or "
        "abandoned."
    )
    orphaned: bool = Field(
        description="It contains an update that was undone; not told of one that was prepared out of an orphaned one."
    )
    prepared_ms: int | None = Field(description="PolicyPrepared.")
    committed_ms: int | None = Field(description="PolicyCommitted.")
    activated_ms: int | None = Field(description="The Activate that was accepted.")
    acks: tuple[str, ...] = Field(
        description="Workers that serve this version and hash now, of those that the board lists."
    )
    refused: str = Field(description="Why its last Activate was refused; empty: it was not.")
    refused_ms: int | None = Field(description="When.")
    missing_workers: tuple[str, ...] = Field(description="Required workers without a report then.")
    mismatched_workers: tuple[str, ...] = Field(
        description="Required workers that serve something else, at that refusal."
    )


class Activation(Answer):
    """Who serves what."""

    workers: tuple[WorkerLine, ...] = Field(description="Required ones first; at most 256.")
    policies: tuple[PolicyLine, ...] = Field(description="The newest 50, newest first.")


class DecisionLine(Answer):
    """A recent decision."""

    sequence: int = Field(description="Its number in the run.")
    time_ms: int = Field(description="Time of the record decided.")
    partition: int = Field(description="Partition of record and decision.")
    source_offset: int = Field(description="Offset of the record on the lifecycle topic.")
    offset: int = Field(description="Offset of the decision on the decisions topic.")
    record_type: str = Field(description="The record; empty: undecodable.")
    outcome: str = Field(description="accepted, rejected, duplicate, pending, invalid or undecodable.")
    violation: bool = Field(description="Whether it broke a rule.")
    reason: str = Field(description="Why.")
    detail: str = Field(description="Field or figure that explains the reason.")
    subject_kind: str = Field(description="What it is about; empty: nothing.")
    subject_id: str = Field(description="Its name.")
    update_id: str = Field(description="The update it belongs to; empty: none.")
    items: tuple[Count, ...] = Field(description="Rows by reason.")
    trajectory_ids: tuple[str, ...] = Field(description="The first 8 trajectories that it names.")


class Decisions(Answer):
    """Recent decisions, newest first."""

    run_id: str = Field(description="The run.")
    decisions: tuple[DecisionLine, ...] = Field(description="The decisions.")


class TrajectoryStep(Answer):
    """One decision about a trajectory."""

    sequence: int = Field(description="Its number in the run.")
    time_ms: int = Field(description="Time of the record decided.")
    source_offset: int = Field(description="Offset of the record on the lifecycle topic.")
    record_type: str = Field(description="The record.")
    outcome: str = Field(description="Outcome of the record.")
    reason: str = Field(description="Why, for this trajectory.")
    state_before: str | None = Field(description="Its state before; none: unknown, or not told.")
    state_after: str | None = Field(description="Its state after.")
    lag: int | None = Field(description="Its lag where it was judged.")
    mean_abs_log_ratio: float | None = Field(description="Its drift in nats where it was judged.")
    update_id: str = Field(description="The update; empty: none.")


class Trajectory(Answer):
    """What was decided about one trajectory, as far back as the dashboard remembers where decisions lie."""

    run_id: str = Field(description="The run.")
    trajectory_id: str = Field(description="The trajectory.")
    steps: tuple[TrajectoryStep, ...] = Field(description="In order.")
    complete: bool = Field(description="Whether decisions from before what is remembered can be ruled out.")
    more: str = Field(description="The command that folds the whole run for it.")


class Now(Answer):
    """A run at this moment."""

    run: RunLine = Field(description="The run.")
    snapshot: FreshnessSnapshot | None = Field(description="Its newest freshness snapshot; none: none was read yet.")
    snapshot_ms: int | None = Field(description="Time of the snapshot's last decision.")
    totals: Totals = Field(description="So far.")
    updates: tuple[UpdateLine, ...] = Field(
        description="The open and the newest ended ones, at most 100, newest first."
    )
    activation: Activation = Field(description="Who serves what.")
    decisions: tuple[DecisionLine, ...] = Field(description="The newest 50 decisions, newest first.")


class Frame(Answer):
    """One server-sent event: the whole state of the page but for windows that have not changed."""

    status: Status = Field(description="The dashboard.")
    runs: Runs = Field(description="All runs.")
    now: Now | None = Field(description="The run that was asked for; none: it is not known (yet).")
    series: Series | None = Field(description="Its windows that changed since the last event; at first all.")


class Problem(Answer):
    """An answer that is an error."""

    problem: str = Field(description="What was wrong, and what to do.")
