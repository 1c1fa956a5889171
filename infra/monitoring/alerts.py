"""The alerts: ONE table. The rules file is written from it; docs/incidents.md says of each what to do.

What is of a run is told by the dashboard, what is of the processor by the processor itself.
"""

from dataclasses import dataclass
from enum import StrEnum

from rollbook.infra.monitoring.promql import growth, of_run, one_of_run, selector, total
from rollbook.processors import metric_table as table

STALE_SHARE = 0.5
REFUSED_SHARE = 0.2
LEASE_SHARE = 0.25
FLOOR_TIMES = 2
FLOOR_SHARE_OF_LIMIT = 0.1
FLOOR_ROWS = 8
BEHIND_RECORDS = 5_000
SILENT_S = 900
_RUNS_ON_S = 600
"""A run of which nothing came for that long does not starve: it is silent, and that is another alert."""


class Severity(StrEnum):
    """Whether somebody is to be woken."""

    CRITICAL = "critical"
    WARNING = "warning"


class Source(StrEnum):
    """Who tells the metrics that the alert looks at; the groups of the rules file."""

    RUN = "run"
    DASHBOARD = "dashboard"
    PROCESSOR = "processor"


@dataclass(frozen=True, slots=True)
class Alert:
    """One alert; summary and description may use Prometheus' templates."""

    name: str
    source: Source
    severity: Severity
    for_s: int
    expr: tuple[str, ...]
    """Its lines."""
    summary: str
    description: str

    @property
    def anchor(self) -> str:
        """Its heading in docs/incidents.md."""
        return self.name.lower()


_EXPIRING = of_run(table.RUN_EXPIRING)
_STALE = one_of_run(table.RUN_READY, 'freshness="stale"')
_USABLE = total(of_run(table.RUN_READY, 'freshness=~"fresh|tolerated"'))
_FLOOR = one_of_run(table.RUN_FLOOR, 'which="newest"')
_FLOOR_BEFORE = one_of_run(table.RUN_FLOOR, 'which="previous"')
_FLOOR_OF = one_of_run(table.RUN_FLOOR_ROWS, 'which="newest"')
_REFUSED_ACTIVATIONS = total(growth(table.RUN_REFUSALS, "10m", 'record="Activate"'), "reason")
_HAS_LAG = f"and on (job, run) {of_run(table.RUN_MAX_LAG)} > 0"
_TOLERATES = f"({of_run(table.RUN_MAX_LAG)} > bool 0)"
"""Without any tolerated lag all that is ready is stale with the next activation, which is what is meant there."""
_GATES = 'record=~"Reserve|Admit", reason=~"stale_policy|policy_drift"'
_REFUSED = total(growth(table.RUN_REFUSALS, "10m", _GATES))
_TAKEN = total(growth(table.RUN_EVENTS, "10m", 'event="reserve"'))

