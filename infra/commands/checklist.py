"""`rollbook checklist`: which steps of a trainer's integration its run has shown."""

from typing import Annotated

import typer

from rollbook.infra.looking.checklist import Verdict, missing, read_checklist
from rollbook.infra.looking.place import place_of_run
from rollbook.infra.looking.show import print_json, print_table
from rollbook.replay.progress import progress
from rollbook.schemas.errors import AnswerNo
from rollbook.schemas.text import plural, visible

app = typer.Typer(help="Say which steps of an integration a run has shown.")


@app.command(epilog="Example: rollbook checklist --run my-run")
def checklist(
    run: Annotated[str, typer.Option("--run", metavar="RUN", help="The run.", show_default=False)],
    as_json: Annotated[bool, typer.Option("--json", help="JSON instead of a table.")] = False,
) -> None:
    """Hold a run against the checklist of docs/connect-your-trainer.md: what its log shows, and what it does not.

    For who writes an adapter. `look` marks what only its author can judge. Exits 1 while a step is missing.
    """
    with progress() as watch, place_of_run(run, watch) as place:
        lines = read_checklist(place)
    if as_json:
        print_json({"run_id": run, "steps": lines})
    else:
        rows = [(line.number, line.step, line.verdict.value, line.told) for line in lines]
        print_table(f"Steps of run {visible(run)}", ("", "step", "", "what the log shows"), rows, right=("",))
    if absent := [line.step for line in missing(lines)]:
        raise AnswerNo(
            f"run {visible(run)}: {plural(len(absent), 'step')} of the checklist not seen: {', '.join(absent)}: see "
            f"docs/connect-your-trainer.md; `{Verdict.LOOK.value}` needs eyes"
        )
