"""`rollbook inspect | validate | replay BUNDLE`, and `rollbook replay RANGE`, of a file or a run.

Exit codes: 0 valid or passed; 1 invalid or diverging; 2 bad use or a bundle that is refused; 4 replay verified nothing,
or less than the bundle promises, which is not a pass.
"""

from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path
from typing import Annotated

import typer
from rich.console import Console

from rollbook.replay.bundle.reading import cohort
from rollbook.replay.commands.updates import print_history
from rollbook.replay.engine.chain import replay_chain
from rollbook.replay.engine.engine import replay_cohort
from rollbook.replay.engine.installed import installed
from rollbook.replay.engine.locate import locate, wanted
from rollbook.replay.engine.result import Verdict
from rollbook.replay.engine.selection import Selection, stage_of
from rollbook.replay.history.targets import is_history
from rollbook.replay.html.album import Album
from rollbook.replay.html.page import Shown
from rollbook.replay.progress import busy, progress
from rollbook.replay.report.as_json import chain_json, inspect_json, replay_json, validation_json
from rollbook.replay.report.as_text import print_chain, print_inspected, print_replay, print_validation
from rollbook.replay.stages.table import STAGES
from rollbook.schemas.errors import BadInput
from rollbook.schemas.text import visible

EXIT_CODES = {Verdict.PASSED: 0, Verdict.DIVERGES: 1, Verdict.UNVERIFIED: 4}
INVALID = 1

app = typer.Typer(no_args_is_help=True, help="Look at bundles and recompute them.")

BundlePath = Annotated[
    Path,
    typer.Argument(
        metavar="BUNDLE",
        help="Folder of the bundle, or of all its ranks, or one that holds bundles.",
        show_default=False,
    ),
]
AsJson = Annotated[bool, typer.Option("--json", help="Print the report as JSON.")]


Step = Annotated[
    str | None,
    typer.Option(metavar="R:S", help="The optimizer step that the bundle must be of, exactly: ROLLOUT_ID:STEP_ID."),
]
Rollout = Annotated[
    int | None, typer.Option(metavar="R", help="The rollout that the bundle must be of, as a whole: ROLLOUT_ID.")
]


@app.command("inspect")
def inspect_command(bundle: BundlePath, step: Step = None, rollout: Rollout = None, as_json: AsJson = False) -> None:
    """Show a bundle's identity, producer, capabilities and payloads, also of one without COMPLETE.

    Nothing is verified. Exits 0, or 2 when there is no readable bundle.
    """
    inspected = cohort.inspect(locate(bundle, wanted(step, rollout)))
    if as_json:
        typer.echo(inspect_json(inspected))
    else:
        print_inspected(inspected, _console())


@app.command("validate")
def validate_command(bundle: BundlePath, step: Step = None, rollout: Rollout = None, as_json: AsJson = False) -> None:
    """Check a bundle's format, checksums, identity and that every stage has what it needs.

    Exits 0 when valid, 1 when not (each problem with file, field and remedy), 2 when there is no bundle.
    """
    with busy(f"reading {visible(bundle)}"):
        report = cohort.validate(locate(bundle, wanted(step, rollout)))
    if as_json:
        typer.echo(validation_json(report))
    else:
        print_validation(report, _console())
    if not report.valid:
        raise typer.Exit(INVALID)


