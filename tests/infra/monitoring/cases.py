"""What each alert must and must not tell: one line a case, over an hour in which all is well.

A value is a number that stays, or promtool's own notation: `0+16x60` begins at 0 and grows by 16 a minute.
"""

from collections.abc import Mapping
from dataclasses import dataclass

MINUTES = 60
AT = 40
"""The minute at which it is looked at."""
RUN = 'job="dashboard", instance="d1:8080", run="a"'
D = 'job="dashboard", instance="d1:8080"'
P = 'job="processor", instance="p1:9400"'
Value = float | str


def _run(short: str, labels: str = "") -> str:
    return f"rollbook_run_{short}{{{RUN}{', ' if labels else ''}{labels}}}"


FRESH, TOLERATED, STALE = (
    _run("ready_trajectories", f'freshness="{name}"') for name in ("fresh", "tolerated", "stale")
)
EXPIRING, ROWS, MAX_LAG = _run("ready_expiring_trajectories"), _run("update_rows"), _run("max_lag")
OPEN, CONSUMED, SEEN = _run("open_updates"), _run("consumed_total", 'lag="0"'), _run("snapshot_timestamp_seconds")
STALE_RESERVE = _run("refusals_total", 'record="Reserve", reason="stale_policy"')
DRIFTED = _run("refusals_total", 'record="Admit", reason="policy_drift"')
MALFORMED = _run("refusals_total", 'record="Reserve", reason="revision_conflict"')
NO_ACK = _run("refusals_total", 'record="Activate", reason="missing_worker_ack"')
ACTIVE = _run("active_policy_version")
TAKEN, COMMITTED = _run("events_total", 'event="reserve"'), _run("events_total", 'event="commit"')
BEHIND, OTHER_BEHIND = _run("worker_behind", 'worker="w0"'), _run("worker_behind", 'worker="w1"')
LEFT, LEASE, IN_DOUBT = _run("lease_left_seconds"), _run("lease_seconds"), _run("in_doubt_updates")
JUMP, LIMIT = _run("drift_floor_jump_nats"), _run("drift_limit_nats")
FLOOR, FLOOR_BEFORE = (_run("drift_floor_nats", f'which="{name}"') for name in ("newest", "previous"))
FLOOR_ROWS = _run("drift_floor_rows", 'which="newest"')
READ_BEHIND = f'rollbook_dashboard_reader_lag_records{{{D}, partition="0"}}'
CONNECTED, HIDDEN, INFO = (f"rollbook_dashboard_{n}{{{D}}}" for n in ("reader_connected", "runs_not_shown", "info"))
LAG = f'rollbook_processor_lag_records{{{P}, partition="3"}}'
STOPPED, DEAD, LOST, PROCESSOR = (
    f"rollbook_processor_{name}{{{P}}}"
    for name in ("stopped_partitions", "dead_letters_total", "unknown_outcomes_total", "info")
)
STARTED = f"process_start_time_seconds{{{P}}}"
OTHERS_START = 'process_start_time_seconds{job="node", instance="n1:9100"}'

HEALTHY: Mapping[str, Value] = {
    FRESH: 8,
    TOLERATED: 8,
    STALE: 0,
    EXPIRING: 4,
    ROWS: 16,
    MAX_LAG: 2,
    OPEN: 1,
    CONSUMED: "0+16x60",
    SEEN: "0+60x60",
    TAKEN: "0+16x60",
    COMMITTED: "0+16x60",
    STALE_RESERVE: "0+1x60",
    DRIFTED: "0+1x60",
    MALFORMED: 0,
    NO_ACK: 0,
    BEHIND: 0,
    OTHER_BEHIND: 0,
    LEFT: 50,
    LEASE: 60,
    IN_DOUBT: 0,
    FLOOR: 0.012,
    FLOOR_BEFORE: 0.011,
    JUMP: 0.001,
    LIMIT: 0.2,
    FLOOR_ROWS: 64,
    READ_BEHIND: 10,
    CONNECTED: 1,
    HIDDEN: 0,
    INFO: 1,
    LAG: 5,
    STOPPED: 0,
    DEAD: 7,
    LOST: 2,
    PROCESSOR: 1,
    STARTED: 100,
    OTHERS_START: 100,
}
"""A run that trains, its dashboard, its processor, and something else that Prometheus scrapes."""


