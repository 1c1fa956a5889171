"""The options that commands over a history share, said once."""

from typing import Annotated

import typer

TargetTexts = Annotated[
    list[str] | None,
    typer.Argument(
        metavar="[RANGE|FILE]...",
        help="TOPIC:PARTITION:START-END, such as lifecycle:0:0-5000, END exclusive, either side left out "
        "for an open one or a time as @ISO8601; or exported files to take it from.",
        show_default=False,
    ),
]
RunOnly = Annotated[str | None, typer.Option("--run", metavar="RUN", help="Only this run; without a range all of it.")]
OneRun = Annotated[
    str | None, typer.Option("--run", metavar="RUN", help="The run; not needed of exported files of one run alone.")
]
Heads = Annotated[
    list[str] | None,
    typer.Option(
        "--head",
        metavar="HASH",
        help="A chain head noted elsewhere, which some decision must have; repeatable.",
        show_default=False,
    ),
]
