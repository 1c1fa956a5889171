"""Every metric: one table of the processor's and the dashboard's, from which the objects are made, docs/reference is
written, and alert rules and panels take their names.

Labels are bounded: partitions by nature, states, events and reasons by their enums, runs and workers by a number, lags
and drift by fixed ranges.
"""

from rollbook.processors.freshness import MOST_WORKERS as LISTED_WORKERS
from rollbook.processors.ledger.figures import BOUNDS
from rollbook.processors.metric import MOST_RUNS, OTHER_RUNS, Kind, Metric

PROCESSOR_PREFIX = "rollbook_processor_"
RUN_PREFIX = "rollbook_run_"
DASHBOARD_PREFIX = "rollbook_dashboard_"
UNDECODABLE_TYPE = "undecodable"
OTHER = "other"
MOST_WORKERS = 64
"""Of a run, that have labels of their own."""

_SECONDS = (0.002, 0.005, 0.01, 0.02, 0.05, 0.1, 0.2, 0.5, 1.0, 2.0, 5.0, 10.0, 30.0, 60.0, 300.0)
_RECORDS = (1, 10, 50, 100, 250, 500, 1_000, 2_500, 5_000)
_BYTES = (1_024, 16_384, 131_072, 524_288, 1_048_576, 2_097_152, 4_194_304, 8_388_608)
_C, _G, _H = Kind.COUNTER, Kind.GAUGE, Kind.HISTOGRAM


def _of_processor(
    short: str, kind: Kind, labels: tuple[str, ...], unit: str, help: str, buckets: tuple[float, ...] = ()
) -> Metric:
    return Metric(f"{PROCESSOR_PREFIX}{short}", kind, labels, unit, help, buckets)


def _of_run(short: str, unit: str, help: str, *labels: str, kind: Kind = _G, buckets: tuple[float, ...] = ()) -> Metric:
    return Metric(f"{RUN_PREFIX}{short}", kind, ("run", *labels), unit, help, buckets)


def _of_dashboard(short: str, kind: Kind, labels: tuple[str, ...], unit: str, help: str) -> Metric:
    return Metric(f"{DASHBOARD_PREFIX}{short}", kind, labels, unit, help)


INFO = _of_processor(
    "info",
    _G,
    ("name", "version", "fold_version"),
    "",
    "Always 1; the labels say which processor this is.",
)
RECORDS = _of_processor(
    "records_total",
    _C,
    ("type", "outcome"),
    "records",
    f"Lifecycle records decided, by type (`{UNDECODABLE_TYPE}` where there is none) and outcome of the decision.",
)
DEAD_LETTERS = _of_processor(
    "dead_letters_total", _C, (), "records", "Dead letters written, one an undecodable record."
)
LEASES = _of_processor(
    "leases_expired_total",
    _C,
    (),
    "updates",
    "Updates that the lease clerk ended (accepted expiries).",
)
LAG = _of_processor(
    "lag_records",
    _G,
    ("partition",),
    "records",
    "Records behind the end of the log, as of at most a second ago.",
)
OFFSET = _of_processor(
    "decided_offset",
    _G,
    ("partition",),
    "offset",
    "The last lifecycle offset whose decision is committed.",
)
ASSIGNED = _of_processor("assigned_partitions", _G, (), "partitions", "Partitions that this instance has now.")
STOPPED = _of_processor(
    "stopped_partitions",
    _G,
    (),
    "partitions",
    "Partitions stopped before a record that this version cannot fold: somebody must act.",
)
FOLD = _of_processor("fold_seconds", _H, (), "seconds", "Folding time of a committed batch.", _SECONDS)
RUN_FOLD = _of_processor(
    "run_fold_seconds_total",
    _C,
    ("run",),
    "seconds",
    f"Folding time of committed records by run: of at most {MOST_RUNS} runs, the others pooled as `{OTHER_RUNS}`; "
    "`~partition-N` stands for records of no run. A run gives its place away when it is closed, or silent for an hour.",
)
TRANSACTION = _of_processor(
    "transaction_seconds",
    _H,
    (),
    "seconds",
    "Time of a committed transaction, from begin to commit.",
    _SECONDS,
)
OPEN = _of_processor(
    "open_transaction_seconds",
    _G,
    (),
    "seconds",
    "Age of the transaction that is open now, 0 without one: an open one hides all behind it.",
)
BATCH_RECORDS = _of_processor("batch_records", _H, (), "records", "Records in a committed batch.", _RECORDS)
BATCH_BYTES = _of_processor("batch_bytes", _H, (), "bytes", "Bytes of the record values in a committed batch.", _BYTES)
RESTORE = _of_processor(
    "restore_seconds",
    _H,
    (),
    "seconds",
    "Time to restore a partition; its count is that of the restores.",
    _SECONDS,
)
RESTORED_ROWS = _of_processor("restored_rows_total", _C, (), "records", "Ledger records read by restores.")
ABORTS = _of_processor("aborts_total", _C, (), "transactions", "Transactions aborted; their records were read again.")
UNKNOWN = _of_processor(
    "unknown_outcomes_total",
    _C,
    (),
    "transactions",
    "Transactions of which it was not known whether they committed; everything was restored.",
)
FENCES = _of_processor(
    "fences_total",
    _C,
    (),
    "fences",
    "Fences by a newer process of this name; the process ends by it.",
)