@dataclass(frozen=True, slots=True)
class Fired:
    """An alert that is told: the labels that it has, and how its value reads."""

    labels: str
    value: str = ""


@dataclass(frozen=True, slots=True)
class Case:
    """What is otherwise than in HEALTHY, and what the alert then tells at minute 40; None takes a series away."""

    alert: str
    title: str
    changed: Mapping[str, Value | None]
    fires: tuple[Fired, ...] = ()


def since(minute: int, before: float, after: float) -> str:
    """One value until a minute, another from then on."""
    return f"{before}+0x{minute - 1} {after}+0x{MINUTES - minute}"


_A = (Fired('job="dashboard", run="a"'),)


def _a(value: str) -> tuple[Fired, ...]:
    return (Fired('job="dashboard", run="a"', value),)


def _on(of: str, value: str = "") -> tuple[Fired, ...]:
    return (Fired(of, value),)


_STALENESS = "RollbookStalenessNearLimit"
_STARVING = "RollbookReadyQueueStarving"
_EXPIRE = "RollbookReadyAboutToExpire"
_REFUSALS = "RollbookRefusalsRising"
_ACTIVATION = "RollbookActivationRefused"
_ACK = "RollbookWorkerWithoutAck"
_LEASE = "RollbookLeaseNearExpiry"
_DOUBT = "RollbookUpdateInDoubt"
_FLOOR = "RollbookDriftFloorJump"
_SILENT = "RollbookRunSilent"
_READER = "RollbookDashboardBehind"
_CUT = "RollbookDashboardDisconnected"
_NOT_SHOWN = "RollbookRunsNotShown"
_NO_DASHBOARD = "RollbookDashboardMissing"
_STOPPED = "RollbookPartitionStopped"
_PROCESSOR = "RollbookProcessorBehind"
_RESTARTS = "RollbookProcessorRestarting"
_UNKNOWN = "RollbookOutcomesUnknown"
_DEAD = "RollbookDeadLetters"
_NO_PROCESSOR = "RollbookProcessorMissing"

_WAITS: Mapping[str, Value | None] = {
    FRESH: 3, TOLERATED: 4, EXPIRING: 0, OPEN: 0, CONSUMED: "0+16x20 320+0x39", TAKEN: "0+16x20 320+0x39",
}  # fmt: skip
_REFUSED = _on('job="dashboard", run="a", reason="missing_worker_ack"')
_JUMPED: Mapping[str, Value | None] = {FLOOR: 0.05, FLOOR_BEFORE: 0.02, JUMP: 0.03, FLOOR_ROWS: 8}
_TWICE = 'job="dashboard", instance="d2:8080", run="a"'