OF_RUNS = (
    Alert(
        "RollbookStalenessNearLimit",
        Source.RUN,
        Severity.WARNING,
        120,
        (
            f"({_EXPIRING} * on (job, run) {_TOLERATES}",
            f"  + on (job, run) {_STALE})",
            f"/ on (job, run) ({_USABLE}",
            f"  + on (job, run) {_STALE}) > {STALE_SHARE}",
        ),
        "{{ $labels.run }}: {{ $value | humanizePercentage }} of what is ready is stale or about to become so",
        "Generation runs ahead of training, or weights reach the workers late: much of it will be refused as stale.",
    ),
    Alert(
        "RollbookReadyQueueStarving",
        Source.RUN,
        Severity.WARNING,
        300,
        (
            _USABLE,
            f"  < on (job, run) {of_run(table.RUN_UPDATE_ROWS)}",
            f"and on (job, run) {of_run(table.RUN_OPEN_UPDATES)} == 0",
            f"and on (job, run) {total(growth(table.RUN_CONSUMED, '10m'))} == 0",
            f"and on (job, run) time() - {of_run(table.RUN_SNAPSHOT_AT)} < {_RUNS_ON_S}",
        ),
        "{{ $labels.run }}: the trainer waits for rows, {{ $value }} are ready",
        "Nothing was trained on for 10 minutes, no update is open, and less is ready than an update takes.",
    ),
    Alert(
        "RollbookReadyAboutToExpire",
        Source.RUN,
        Severity.WARNING,
        60,
        (_EXPIRING, f"  > on (job, run) {of_run(table.RUN_UPDATE_ROWS)}", _HAS_LAG),
        "{{ $labels.run }}: {{ $value }} ready trajectories are stale with the next activation",
        "They are more than the next update takes, so that the rest was generated for nothing.",
    ),
    Alert(
        "RollbookRefusalsRising",
        Source.RUN,
        Severity.WARNING,
        120,
        (
            _REFUSED,
            f"/ on (job, run) ({_REFUSED}",
            f"  + on (job, run) {_TAKEN}) > {REFUSED_SHARE}",
        ),
        "{{ $labels.run }}: {{ $value | humanizePercentage }} of the rows at the gates are refused as stale or drifted",
        "In the last 10 minutes, of what Reserve and Admit judged.",
    ),
    Alert(
        "RollbookActivationRefused",
        Source.RUN,
        Severity.WARNING,
        300,
        (
            f"{_REFUSED_ACTIVATIONS} > 0",
            f"and on (job, run) {growth(table.RUN_ACTIVE, '10m', function='changes')} == 0",
        ),
        "{{ $labels.run }}: an activation was refused, and none has succeeded since: {{ $labels.reason }}",
        "The workers go on with the policy before, and what they generate grows older.",
    ),
    Alert(
        "RollbookWorkerWithoutAck",
        Source.RUN,
        Severity.WARNING,
        300,
        (f"{of_run(table.RUN_WORKER_BEHIND)} == 1",),
        "{{ $labels.run }}: worker {{ $labels.worker }} has not acknowledged the active policy",
        "It is required, and for 5 minutes it has not reported, reported a failure, or serves another policy.",
    ),
    Alert(
        "RollbookLeaseNearExpiry",
        Source.RUN,
        Severity.WARNING,
        0,
        (f"{of_run(table.RUN_LEASE_LEFT)} / on (job, run) {of_run(table.RUN_LEASE)} < {LEASE_SHARE}",),
        "{{ $labels.run }}: {{ $value | humanizePercentage }} of an update's lease is left",
        "Its learner has not renewed it in time: it may hang, or have ended.",
    ),
    Alert(
        "RollbookUpdateInDoubt",
        Source.RUN,
        Severity.CRITICAL,
        0,
        (f"{of_run(table.RUN_IN_DOUBT)} > 0",),
        "{{ $labels.run }}: updates in doubt: {{ $value }}",
        "The lease ran out after the update's start: its rows may be in weights, and nobody else gets them.",
    ),
    Alert(
        "RollbookDriftFloorJump",
        Source.RUN,
        Severity.WARNING,
        60,
        (
            f"{of_run(table.RUN_FLOOR_JUMP)} > on (job, run) {FLOOR_SHARE_OF_LIMIT} * {of_run(table.RUN_DRIFT_LIMIT)}",
            f"and on (job, run) {_FLOOR}",
            f"  > {FLOOR_TIMES} * {_FLOOR_BEFORE}",
            f"and on (job, run) {_FLOOR_OF} >= {FLOOR_ROWS}",
        ),
        "{{ $labels.run }}: the drift floor jumped by {{ $value }} nats with the newest version",
        "Rows of the same policy drift more than those of the version before: the engine serves other weights, or "
        "computes otherwise, than the trainer since the last sync.",
    ),
    Alert(
        "RollbookRunSilent",
        Source.RUN,
        Severity.WARNING,
        0,
        (f"time() - {of_run(table.RUN_SNAPSHOT_AT)} > {SILENT_S}",),
        "{{ $labels.run }}: the newest figures are {{ $value | humanizeDuration }} old",
        "Nothing of the run was decided since: nobody sends, the processor stands, or the run is over and not closed.",
    ),
)