@app.command("replay")
def replay_command(
    targets: Annotated[
        list[str] | None,
        typer.Argument(
            metavar="[BUNDLE|RANGE|FILE]...",
            help="Folder of the bundle, of all its ranks or of bundles; or lifecycle:PARTITION:START-END or exported "
            "files (.avro), whose updates are replayed.",
            show_default=False,
        ),
    ] = None,
    run: Annotated[
        str | None, typer.Option("--run", metavar="RUN", help="All updates of this run, or those in the files.")
    ] = None,
    first: Annotated[
        bool, typer.Option("--first", help="Of a history: stop at the first update that diverges.")
    ] = False,
    stage: Annotated[
        list[str] | None,
        typer.Option(
            metavar="STAGE", help=f"Only this stage, from its recorded inputs; repeatable. One of {', '.join(STAGES)}."
        ),
    ] = None,
    sample: Annotated[
        list[str] | None, typer.Option(metavar="SAMPLE", help="Only this sample and the rest of its group; repeatable.")
    ] = None,
    group: Annotated[
        list[str] | None, typer.Option(metavar="GROUP", help="Only this group, by its index (g-0); repeatable.")
    ] = None,
    batch: Annotated[
        list[str] | None,
        typer.Option(metavar="BATCH", help="Only this micro-batch (mb-0000) and the rest of its groups; repeatable."),
    ] = None,
    step: Step = None,
    rollout: Rollout = None,
    chain: Annotated[
        bool,
        typer.Option(
            "--chain",
            help="Replay all bundles of the folder, or all that the bundle is linked to, and what steps took over.",
        ),
    ] = False,
    html: Annotated[
        Path | None, typer.Option(metavar="FILE", help="Write the answer with pictures as one page, to open offline.")
    ] = None,
    kernel: Annotated[
        list[str] | None,
        typer.Option(
            metavar="[STAGE=]PACKAGE:FUNCTION",
            help="Import and run this installed function beside ours, on the same inputs of a stage; repeatable. "
            "It executes the named code.",
        ),
    ] = None,
    as_json: AsJson = False,
) -> None:
    """Recompute a bundle stage by stage and name the first divergence from what was recorded.

    Given a RANGE, an exported FILE or --run, all updates committed there are replayed in the order of their commits,
    each with its steps and what they took over, as --chain does for bundles; nothing is written. An update that cannot
    be replayed is told with its reason and is no pass; one that a later start of its learner undid does not count.

    Exits 0 when every stage passed, 1 when one diverges, 2 for a bundle that is refused, 4 when nothing (or not all
    that the bundle promises) could be verified. A function of --kernel changes none of these, but one that fails is 2.
    """
    selection = Selection(
        tuple(map(stage_of, stage or ())), tuple(sample or ()), tuple(group or ()), tuple(batch or ())
    )
    if run is not None or any(map(is_history, targets or ())):
        if step is not None or rollout is not None or chain or html is not None or kernel or selection.is_part:
            raise BadInput("of a history only --run, --first, --stage and --json are taken: materialize it for others")
        raise typer.Exit(EXIT_CODES[print_history(targets or (), run, selection, first=first, as_json=as_json)])
    bundle = _only(targets or ())
    if first:
        raise BadInput("--first is of a history: give a range, an exported file or --run RUN")
    kernels = tuple(map(installed, kernel or ()))
    album = Album(html)
    if chain:
        if step is not None or selection.is_part:
            raise BadInput("--chain takes whole bundles: leave out --step, --sample, --group and --batch")
        with progress() as told:
            found = replay_chain(bundle, rollout, selection, album.watch, kernels, told)
        _tell(chain_json(found) if as_json else partial(print_chain, found))
        album.write(*(Shown(link.report, link.handovers) for link in found.links))
        raise typer.Exit(EXIT_CODES[found.verdict])
    with busy(f"replaying {visible(bundle)}"):
        read = cohort.read_cohort(locate(bundle, wanted(step, rollout)))
        report = replay_cohort(read, selection, watch=album.watch(), kernels=kernels)
    _tell(replay_json(report) if as_json else partial(print_replay, report))
    album.write(Shown(report))  # last: where it cannot be written the answer is told all the same
    raise typer.Exit(EXIT_CODES[report.verdict])


def _only(targets: Sequence[str]) -> Path:
    if not targets:
        raise BadInput(
            "say what to replay: a bundle, a range such as lifecycle:0:0-5000, an exported file, or --run RUN"
        )
    if len(targets) > 1:
        raise BadInput(f"one bundle at a time, not {len(targets)}: a folder of bundles is replayed with --chain")
    return Path(targets[0])


def _tell(answer: str | Callable[[Console], None]) -> None:
    if isinstance(answer, str):
        typer.echo(answer)
    else:
        answer(_console())


def _console() -> Console:
    return Console(soft_wrap=False)
