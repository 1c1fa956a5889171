"""`rollbook prove`: what went into a policy's weights, and what did not."""

import json
from pathlib import Path
from typing import Annotated

import typer

from rollbook.replay.histories import open_history
from rollbook.replay.history.options import Heads, OneRun, TargetTexts
from rollbook.replay.history.targets import only_run
from rollbook.replay.progress import progress
from rollbook.replay.prove.asked import read_asked
from rollbook.replay.prove.report import lines, plain
from rollbook.schemas.errors import BadInput
from rollbook.schemas.text import visible

app = typer.Typer(help="Say what went into a policy's weights.")


@app.command("prove", epilog="Example: rollbook prove --run my-run --policy 1 --absent eval.txt")
def prove_command(
    targets: TargetTexts = None,
    run: OneRun = None,
    policy: Annotated[
        int | None, typer.Option(min=0, metavar="VERSION", help="The policy.", show_default=False)
    ] = None,
    artifact: Annotated[
        str | None,
        typer.Option(metavar="HASH", help="Instead of a version: the hash of the weights.", show_default=False),
    ] = None,
    absent: Annotated[
        Path | None,
        typer.Option(
            metavar="FILE",
            help="Prompt hashes or task ids, a line each, as JSON, or as CSV with columns prompt_hash or task_id: was "
            "any of them trained on?",
            show_default=False,
        ),
    ] = None,
    redaction_key: Annotated[
        Path | None,
        typer.Option(
            metavar="FILE",
            help="With --absent: the key of the clients' redaction, where they have one, as it is in a file.",
            show_default=False,
        ),
    ] = None,
    head: Heads = None,
    limit: Annotated[int, typer.Option(metavar="N", min=0, max=1_000_000_000, help="Rows of each table.")] = 20,
    as_json: Annotated[bool, typer.Option("--json", help="All of it, an object a line.")] = False,
) -> None:
    """Say everything that went into a policy's weights and their ancestors: policies back to the initial one, updates
    with their Commits, trajectories with task, behavior policies and reward, each with its offset, and the chain head
    that vouches for all of it.

    Every decision is derived again first: a history that does not fit proves nothing. What the log cannot tell is
    listed, such as an update that was committed and that no policy names.

    With --absent exits 0 when none of the tasks was trained on, 1 when one was, or when that cannot be ruled out; warns
    when none of their names occurs in the run, which nobody can tell from names of another form. Exits 2 for bad input,
    or a history that does not fit.
    """
    if (policy is None) == (artifact is None):
        raise BadInput("say whose weights: either --policy VERSION or --artifact HASH")
    if absent is None and redaction_key is not None:
        raise BadInput("--redaction-key says how the names of --absent FILE were published: give them, or leave it out")
    asked = None if absent is None else read_asked(absent, key=_key(redaction_key))
    given = targets or ()
    with progress() as watch, open_history(*given, run=run or only_run(given, watch), watch=watch) as history:
        proof = history.prove(policy=policy, artifact=artifact, asked=asked, heads=head or ())
    if as_json:
        for one in plain(proof):
            print(json.dumps(one))
    else:
        for line in lines(proof, limit):
            print(line)
    if proof.absence is not None and proof.absence.warning:
        typer.echo(f"Warning: {proof.absence.warning}", err=True)
    if proof.absence is not None and not proof.absence.proven:
        raise typer.Exit(1)


def _key(path: Path | None) -> bytes:
    if path is None:
        return b""
    try:
        key = path.read_bytes()
    except OSError as fault:
        raise BadInput(f"{visible(path)} cannot be read ({fault.strerror}): give the key of the redaction") from None
    if not key.strip():
        raise BadInput(f"{visible(path)} is empty: give the key of the redaction")
    return key
