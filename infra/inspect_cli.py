"""`rollbook decisions --run R` and `rollbook freshness --run R`: what the processor has said of a run."""

import json
from collections import Counter
from collections.abc import Sequence
from itertools import islice
from typing import Annotated

import typer
from rich.console import Console
from rich.table import Table
from rich.text import Text

from rollbook.infra.settings import Settings, Topic
from rollbook.replay.history.decisions import Decided, DecisionLog
from rollbook.replay.history.kafka import KafkaLog
from rollbook.replay.text import plural, visible
from rollbook.schemas.codec import decode_as
from rollbook.schemas.errors import AnswerNo
from rollbook.schemas.partition import partition_of
from rollbook.schemas.records.decision import Decision, FreshnessSnapshot

app = typer.Typer(help="Look at what the processor has said of a run.")

_SHOWN = 100
_REASONS_SHOWN = 4
# Where no person looks a line is a record: nothing is folded. The longest text that a decision has is 4,096 long.
_WIDTH_WITHOUT_TERMINAL = 100_000
_COLUMNS = ("sequence", "offset", "record", "outcome", "reason", "subject", "update", "items")

Run = Annotated[str, typer.Option("--run", help="The run.", show_default=False)]
AsJson = Annotated[bool, typer.Option("--json", help="JSON instead of a table.")]


@app.command(epilog="Example: rollbook decisions --run my-run --limit 20")
def decisions(
    run: Run,
    limit: Annotated[
        int | None,
        typer.Option(min=1, show_default=f"{_SHOWN} in the table, all as JSON", help="Only the last N decisions."),
    ] = None,
    as_json: AsJson = False,
) -> None:
    """Print the decisions of a run: a table, or with --json each as one line.

    The offset is that of the lifecycle record decided. Exits 1 when the run has no decision.
    """
    settings = Settings.from_env()
    with KafkaLog(settings) as log:
        partition = partition_of(run, log.partitions(settings.topic(Topic.LIFECYCLE)))
        known = DecisionLog(log, settings.topic(Topic.DECISIONS), partition)
        if as_json and limit is None:
            found = sum(1 for decided in known.read() if decided.decision.run_id == run and _print_json(decided))
        else:
            last = _last(known, run, limit or _SHOWN)
            found = len(last)
            _print_last(last, as_json)
    if not found:
        raise _unknown(run, settings, "decision")


@app.command(epilog="Example: rollbook freshness --run my-run")
def freshness(run: Run, as_json: AsJson = False) -> None:
    """Print how stale the rows of a run are: the last figures that the processor has committed.

    Exits 1 when there are none of this run.
    """
    settings = Settings.from_env()
    topic = settings.topic(Topic.FRESHNESS)
    with KafkaLog(settings) as log:
        partition = partition_of(run, log.partitions(topic))
        bounds = log.bounds(topic, partition)
        last: bytes | None = None
        if bounds.first < bounds.end:
            for stored in log.read(topic, partition, bounds.first, bounds.end):
                if stored.key == run.encode():
                    last = stored.value
    if last is None:
        raise _unknown(run, settings, "freshness snapshot")
    snapshot = decode_as(FreshnessSnapshot, last)
    if as_json:
        print(snapshot.model_dump_json())
    else:
        _print_freshness(snapshot)


def _last(log: DecisionLog, run: str, limit: int) -> list[Decided]:
    """The last decisions of one run, read from the end backwards: several runs share a partition."""
    backwards = (decided for decided in log.before(log.bounds.end) if decided.decision.run_id == run)
    return list(islice(backwards, limit))[::-1]


def _print_last(last: Sequence[Decided], as_json: bool) -> None:
    if as_json:
        for decided in last:
            _print_json(decided)
    elif last:
        _console().print(_decision_table(last))


def _print_json(decided: Decided) -> bool:
    print(json.dumps(decided.decision.model_dump(mode="json"), separators=(",", ":")))
    return True


def _decision_table(last: Sequence[Decided]) -> Table:
    total = last[-1].decision.sequence  # it counts the decisions of the run
    title = (
        plural(total, "decision") if len(last) == total else f"the last {len(last):,} of {plural(total, 'decision')}"
    )
    table = Table(title=title, box=None, title_justify="left", header_style="bold")
    for name in _COLUMNS:
        table.add_column(name, justify="right" if name in ("sequence", "offset") else "left", overflow="fold")
    for decided in last:
        decision = decided.decision
        subject = "" if decision.subject is None else f"{decision.subject.kind} {decision.subject.id}"
        reason = f"{decision.reason} ({decision.detail})" if decision.detail else decision.reason
        cells = (
            decision.sequence,
            decision.source.offset,
            decision.record_type,
            decision.outcome.value,
            reason,
            subject,
            decision.update_id or "",
            _items(decision),
        )
        table.add_row(*(_cell(cell) for cell in cells))
    return table


def _items(decision: Decision) -> str:
    """How many trajectories came out how: `3 reserved, 1 stale_policy`."""
    counts = Counter(item.reason for item in decision.items).most_common()
    shown = [f"{count} {reason}" for reason, count in counts[:_REASONS_SHOWN]]
    shown += [f"{change.count} {change.predicate}" for change in decision.mass_changes]
    shown += [f"{len(decision.released)} released"] if decision.released else []
    return ", ".join(shown) + (", ..." if len(counts) > _REASONS_SHOWN else "")


def _print_freshness(snapshot: FreshnessSnapshot) -> None:
    active = snapshot.active_policy
    figures = Table.grid(padding=(0, 2))
    for name, value in (
        ("run", snapshot.run_id),
        ("after decision", snapshot.sequence),
        ("active policy", "none" if active is None else f"{active.version} ({active.artifact_hash})"),
        ("largest tolerated lag", f"{snapshot.max_lag} ({snapshot.lag_unit})"),
        ("ready, fresh", snapshot.ready_fresh),
        ("ready, tolerated", snapshot.ready_tolerated),
        ("ready, stale with the next activation", snapshot.ready_expiring),
        ("ready, stale", snapshot.ready_stale),
        ("mean lag of the ready", "-" if snapshot.mean_lag is None else f"{snapshot.mean_lag:.3f}"),
        ("open updates", ", ".join(snapshot.open_updates) or "none"),
    ):
        figures.add_row(name, _cell(value))
    console = _console()
    console.print(figures)
    table = Table("version", "state", "trajectories", box=None, header_style="bold")
    for row in snapshot.by_version:
        table.add_row(_cell(row.version), _cell(row.state), _cell(row.count))
    if snapshot.by_version:
        console.print(table)


def _cell(value: object) -> Text:
    """An id is data: no markup, no control characters, no line of its own."""
    return Text(visible(value))


def _console() -> Console:
    console = Console()
    return console if console.is_terminal else Console(width=_WIDTH_WITHOUT_TERMINAL)


def _unknown(run: str, settings: Settings, what: str) -> AnswerNo:
    return AnswerNo(
        f"run {visible(run)} has no {what} on {settings.bootstrap_servers} (prefix {settings.topic_prefix}): check the "
        "name, and that `rollbook processor run` is up"
    )
