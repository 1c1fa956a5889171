"""Options that several commands have, with one meaning and one help."""

from typing import Annotated

import typer

from rollbook.infra.looking.show import SHOWN

Last = Annotated[
    int | None,
    typer.Option(
        metavar="N",
        min=1,
        max=1_000_000_000,
        show_default=f"{SHOWN} in the table, all as JSON",
        help="Only the last N of them.",
    ),
]
Follow = Annotated[bool, typer.Option("--follow", "-f", help="Go on with each as it is committed, until Ctrl-C.")]
