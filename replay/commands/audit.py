"""`rollbook audit`: derive every decision of a history again."""

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Annotated

import typer

from rollbook.replay.audit import whatif_report
from rollbook.replay.audit.report import check_page, keep, lines, plain
from rollbook.replay.audit.rules import Instead, parse_instead
from rollbook.replay.histories import open_history
from rollbook.replay.history.options import Heads, RunOnly, TargetTexts
from rollbook.replay.progress import progress
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
    anchor_digest: Annotated[
        str | None,
        typer.Option(metavar="HASH", help="The anchor's digest, as its seal printed it.", show_default=False),
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
    (--head, as the clients' checkpoints carry it) tells it, as an anchor's digest (--anchor-digest) tells an anchor
    that was made anew.

    With --with instead what would have been: each Reserve and Admit of the history is judged again under other limits,
    by itself and with the state as it was, and what was reserved, admitted and trained on is told beside what would be,
    by reason and behavior version. Rows whose drift was never measured are called unmeasured.

    Exits 0 when everything fits, 1 when something does not, 2 when the history cannot be audited.
    """
    if instead:
        if head or anchor_digest or bundle or report:
            raise BadInput(
                "--with says what would have been, and checks no --head, --anchor-digest or --bundle and keeps no "
                "--report: leave these out"
            )
        _what_if(targets or (), run, anchor, parse_instead(instead), as_json)
        return
    if report is not None:
        check_page(report)
    with progress() as watch, open_history(*(targets or ()), run=run, watch=watch) as history:
        found = history.audit(
            anchor=anchor, anchor_digest=anchor_digest, heads=head or (), payloads=payloads, bundles=bundle or ()
        )
    for one_report in found:
        if as_json:
            print(json.dumps(plain(one_report)))
        else:
            print("\n".join(lines(one_report)))
    if report is not None:  # last: where it cannot be written the answer is told all the same
        keep(found, report)
    if not all(one_report.passed for one_report in found):
        raise typer.Exit(1)


def _what_if(texts: Sequence[str], run: str | None, anchor: Path | None, instead: Instead, as_json: bool) -> None:
    with progress() as watch, open_history(*texts, run=run, watch=watch) as history:
        for found in history.what_if(instead, anchor=anchor):
            print(json.dumps(whatif_report.plain(found)) if as_json else "\n".join(whatif_report.lines(found)))