OF_DASHBOARDS = (
    Alert(
        "RollbookDashboardBehind",
        Source.DASHBOARD,
        Severity.WARNING,
        120,
        (f"max by (job, instance, partition) ({selector(table.READER_LAG)}) > {BEHIND_RECORDS}",),
        "{{ $labels.instance }}: the dashboard is {{ $value }} records behind on partition {{ $labels.partition }}",
        "Its figures, and the alerts of runs, are that old.",
    ),
    Alert(
        "RollbookDashboardDisconnected",
        Source.DASHBOARD,
        Severity.WARNING,
        60,
        (f"min by (job, instance) ({selector(table.READER_CONNECTED)}) == 0",),
        "{{ $labels.instance }}: the dashboard does not reach Kafka",
        "It shows what it read before, and the alerts of runs look at that.",
    ),
    Alert(
        "RollbookRunsNotShown",
        Source.DASHBOARD,
        Severity.WARNING,
        300,
        (f"max by (job, instance) ({selector(table.DASHBOARD_RUNS_HIDDEN)}) > 0",),
        "{{ $labels.instance }}: runs without metrics: {{ $value }}",
        "More runs are open than have a place, and of these no alert would tell.",
    ),
    Alert(
        "RollbookDashboardMissing",
        Source.DASHBOARD,
        Severity.WARNING,
        300,
        (f"absent({selector(table.DASHBOARD_INFO)})",),
        "no dashboard of rollbook is scraped",
        "Without one no alert of a run can tell.",
    ),
)

OF_PROCESSORS = (
    Alert(
        "RollbookPartitionStopped",
        Source.PROCESSOR,
        Severity.CRITICAL,
        0,
        (f"max by (job, instance) ({selector(table.STOPPED)}) > 0",),
        "{{ $labels.instance }}: partitions that are stopped: {{ $value }}",
        "Each stands before a record that this version cannot fold: its runs wait, and the processor's log names it.",
    ),
    Alert(
        "RollbookProcessorBehind",
        Source.PROCESSOR,
        Severity.WARNING,
        300,
        (f"max by (job, partition) ({selector(table.LAG)}) > {BEHIND_RECORDS}",),
        "partition {{ $labels.partition }}: the processor is {{ $value }} records behind",
        "Trainers wait for their decisions, and figures are old.",
    ),
    Alert(
        "RollbookProcessorRestarting",
        Source.PROCESSOR,
        Severity.CRITICAL,
        0,
        (
            "max by (job, instance) (changes(process_start_time_seconds[30m])",
            f"  and on (job, instance) {selector(table.INFO)}) > 2",
        ),
        "{{ $labels.instance }}: the processor started {{ $value }} times in 30 minutes",
        "It ends again and again: its last log line says why.",
    ),
    Alert(
        "RollbookOutcomesUnknown",
        Source.PROCESSOR,
        Severity.WARNING,
        0,
        (f"max by (job, instance) (increase({selector(table.UNKNOWN)}[10m])) > 3",),
        "{{ $labels.instance }}: transactions whose outcome was not known, in 10 minutes: {{ $value | humanize }}",
        "After each of them everything is restored. The cluster does not answer in time.",
    ),
    Alert(
        "RollbookDeadLetters",
        Source.PROCESSOR,
        Severity.WARNING,
        0,
        (f"sum by (job) (increase({selector(table.DEAD_LETTERS)}[15m])) > 0",),
        "{{ $labels.job }}: records that could not be decoded, in 15 minutes: {{ $value | humanize }}",
        "Who wrote them has no decision: a client of another project or a newer version, or a broken one.",
    ),
    Alert(
        "RollbookProcessorMissing",
        Source.PROCESSOR,
        Severity.CRITICAL,
        120,
        (f"absent({selector(table.INFO)})",),
        "no processor of rollbook is scraped",
        "None runs, or Prometheus does not reach its endpoint. Without one nothing is decided.",
    ),
)

ALERTS = (*OF_RUNS, *OF_DASHBOARDS, *OF_PROCESSORS)