RUN_INFO = _of_run("info", "", "Always 1; the labels say how the run is judged.", "lag_unit", "drift_gate")
RUN_DECISIONS = _of_run("decisions_total", "records", "Decisions of the run so far.", kind=_C)
RUN_SNAPSHOT_AT = _of_run(
    "snapshot_timestamp_seconds",
    "seconds",
    "Time, in the log, of the last record that the figures contain. `time()` less this is their age; a run of which "
    "nothing comes has old ones.",
)
RUN_ACTIVE = _of_run("active_policy_version", "version", "Version of the active policy.")
RUN_LEARNER = _of_run("learner_policy_version", "version", "Version of the learner's policy: the newest that stands.")
RUN_MAX_LAG = _of_run("max_lag", "lag", "Largest tolerated lag, in the run's `lag_unit`.")
RUN_MEAN_LAG = _of_run("ready_mean_lag", "lag", "Mean lag of what is ready; not there while nothing is.")
RUN_READY = _of_run(
    "ready_trajectories",
    "trajectories",
    "Rewarded and not yet taken, against the active policy: fresh (lag 0), tolerated, stale, future, or unknown "
    "(a span's policy is not prepared).",
    "freshness",
)
RUN_READY_LAG = _of_run(
    "ready_by_lag_trajectories", "trajectories", "The same by lag, in fixed ranges (`future`: below 0).", "lag"
)
RUN_EXPIRING = _of_run(
    "ready_expiring_trajectories", "trajectories", "Ready at the largest tolerated lag: stale with the next activation."
)
RUN_STALE_FOR_LEARNER = _of_run(
    "ready_stale_for_learner_trajectories",
    "trajectories",
    "Ready, but stale for the learner's policy: a Reserve refuses them now.",
)
RUN_LIVE = _of_run("live_trajectories", "trajectories", "Live trajectories by state.", "state")
RUN_CAPACITY = _of_run(
    "capacity_trajectories",
    "trajectories",
    "How many more begun now find their update; not there until the first update has started.",
)
RUN_UPDATE_ROWS = _of_run(
    "update_rows", "trajectories", "Most rows of an update, of the last 8 commits and those started; not there before."
)
RUN_UPDATES_LEFT = _of_run(
    "updates_left", "updates", "Updates, from the next one on, that can still train on what is generated now."
)
RUN_EVENTS = _of_run(
    "events_total", "trajectories", "What happened to trajectories so far, by event of the lifecycle.", "event", kind=_C
)
RUN_CONSUMED = _of_run(
    "consumed_total",
    "trajectories",
    "Trained on so far, also what was rolled back since, by lag when last judged, in fixed ranges (`future`: below 0; "
    "`unknown`: never judged).",
    "lag",
    kind=_C,
)
RUN_REFUSALS = _of_run(
    "refusals_total",
    "refusals",
    f"Refusals so far, by type of record and reason: rows of Reserve and Admit, else records. `{OTHER}`: a type or "
    "reason that this version does not know.",
    "record",
    "reason",
    kind=_C,
)
RUN_FAILURES = _of_run(
    "failures_total",
    "trajectories",
    "Failures so far, by stage (generation, reward) and cause.",
    "stage",
    "cause",
    kind=_C,
)
RUN_DRIFT = _of_run(
    "drift_nats",
    "nats",
    "Mean |current - behavior| of the rows that Admit judged so far: admitted, or refused for it. It has no `_sum`: of "
    "each row its bin is kept.",
    "verdict",
    kind=_H,
    buckets=BOUNDS,
)
RUN_DRIFT_LIMIT = _of_run("drift_limit_nats", "nats", "Largest tolerated drift, `max_mean_abs_log_ratio`.")
RUN_FLOOR = _of_run(
    "drift_floor_nats",
    "nats",
    "Mean drift of rows at lag 0, which engine and trainer disagree in, of the newest version that has any and of the "
    "one before (`which`: newest, previous).",
    "which",
)
RUN_FLOOR_VERSION = _of_run("drift_floor_version", "version", "Which versions these are.", "which")
RUN_FLOOR_ROWS = _of_run("drift_floor_rows", "trajectories", "How many rows that is the mean of.", "which")
RUN_FLOOR_JUMP = _of_run("drift_floor_jump_nats", "nats", "The newest version's drift floor less the one before.")
RUN_OPEN_UPDATES = _of_run("open_updates", "updates", "Updates that are reserved or started.")
RUN_IN_DOUBT = _of_run(
    "in_doubt_updates", "updates", "Of these those whose lease ran out after their start: their rows may be in weights."
)
RUN_LEASE = _of_run(
    "lease_seconds", "seconds", "Shortest lease of the open updates that are not in doubt, where one has one."
)
RUN_LEASE_LEFT = _of_run(
    "lease_left_seconds", "seconds", "What is left of the lease that ends first, of updates that are not in doubt."
)
RUN_WORKERS = _of_run("workers", "workers", "Workers that are required or have reported.")
RUN_WORKERS_REQUIRED = _of_run("required_workers", "workers", f"Required ones, of the first {LISTED_WORKERS} workers.")
RUN_WORKERS_SILENT = _of_run(
    "silent_workers", "workers", f"Required ones that never reported, of the first {LISTED_WORKERS} workers."
)
RUN_WORKERS_BEHIND = _of_run("behind_workers", "workers", "Required ones that do not serve the active policy.")
RUN_WORKER_BEHIND = _of_run(
    "worker_behind",
    "",
    f"1 where a required worker does not serve the active policy, else 0: of at most {MOST_WORKERS} workers, those "
    "behind first.",
    "worker",
)
RUN_WORKER_VERSION = _of_run(
    "worker_policy_version",
    "version",
    "Version that the same workers serve; not there where one serves none.",
    "worker",
)
DASHBOARD_INFO = _of_dashboard("info", _G, ("version",), "", "Always 1; the label says which version it is.")
DASHBOARD_RUNS = _of_dashboard("runs", _G, (), "runs", "Runs that are known and not closed.")
DASHBOARD_RUNS_HIDDEN = _of_dashboard(
    "runs_not_shown",
    _G,
    (),
    "runs",
    f"Of these those that have no metrics here. At most {MOST_RUNS} have: a run gives its place away when it is "
    "closed or, where another wants it, silent for an hour.",
)
READER_CONNECTED = _of_dashboard(
    "reader_connected", _G, (), "", "1 while the reader of the dashboard reaches Kafka, else 0."
)
READER_LAG = _of_dashboard(
    "reader_lag_records",
    _G,
    ("partition",),
    "records",
    "Committed offsets of the decisions topic, markers included, that the dashboard has not read yet.",
)
READER_FOLDED = _of_dashboard("folded_records_total", _C, (), "records", "Records folded since this process began.")
READER_UNREADABLE = _of_dashboard(
    "unreadable_records_total",
    _C,
    (),
    "records",
    "Of these such that are no decision or snapshot, and were skipped: nobody but the processor may write there.",
)

TABLE = tuple(one for one in list(globals().values()) if isinstance(one, Metric))
"""All that are defined above, so that none can be forgotten."""
PROCESSOR = tuple(one for one in TABLE if one.name.startswith(PROCESSOR_PREFIX))
DASHBOARD = tuple(one for one in TABLE if one not in PROCESSOR)
