"""`rollbook materialize RANGE --out DIR`, or `--run R [--update U]`."""

import json
import os
import sys
from collections.abc import Iterable, Sequence
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Annotated

import typer

from rollbook.replay.bundle.model import Redaction
from rollbook.replay.bundle.redaction import DEFAULT_REDACTION, Redactor, check_policy
from rollbook.replay.histories import open_history
from rollbook.replay.history.options import TargetTexts
from rollbook.replay.materialize.form import BundleFormat, Form
from rollbook.replay.materialize.report import MEANING, MaterializeReport, Problem, Written, plain
from rollbook.replay.materialize.walk import Wanted, wanted_of
from rollbook.replay.progress import progress
from rollbook.schemas.errors import AnswerNo, BadInput
from rollbook.schemas.text import plural, visible

app = typer.Typer(help="Write the updates of an offset range as bundles.")


@app.command(
    "materialize",
    epilog="Example: rollbook materialize --run my-run --out bundles && rollbook replay --chain bundles",
)
def materialize_command(
    out: Annotated[
        Path, typer.Option("--out", metavar="DIR", help="Folder for the bundles; made where it does not exist.")
    ],
    targets: TargetTexts = None,
    run: Annotated[
        str | None, typer.Option("--run", metavar="RUN", help="Instead of a range: all of this run.")
    ] = None,
    update: Annotated[
        str | None, typer.Option("--update", metavar="UPDATE", help="With --run: only this update.")
    ] = None,
    bundle_format: Annotated[
        BundleFormat,
        typer.Option(
            "--format",
            help="The bundles' format; 1.0.0 for readers that know no other, the bundles of the steps alone.",
        ),
    ] = BundleFormat.V1_1,
    redact: Annotated[
        list[str] | None,
        typer.Option(
            metavar="default|FIELD=HOW",
            help="Redact labels, paths, addresses and secrets, and a field by hash, truncate or drop; repeatable.",
        ),
    ] = None,
    as_json: Annotated[bool, typer.Option("--json", help="JSON, an object a line for each range.")] = False,
) -> None:
    """Write the updates committed in a range of the log as bundles: one of each update, linked to one of each of its
    optimizer steps, so that `rollbook replay --chain DIR` finds the first divergence over all of them.

    What lies before or after the range (trajectories, rewards, recordings) is found from there. Beside each bundle
    BUNDLE.provenance.json names every record that it was made from. The same update gives the same bytes each time, so
    that a call which was cut short can be made again: what is there stays.

    Exits 0 when every committed update that stands is there (one that a later start of its learner undid is told, and
    has none), 1 when one could not be written (each with the reason) or none was found.
    """
    if update is not None and run is None:
        raise BadInput("--update goes with --run, since a range may hold updates of several runs: add --run RUN")
    form = Form(bundle_format, redactor_of(redact) if redact else None)
    _check_folder(out)
    written: list[Written] = []
    try:
        with progress() as watch, open_history(*(targets or ()), run=run, watch=watch) as history:
            wanted = wanted_of(history.of, update)
            reports = history.materialize(out, update=update, form=form, told=written.append)
    except BaseException:
        _print_cut_short(written, as_json=as_json)
        raise
    for report in reports:
        if as_json:
            print(json.dumps(plain(report)))
        else:
            _print(report)
    if not any(report.updates for report in reports):
        where = ", ".join(f"{_what(one)}{_undecided(report)}" for one, report in zip(wanted, reports, strict=True))
        raise AnswerNo(f"{where}: no committed update is there")
    if not all(report.complete for report in reports):
        raise typer.Exit(1)


def redactor_of(wanted: Sequence[str]) -> Redactor:
    """The default policy with the fields that are named on top of it. Raises BadInput."""
    policy = dict(DEFAULT_REDACTION)
    for text in wanted:
        if text == "default":
            continue
        name, _, how = text.partition("=")
        try:
            policy[name] = Redaction(how)
        except ValueError:
            hows = ", ".join(Redaction)
            raise BadInput(
                f"--redact '{visible(text)}' says nothing to be done: give `default`, or FIELD=HOW with one of {hows}"
            ) from None
    for problem in check_policy(policy):
        raise BadInput(f"--redact: {problem.what}: {problem.remedy}")
    return Redactor(policy)


def _check_folder(out: Path) -> None:
    """Refuse what cannot be a folder before anything is read, by making folders of these names where it would be."""
    path = out.absolute()
    try:
        nearest = next(place for place in (path, *path.parents) if os.path.lexists(place))
        with TemporaryDirectory(prefix=".rollbook-", dir=nearest) as probe:
            for name in path.relative_to(nearest).parts:
                (Path(probe) / name).mkdir(exist_ok=True)
    except OSError as fault:
        raise BadInput(
            f"--out {visible(out)} cannot be made or written ({fault.strerror}): give a folder that can, with --out DIR"
        ) from None


def _print(report: MaterializeReport) -> None:
    """The bundles on stdout, one path a line; everything else on stderr. Ids are data and never draw lines."""
    _print_paths(report.written)
    for problem in report.without_update:
        print(_line("the steps alone are written", problem), file=sys.stderr)
    for problem in report.problems:
        print(_line("not written", problem), file=sys.stderr)
    failed = len({(problem.run_id, problem.update_id) for problem in report.problems})
    there = sum(written.was_there for written in report.written)
    bundles = plural(len(report.written) - there, "bundle")
    already = f", {plural(there, 'bundle')} there before" if there else ""
    summary = f"{plural(report.updates, 'committed update')}, {bundles} written{already}, {failed} not written"
    print(f"{summary}{_undecided(report)}", file=sys.stderr)


def _print_paths(bundles: Iterable[Written]) -> None:
    for written in bundles:
        print(visible(written.path, limit=4096))


def _print_cut_short(bundles: Sequence[Written], *, as_json: bool) -> None:
    """What is on disk although the call ends with an error: it stays, and the next call goes on from it."""
    if bundles:
        if not as_json:
            _print_paths(bundles)
        told = f"cut short after {plural(len(bundles), 'bundle')}, which stay; the same call again goes on from them"
        print(told, file=sys.stderr)


def _line(what: str, problem: Problem) -> str:
    step = "" if problem.step_id is None else f" step {problem.step_id}"
    where = f"{visible(problem.run_id)} update {visible(problem.update_id)}{step}"
    return f"{what}: {where}: {problem.reason}: {MEANING[problem.reason]} {visible(problem.what, limit=1000)}"


def _what(wanted: Wanted) -> str:
    if wanted.run_id is None:
        return str(wanted.lifecycle)
    update = "" if wanted.update_id is None else f", update {visible(wanted.update_id)}"
    return f"run {visible(wanted.run_id)}{update} in {wanted.lifecycle}"


def _undecided(report: MaterializeReport) -> str:
    left = report.undecided
    if left is None:
        return ""
    return f" (offsets {left.first} to {left.end - 1} are not decided yet: see that `rollbook processor run` is up)"
