"""`rollbook report`: what became of a run's trajectories, and what was never trained on."""

import json
from pathlib import Path
from typing import Annotated

import typer

from rollbook.replay.histories import open_history
from rollbook.replay.history.options import OneRun, TargetTexts
from rollbook.replay.history.targets import only_run
from rollbook.replay.progress import progress
from rollbook.replay.survivorship.keep import check_page, keep
from rollbook.replay.survivorship.text import lines, plain

app = typer.Typer(help="Say what became of a run's trajectories.")


@app.command("report", epilog="Example: rollbook report --run my-run --out report.html")
def report_command(
    targets: TargetTexts = None,
    run: OneRun = None,
    out: Annotated[
        Path | None, typer.Option("--out", metavar="FILE", help="Write a page to keep (.html).", show_default=False)
    ] = None,
    as_json: Annotated[bool, typer.Option("--json", help="All figures as one JSON object.")] = False,
) -> None:
    """Say what became of every trajectory of a run: consumed, rolled back, refused as stale or for drift, discarded,
    quarantined, expired, failed, or still waiting; by behavior version, task and length. With the distribution of the
    rewards of what was consumed, refused, discarded and never trained on, so that a biased selection shows, and the
    tasks of which nothing is trained on.

    Every decision is derived again from the run's first record; the log is streamed, and memory grows with the
    trajectories of the run. The page of --out is one file without scripts, which opens anywhere.

    Exits 2 for bad input, or a history that does not fit.
    """
    if out is not None:
        check_page(out)
    given = targets or ()
    with progress() as watch, open_history(*given, run=run or only_run(given, watch), watch=watch) as history:
        found = history.report()
    print(json.dumps(plain(found)) if as_json else "\n".join(lines(found)))
    if out is not None:  # last: where it cannot be written the answer is told all the same
        keep(found, out)
