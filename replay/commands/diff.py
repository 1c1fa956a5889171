"""`rollbook diff RUN_A RUN_B [FILE]...`: where two runs of the same tasks first differ."""

import json
from typing import Annotated

import typer

from rollbook.replay.diff.report import lines, plain
from rollbook.replay.diff.result import DiffVerdict
from rollbook.replay.histories import diff
from rollbook.replay.progress import progress

EXIT_CODES = {DiffVerdict.SAME: 0, DiffVerdict.DIFFERENT: 1, DiffVerdict.NOT_COMPARABLE: 4}

app = typer.Typer(help="Say where two runs of the same tasks first differ.")


@app.command("diff", epilog="Example: rollbook diff run-a run-b")
def diff_command(
    run_a: Annotated[str, typer.Argument(metavar="RUN_A", help="One run.", show_default=False)],
    run_b: Annotated[str, typer.Argument(metavar="RUN_B", help="The other.", show_default=False)],
    files: Annotated[
        list[str] | None,
        typer.Argument(
            metavar="[FILE]...",
            help="Exported files that hold them, with payloads; both in one, or each in its own, also of two clusters.",
            show_default=False,
        ),
    ] = None,
    as_json: Annotated[bool, typer.Option("--json", help="One JSON object.")] = False,
) -> None:
    """Say where two runs of the same tasks first differ: tokens, rewards, cohorts, advantages, losses.

    The first update that one committed is held against the first of the other, and so on; in them rows of the same
    prompt (its hash, data set and row), group and sample index. Tokens are compared bit by bit, numbers with the
    tolerances that replay has. What has nothing to be held against is listed.

    Exits 0 when all of both runs was compared and is the same, 1 when something differs, 4 when nothing differs and not
    all could be compared.
    """
    with progress() as watch:
        report = diff(run_a, run_b, *(files or ()), watch=watch)
    print(json.dumps(plain(report)) if as_json else "\n".join(lines(report)))
    raise typer.Exit(EXIT_CODES[report.verdict])
