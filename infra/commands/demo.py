"""`rollbook demo`."""

from importlib.util import find_spec
from pathlib import Path
from typing import Annotated

import typer
from rich.console import Console

from rollbook.infra.demo.config import EVAL_MARGIN, DemoConfig
from rollbook.infra.demo.run import run_demo
from rollbook.infra.demo.summary import write_summary
from rollbook.infra.demo.table import print_result
from rollbook.schemas.errors import AnswerNo

DASHBOARD = "127.0.0.1:9401"

app = typer.Typer(help="Train a small model on a real broker and replay it.")


@app.command(epilog="Example: rollbook demo --seed 1 --keep")
def demo(
    seed: Annotated[int, typer.Option(metavar="N", min=0, max=2**31 - 1, help="Of prompts, weights and samples.")] = 0,
    out: Annotated[
        Path | None,
        typer.Option(
            metavar="DIR",
            file_okay=False,
            show_default="rollbook-demo/RUN",
            help="An empty or new folder for weights, logs, the broker's data, bundles and summary.json.",
        ),
    ] = None,
    keep: Annotated[
        bool, typer.Option("--keep", help="Leave the broker running, until `rollbook broker stop`.")
    ] = False,
    dashboard: Annotated[
        bool, typer.Option("--dashboard", help=f"Serve the dashboard at http://{DASHBOARD}/ while it runs.")
    ] = False,
) -> None:
    """Train a small model with GRPO through a real broker, then read every update back and replay it.

    A broker, the processor, a trainer and two rollout workers run as processes of their own, which end with this one;
    ROLLBOOK_BOOTSTRAP_SERVERS uses an existing cluster instead, with topics of this run's own. On the way one
    worker is killed, one generation and one reward fail, and the trainer is killed two updates after its last
    checkpoint: a new one starts from it, and the ledger takes those updates back. Takes about a minute, on CPU.

    Exits 1 when the evaluation reward did not rise by the stated margin or a bundle did not pass.
    """
    if find_spec("torch") is None:  # only the processes that are started import it
        raise ModuleNotFoundError("the demo trains with torch", name="torch")
    if dashboard and find_spec("faust") is None:
        raise ModuleNotFoundError("the dashboard is a Faust app", name="faust")
    at = DASHBOARD if dashboard else None
    result = run_demo(DemoConfig(seed=seed), out, Console(stderr=True), keep=keep, dashboard=at)
    write_summary(result)
    print_result(result, Console())
    if not result.all_pass:
        raise AnswerNo(
            f"not every optimizer step of run {result.plan.run_id} has a bundle that passes: see the lines above, and "
            f"`rollbook replay` on those in {result.folder.bundles}"
        )
    if not result.eval_rise >= EVAL_MARGIN:
        raise AnswerNo(
            f"the evaluation reward of run {result.plan.run_id} rose by {result.eval_rise:.3f}, less than "
            f"{EVAL_MARGIN}: try another --seed, and report it"
        )
