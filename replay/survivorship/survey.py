"""Survey: derives a run's decisions again and counts what became of every trajectory, and what was never trained on.

with open_history("my-run.avro", run="my-run") as history:
    report = history.report()
    print(report.total.fates, report.starved)
"""

from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator

from rollbook.processors.freshness import snapshot
from rollbook.processors.ledger.fold import Ledger
from rollbook.processors.ledger.store import Run
from rollbook.replay.audit.audit import check_decided
from rollbook.replay.audit.decisions import Deriver, Differs, Stretch
from rollbook.replay.audit.findings import unfit
from rollbook.replay.audit.whole import check_begun, check_joined
from rollbook.replay.history.source import Bounds, LogSource
from rollbook.replay.progress import Watch
from rollbook.replay.survivorship.changes import Changes
from rollbook.replay.survivorship.fates import Fate, Part
from rollbook.replay.survivorship.result import (
    Became,
    Cause,
    OfLength,
    OfTask,
    OfVersion,
    Reached,
    SurvivorshipReport,
    distance_of,
    edges_of,
    mean,
    rewards_of,
)
from rollbook.replay.survivorship.row import Row, Task
from rollbook.replay.survivorship.seen import Seen
from rollbook.schemas.records.rollout import Purpose

_FATES = {fate: place for place, fate in enumerate(Fate)}


def survey(log: LogSource, stretch: Stretch, watch: Watch = lambda *_: None) -> SurvivorshipReport:
    """The report of a run, from its first record on. The log is streamed; memory grows with the run's trajectories.

    Raises BadInput where the history does not fit (with the place), does not begin with the run, or lies in files that
    do not join; OutOfRange, EnvironmentFault.
    """
    assert stretch.run_id is not None, "a report is of one run"
    check_joined(log, stretch)
    check_begun(log, stretch)
    ledger = Ledger(stretch.partition, log.partitions(stretch.lifecycle))
    changes = ledger.journal = Changes()
    run, seen, deriver = ledger.run(stretch.run_id), Seen(changes), Deriver(log, stretch, ledger)
    try:
        for derived in deriver.derive("counted", watch):
            seen.take(derived, run)
    except Differs as first:
        what = "what became of the trajectories of such a history cannot be said"
        raise unfit(first.finding, what) from None
    check_decided(stretch, deriver.decided, deriver.undecided)
    seen.judge_waiting(run)
    return _report(stretch, deriver, run, seen)


def _report(stretch: Stretch, deriver: Deriver, run: Run, seen: Seen) -> SurvivorshipReport:
    rows = list(seen.rows.values())
    rewards: dict[Part, list[float]] = {part: [] for part in Part}
    for row in rows:
        for part in row.parts() if row.reward is not None else ():
            rewards[part].append(row.reward or 0.0)
    edges = edges_of((*rewards[Part.ALL], *rewards[Part.EVALUATION]))
    causes = Counter((row.fate, row.why) for row in rows if row.why)
    head = run.head
    return SurvivorshipReport(
        run_id=run.run_id,
        lifecycle=stretch.lifecycle,
        partition=stretch.partition,
        within=Bounds(stretch.within.first, stretch.within.end),
        decided=deriver.decided,
        undecided=deriver.undecided,
        sequence=head.sequence,
        chain=head.chain,
        fold_version=head.fold_version,
        observed=head.config_version > 0 and run.observes,
        closed=head.closed,
        reached=_reached(rows),
        total=_became(rows),
        causes=tuple(Cause(*key, causes[key]) for key in sorted(causes, key=lambda key: (_FATES[key[0]], key[1]))),
        versions=tuple(OfVersion(version, _became(found)) for version, found in _by_version(rows)),
        tasks=tuple(_of_task(task, _became(found)) for task, found in _by_task(rows, seen)),
        lengths=tuple(OfLength(*size, _became(found)) for size, found in _by_length(rows)),
        edges=edges,
        rewards=tuple(rewards_of(part, values, edges) for part, values in rewards.items()),
        distance=distance_of(rewards[Part.CONSUMED], rewards[Part.NEVER_TRAINED]),
        happened=tuple((tally.name, tally.count) for tally in (snapshot(run).happened if head.config_version else ())),
    )


def _reached(rows: list[Row]) -> Reached:
    return Reached(
        known=len(rows),
        dispatched=sum(row.is_dispatched for row in rows),
        generated=sum(row.length is not None for row in rows),
        rewarded=sum(row.reward is not None for row in rows),
        reserved=sum(row.was_reserved for row in rows),
        admitted=sum(row.was_admitted for row in rows),
        trained=sum(row.was_trained for row in rows),
        consumed=sum(row.fate is Fate.CONSUMED for row in rows),
    )


def _became(rows: Iterable[Row]) -> Became:
    found, fates = list(rows), Counter[Fate]()
    rewards: list[float] = []
    consumed: list[float] = []
    for row in found:
        fate = row.fate
        fates[fate] += 1
        if row.reward is not None and row.purpose is not Purpose.EVAL:
            rewards.append(row.reward)
            if fate is Fate.CONSUMED:
                consumed.append(row.reward)
    counts = tuple((fate, fates[fate]) for fate in Fate if fates[fate])
    return Became(len(found), counts, len(rewards), mean(rewards), mean(consumed))


def _by_version(rows: list[Row]) -> Iterator[tuple[int, list[Row]]]:
    found: dict[int, list[Row]] = defaultdict(list)
    for row in rows:
        found[row.version].append(row)
    for version in sorted(found):
        yield version, found[version]


def _by_task(rows: list[Row], seen: Seen) -> Iterator[tuple[Task | None, list[Row]]]:
    found: dict[Task | None, list[Row]] = defaultdict(list)
    for row in rows:
        found[row.task or seen.tasks.get(row.group_id)].append(row)
    for task in sorted(found, key=lambda task: (task is None, task or ("", ""))):
        yield task, found[task]


def _of_task(task: Task | None, became: Became) -> OfTask:
    return OfTask(None, None, became) if task is None else OfTask(*task, became)


def _by_length(rows: list[Row]) -> Iterator[tuple[tuple[int | None, int | None], list[Row]]]:
    """In ranges that double: 1, 2, 3 to 4, 5 to 8 and so on."""
    found: dict[int | None, list[Row]] = defaultdict(list)
    for row in rows:
        found[None if row.length is None else (row.length - 1).bit_length()].append(row)
    for power in sorted(found, key=lambda power: -1 if power is None else power):
        if power is None:
            yield (None, None), found[power]
        else:
            yield ((1 << power >> 1) + 1 if power else 1, 1 << power), found[power]
