"""Two runs of the same tasks, update by update in the order of their commits: the first reward, cohort, advantage or
loss that differs. One update of each is held at a time."""

from collections.abc import Iterator
from dataclasses import dataclass
from itertools import zip_longest

from rollbook.infra.settings import Settings
from rollbook.replay.diff.compare import Pair
from rollbook.replay.diff.result import DiffReport, Findings, Left, NotCompared
from rollbook.replay.diff.update import UpdateOf, update_of
from rollbook.replay.history.source import LogSource
from rollbook.replay.materialize.report import NotWritten
from rollbook.replay.materialize.walk import Made, Wanted, walk
from rollbook.replay.progress import Watch


@dataclass(frozen=True, slots=True)
class RunIn:
    """A run, and the log that has it."""

    run_id: str
    log: LogSource
    settings: Settings


def diff_runs(a: RunIn, b: RunIn, watch: Watch = lambda *_: None) -> DiffReport:
    """Hold the updates of two runs against each other: the first that one committed against the first of the other,
    and in them the rows of the same tasks. What has nothing to be held against is in the report.

    Raises BadInput for a log that does not have the topics, EnvironmentFault where the broker does not play along.
    """
    findings = Findings()
    walks = (_updates(one, findings, watch) for one in (a, b))
    for number, (ours, theirs) in enumerate(zip_longest(*walks), start=1):
        if ours is None or theirs is None:
            only = theirs if ours is None else ours
            assert only is not None, "one of them goes on"
            _leave(findings, NotCompared.NO_SUCH_UPDATE, number, only, "the other run committed no more")
            continue
        readable = True
        for one in (ours, theirs):
            for problem in one.problems[:1]:
                readable = False
                _leave(findings, NotCompared.CANNOT_BE_READ, number, one, f"{problem.reason}: {problem.what}")
        if readable:
            Pair(number, _value(ours), _value(theirs), (a.log, b.log), findings).compare()
    return findings.report(a.run_id, b.run_id)


def _updates(run: RunIn, findings: Findings, watch: Watch) -> Iterator[Made[UpdateOf]]:
    """Those that stand."""
    found = walk(
        run.log,
        Wanted.of_run(run.run_id, run.log, run.settings),
        update_of,
        lambda what, done, total: watch(f"{what} of {run.run_id}", done, total),
    )
    for made in found.each:
        if any(problem.reason is NotWritten.ROLLED_BACK for problem in made.problems):
            findings.undone += 1
        else:
            yield made


def _value(made: Made[UpdateOf]) -> UpdateOf:
    """An update of no steps has no rows."""
    return made.value or UpdateOf(made.update.run_id, made.update.update_id, {}, None, ())


def _leave(findings: Findings, reason: NotCompared, number: int, made: Made[UpdateOf], text: str) -> None:
    findings.leave(Left(reason, number, made.update.run_id, made.update.update_id, text))