CASES = (
    # Staleness near the limit: what is at the limit or above it, of all that has a lag.
    Case(_STALENESS, "most is at the limit or stale", {EXPIRING: 10, STALE: 4, ROWS: 99}, _a("70%")),
    Case(_STALENESS, "half of it is at the limit", {EXPIRING: 8}),
    Case(_STALENESS, "on-policy, all is always at the limit", {EXPIRING: 16, FRESH: 16, TOLERATED: 0, MAX_LAG: 0}),
    Case(
        _STALENESS,
        "on-policy, half of it is stale",
        {EXPIRING: 8, FRESH: 8, STALE: 32, TOLERATED: 0, MAX_LAG: 0},
        _a("80%"),
    ),
    Case(_STALENESS, "only for a minute", {EXPIRING: since(39, 4, 15)}),
    Case(_STALENESS, "nothing is ready", {FRESH: 0, TOLERATED: 0, EXPIRING: 0}),
    # The trainer waits.
    Case(_STARVING, "too little is ready, and nothing was trained on for long", _WAITS, _a("7")),
    Case(_STARVING, "the last of it came 8 minutes ago", {**_WAITS, SEEN: "0+60x32 1920+0x27"}, _a("7")),
    Case(_STARVING, "an update is under way", {**_WAITS, OPEN: 1}),
    Case(_STARVING, "an update was trained 5 minutes ago", {**_WAITS, CONSUMED: "0+16x35 576+0x24"}),
    Case(_STARVING, "enough is ready", {**_WAITS, FRESH: 12}),
    Case(_STARVING, "stale rows do not help it", {**_WAITS, STALE: 40}, _a("7")),
    Case(_STARVING, "before the first update nobody knows how many it takes", {**_WAITS, ROWS: None}),
    Case(_STARVING, "the run is silent", {**_WAITS, SEEN: "0+60x25 1500+0x34"}),
    Case(_STARVING, "only for two minutes", {**_WAITS, FRESH: since(38, 16, 3)}),
    # More goes stale with the next activation than the next update takes.
    Case(_EXPIRE, "more than an update takes", {EXPIRING: 17}, _a("17")),
    Case(_EXPIRE, "what the next update takes", {EXPIRING: 16}),
    Case(_EXPIRE, "on-policy", {EXPIRING: 17, MAX_LAG: 0}),
    Case(_EXPIRE, "just now", {EXPIRING: since(40, 4, 17)}),
    # The share of the rows that the gates refuse.
    Case(_REFUSALS, "as many refused as taken", {STALE_RESERVE: "0+12x60", DRIFTED: "0+4x60"}, _a("50%")),
    Case(_REFUSALS, "more than a quarter", {STALE_RESERVE: "0+6x60"}, _a("30.43%")),
    Case(_REFUSALS, "drift alone", {STALE_RESERVE: 0, DRIFTED: "0+16x60"}, _a("50%")),
    Case(_REFUSALS, "a fifth", {STALE_RESERVE: "0+3x60", DRIFTED: "0+1x60"}),
    Case(_REFUSALS, "refused for what is no staleness", {MALFORMED: "0+99x60"}),
    Case(_REFUSALS, "an hour ago", {STALE_RESERVE: "0+99x9 900+0x50"}),
    Case(_REFUSALS, "nothing is taken or refused", {STALE_RESERVE: 0, DRIFTED: 0, TAKEN: 0}),
    Case(_REFUSALS, "just now", {STALE_RESERVE: "0+1x39 200+1x20"}),
    Case(
        _REFUSALS,
        "two dashboards tell of the same rows",
        {STALE_RESERVE: "0+3x60", STALE_RESERVE.replace(RUN, _TWICE): "0+3x60"},
    ),
    # A refused activation.
    Case(_ACTIVATION, "once, and it was not tried again", {NO_ACK: since(32, 0, 1), ACTIVE: 7}, _REFUSED),
    Case(_ACTIVATION, "again and again", {NO_ACK: "0+1x60", ACTIVE: 7}, _REFUSED),
    Case(_ACTIVATION, "until the workers had loaded it", {NO_ACK: since(33, 0, 9), ACTIVE: since(36, 7, 8)}),
    Case(_ACTIVATION, "within the last minutes", {NO_ACK: since(37, 0, 9), ACTIVE: 7}),
    Case(_ACTIVATION, "half an hour ago", {NO_ACK: since(10, 0, 1), ACTIVE: 7}),
    # A worker without an ack.
    Case(_ACK, "for long", {BEHIND: 1}, _on('job="dashboard", run="a", worker="w0"')),
    Case(_ACK, "while it loads the new weights", {BEHIND: since(37, 0, 1)}),
    # A lease that ends.
    Case(_LEASE, "most of it is gone", {LEFT: 9}, _a("15%")),
    Case(_LEASE, "it has run out", {LEFT: -3}, _a("-5%")),
    Case(_LEASE, "a quarter is left", {LEFT: 15}),
    Case(_LEASE, "there is none", {LEFT: None, LEASE: None}),
    Case(_DOUBT, "one", {IN_DOUBT: since(40, 0, 1)}, _a("1")),
    Case(_DOUBT, "no longer", {IN_DOUBT: since(40, 1, 0)}),
    # The drift floor.
    Case(_FLOOR, "more than twice, and a tenth of the limit", _JUMPED, _a("0.03")),
    Case(_FLOOR, "less than twice", {**_JUMPED, FLOOR_BEFORE: 0.026}),
    Case(_FLOOR, "within what never matters", {**_JUMPED, FLOOR: 0.021, FLOOR_BEFORE: 0.001, JUMP: 0.02}),
    Case(_FLOOR, "of few rows", {**_JUMPED, FLOOR_ROWS: 7}),
    Case(_FLOOR, "of the first version that has one", {**_JUMPED, FLOOR_BEFORE: None, JUMP: None}),
    Case(_FLOOR, "just now", {**_JUMPED, JUMP: since(40, 0.001, 0.03)}),
    # A run of which nothing comes.
    Case(_SILENT, "for a quarter of an hour and more", {SEEN: "0+60x20 1200+0x39"}, _a("20m 0s")),
    Case(_SILENT, "for a quarter of an hour", {SEEN: "0+60x25 1500+0x34"}),
    Case(_SILENT, "by one of two dashboards", {SEEN: 0, SEEN.replace(RUN, _TWICE): "0+60x60"}),
    # The dashboard.
    Case(
        _READER,
        "far",
        {READ_BEHIND: 5_001},
        _on('job="dashboard", instance="d1:8080", partition="0"', "5001"),
    ),
    Case(_READER, "not so far", {READ_BEHIND: 5_000}),
    Case(_READER, "while it catches up", {READ_BEHIND: since(39, 10, 90_000)}),
    Case(_CUT, "from Kafka", {CONNECTED: 0}, _on('job="dashboard", instance="d1:8080"')),
    Case(_CUT, "just now", {CONNECTED: since(40, 1, 0)}),
    Case(_NOT_SHOWN, "some", {HIDDEN: 3}, _on('job="dashboard", instance="d1:8080"', "3")),
    Case(_NOT_SHOWN, "for a moment", {HIDDEN: since(36, 0, 3)}),
    Case(_NO_DASHBOARD, "none", {INFO: None}, _on("")),
    Case(_NO_DASHBOARD, "it starts again", {INFO: "1+0x33 _x2 1+0x24"}),
    Case(_NO_DASHBOARD, "only for a moment", {INFO: "1+0x30"}),
    # The processor.
    Case(_STOPPED, "one", {STOPPED: since(40, 0, 1)}, _on('job="processor", instance="p1:9400"', "1")),
    Case(_STOPPED, "no longer", {STOPPED: since(40, 1, 0)}),
    Case(_PROCESSOR, "far", {LAG: 5_001}, _on('job="processor", partition="3"', "5001")),
    Case(_PROCESSOR, "not so far", {LAG: 5_000}),
    Case(_PROCESSOR, "while it catches up", {LAG: since(36, 10, 90_000)}),
    Case(
        _RESTARTS,
        "again and again",
        {STARTED: "100+0x15 1200+0x5 1500+0x5 1800+0x30"},
        _on('job="processor", instance="p1:9400"', "3"),
    ),
    Case(_RESTARTS, "in a roll-out", {STARTED: "100+0x15 1200+0x5 1500+0x36"}),
    Case(_RESTARTS, "something else does", {OTHERS_START: "100+0x15 1200+0x5 1500+0x5 1800+0x30"}),
    Case(_UNKNOWN, "many", {LOST: since(35, 2, 6)}, _on('job="processor", instance="p1:9400"', "4")),
    Case(_UNKNOWN, "a few", {LOST: since(35, 2, 5)}),
    Case(_UNKNOWN, "long ago", {LOST: since(10, 2, 40)}),
    Case(_DEAD, "one", {DEAD: since(38, 7, 8)}, _on('job="processor"', "1")),
    Case(_DEAD, "long ago", {DEAD: since(10, 7, 8)}),
    Case(_NO_PROCESSOR, "none", {PROCESSOR: None}, _on("")),
    Case(_NO_PROCESSOR, "only for a moment", {PROCESSOR: "1+0x34"}),
)
