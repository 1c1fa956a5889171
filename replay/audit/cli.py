"""`rollbook audit`: derive every decision of a history again."""

import json
from collections.abc import Sequence
from contextlib import nullcontext
from pathlib import Path
from typing import Annotated

import typer

from rollbook.infra.settings import Topic
from rollbook.replay.audit import whatif_report
from rollbook.replay.audit.anchor import anchor_of
from rollbook.replay.audit.audit import audit, stretch_of
from rollbook.replay.audit.bundles import check_bundles
from rollbook.replay.audit.report import keep, lines, plain
from rollbook.replay.audit.rules import Instead, parse_instead
from rollbook.replay.audit.whatif import what_if
from rollbook.replay.history.file import FileLog
from rollbook.replay.history.options import Heads, RunOnly, TargetTexts
from rollbook.replay.history.progress import progress
from rollbook.replay.history.ranges import OffsetRange
from rollbook.replay.history.targets import Targets, opened
from rollbook.schemas.errors import BadInput

app = typer.Typer(help="Derive every decision of a history again.")


@app.command("audit", epilog="Example: rollbook audit --run my-run")
def audit_command(
    targets: TargetTexts = None,
    run: RunOnly = None,
    head: Heads = None,
    anchor: Annotated[
        Path | None,
        typer.Option(metavar="FILE", help="A sealed file that ends where the range begins.", show_default=False),
    ] = None,
    bundle: Annotated[
        list[Path] | None,
        typer.Option(
            metavar="DIR",
            help="A bundle, or a folder of bundles, that `rollbook materialize` wrote; repeatable.",
            show_default=False,
        ),
    ] = None,
    payloads: Annotated[
        bool, typer.Option(help="Also compute drift and the digests of recordings again from the payloads.")
    ] = True,
    report: Annotated[
        Path | None,
        typer.Option(metavar="FILE", help="Write a page to keep: Markdown (.md) or HTML (.html).", show_default=False),
    ] = None,
    as_json: Annotated[bool, typer.Option("--json", help="JSON, an object a line for each partition.")] = False,
    instead: Annotated[
        list[str] | None,
        typer.Option(
            "--with",
            metavar="NAME=VALUE",
            help="What if: another max_lag, lag_unit, max_mean_abs_log_ratio or drift_gate; repeatable.",
            show_default=False,
        ),
    ] = None,
) -> None:
    """Fold a history again and demand that every decision be the topic's, byte for byte.

    Besides: the chain of each run unbroken, the compacted ledger what the decisions lead to, the drift of every Admit
    and the digests of every recording what their payloads give, chain heads of checkpoints known. Records of others are
    needed by nothing: with --run only that run's are folded. The first difference is shown side by side.

    A history that somebody rewrote consistently from some point on fits itself: only a chain head noted elsewhere
    (--head, as the clients' checkpoints carry it) tells it.

    With --with instead what would have been: each Reserve and Admit of the history is judged again under other limits,
    by itself and with the state as it was, and what was reserved, admitted and trained on is told beside what would be,
    by reason and behavior version. Rows whose drift was never measured are called unmeasured.

    Exits 0 when everything fits, 1 when something does not, 2 when the history cannot be audited.
    """
    if instead:
        if head or bundle or report:
            raise BadInput("--with says what would have been, and checks no --head or --bundle and keeps no --report")
        _what_if(targets or (), run, anchor, parse_instead(instead), as_json)
        return
    behind = nullcontext() if anchor is None else FileLog([anchor])
    with opened(targets or (), run) as of, behind as sealed, progress() as watch:
        wanted = _wanted(of)
        if len(wanted) > 1 and (head or anchor):
            raise BadInput("--head and --anchor are of one partition: name its range, or --run RUN")
        before = None if anchor is None else anchor_of(anchor)
        from_there = wanted if before is None else [before.begin(one) for one in wanted]
        stretches = [stretch_of(of.log, of.settings, one, run) for one in from_there]
        found = [
            audit(
                of.log,
                of.settings,
                one,
                anchor=before,
                heads=head or (),
                sealed=sealed,
                payloads=payloads,
                watch=watch,
            ).report
            for one in stretches
        ]
        if bundle:
            found[-1] = found[-1].with_bundles(check_bundles(of.log, of.settings, bundle))
    if report is not None:
        keep(found, report)
    for one_report in found:
        if as_json:
            print(json.dumps(plain(one_report)))
        else:
            print("\n".join(lines(one_report)))
    if not all(one_report.passed for one_report in found):
        raise typer.Exit(1)


def _what_if(texts: Sequence[str], run: str | None, anchor: Path | None, instead: Instead, as_json: bool) -> None:
    with opened(texts, run) as of, progress() as watch:
        wanted = _wanted(of)
        if len(wanted) > 1 and anchor:
            raise BadInput("--anchor is of one partition: name its range, or --run RUN")
        before = None if anchor is None else anchor_of(anchor)
        for one in wanted if before is None else map(before.begin, wanted):
            found = what_if(of.log, stretch_of(of.log, of.settings, one, run), instead, anchor=before, watch=watch)
            print(json.dumps(whatif_report.plain(found)) if as_json else "\n".join(whatif_report.lines(found)))


def _wanted(of: Targets) -> list[OffsetRange]:
    lifecycle = of.settings.topic(Topic.LIFECYCLE)
    found = [one for one in of.ranges if of.are_named or one.topic == lifecycle]
    if not found:
        raise BadInput(f"nothing of {lifecycle} is in the files: export it, too")
    return found
