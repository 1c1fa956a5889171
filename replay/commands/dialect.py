"""`rollbook dialect BUNDLE`: which framework's conventions give what a bundle recorded.

Exit codes: 0 each recorded result is that of some convention and of the one that its bundle names, if any; 1 one is
not; 2 bad use or a bundle that is refused; 4 nothing is recorded that a convention would compute.
"""

import json
from math import isfinite
from pathlib import Path
from typing import Annotated

import typer
from rich.console import Console
from rich.table import Table
from rich.text import Text

from rollbook.replay.bundle.reading import cohort
from rollbook.replay.progress import busy
from rollbook.replay.recognition.bundles import RankDialects, Subject, dialects_of
from rollbook.replay.recognition.search import Match
from rollbook.schemas.text import visible

NONE, NOTHING = 1, 4
_SHOWN = 8
"""Rows of a table, besides those that match."""

app = typer.Typer(help="Name the conventions that give what a bundle recorded.")


@app.command("dialect")
def dialect_command(
    bundle: Annotated[
        Path, typer.Argument(metavar="BUNDLE", help="Folder of the bundle, or of all its ranks.", show_default=False)
    ],
    everything: Annotated[bool, typer.Option("--all", help="Show every convention, not the nearest only.")] = False,
    as_json: Annotated[bool, typer.Option("--json", help="Print the report as JSON.")] = False,
) -> None:
    """Replay a bundle's advantages and policy loss under every known convention and name those that match.

    The nearest comes first; those that float32 cannot tell apart share a rank. A convention that the bundle names is
    held against them. Exits 0 when each recorded result is that of some convention and of the one named for it, if
    any, 1 when one is not, 2 for a bundle that is refused, 4 when there is nothing to compare.
    """
    with busy(f"comparing {visible(bundle)} with all conventions"):
        found = dialects_of(cohort.read_cohort(bundle))
    if as_json:
        typer.echo(_json(bundle, found))
    else:
        _print(found, Console(soft_wrap=False), everything)
    subjects = [subject for rank in found for subject in rank.subjects if subject.matches]
    if not subjects:
        raise typer.Exit(NOTHING)
    if not all(subject.confirmed for subject in subjects):
        raise typer.Exit(NONE)


def _print(found: tuple[RankDialects, ...], console: Console, everything: bool) -> None:
    for rank in found:
        title = f"rank {rank.rank}: " if len(found) > 1 else ""
        for subject in rank.subjects:
            if subject.matches:
                console.print(_table(f"{title}{subject.name}", subject, everything))
            console.print(Text(f"{title}{_summary(subject)}"))
            if subject.named is not None:
                console.print(Text(f"{title}{subject.name}: {_of_named(subject)}"))


def _table(title: str, subject: Subject, everything: bool) -> Table:
    table = Table(title=title, title_justify="left")
    for heading in ("rank", "framework", "convention", "largest error", "matches"):
        table.add_column(heading, justify="right" if heading in ("rank", "largest error") else "left")
    for at, match in enumerate(subject.matches):
        if everything or match.matches or at < _SHOWN:
            label = f"{match.framework} {match.version}"
            table.add_row(str(match.rank), label, match.name, f"{match.error:.3g}", "yes" if match.matches else "no")
    return table


def _summary(subject: Subject) -> str:
    if not subject.matches:
        return f"{subject.name}: not compared, {visible(subject.lacks)}"
    matching = [match for match in subject.matches if match.matches]
    if not matching:
        nearest = subject.matches[0]
        return f"{subject.name}: no known convention; the nearest is {_label(nearest)}, off by {nearest.error:.3g}"
    return f"{subject.name}: {', '.join(_label(match) for match in matching if match.rank == matching[0].rank)}"


def _of_named(subject: Subject) -> str:
    name, match = f"the bundle names {visible(str(subject.named))}", subject.of_named
    if not subject.matches:
        return f"{name}, not compared"
    nearest = _label(subject.matches[0])
    if match is None:
        return f"{name}, which is not known or cannot be computed of this bundle; the nearest is {nearest}"
    found = "gives" if match.matches else "does not give"
    result = f"{name}, which {found} what was recorded (largest error {match.error:.3g})"
    return f"{result} and is nearest" if subject.agrees else f"{result}; nearer is {nearest}"


def _label(match: Match) -> str:
    return f"{match.framework} {match.version} {match.name}"


def _json(bundle: Path, found: tuple[RankDialects, ...]) -> str:
    report = {
        "bundle": str(bundle),
        "ranks": [
            {"rank": rank.rank, **{subject.name: _subject(subject) for subject in rank.subjects}} for rank in found
        ],
    }
    return json.dumps(report, allow_nan=False)


def _subject(subject: Subject) -> dict[str, object]:
    return {
        "lacks": subject.lacks or None,
        "recognised": subject.recognised,
        "named": None if subject.named is None else subject.named.model_dump(),
        "named_agrees": subject.agrees,
        "named_result": None if subject.of_named is None else _match(subject.of_named),
        "conventions": [_match(match) for match in subject.matches],
    }


def _match(match: Match) -> dict[str, object]:
    return {
        "rank": match.rank,
        "framework": match.framework,
        "version": match.version,
        "name": match.name,
        "error": match.error if isfinite(match.error) else None,
        "matches": match.matches,
    }
