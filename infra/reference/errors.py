"""The page of Kafka's errors and who acts."""

from rollbook.infra.reference.markdown import code, page, table
from rollbook.processors.host.errors import MEANINGS, TABLE, UNKNOWN, Row


def errors() -> str:
    """Every error by row of the table, with what the processor does."""
    header = ("error", "fatal", "abortable", "retriable", "no flag", "consuming", "asking")
    blocks = []
    for row in (*TABLE, UNKNOWN):
        names = ", ".join(map(code, row.names)) or "Every other code: this version of rollbook knows none of it."
        blocks += [f"## {row.title[0].upper()}{row.title[1:]}", f"Who acts: {row.acts}.", names]
    return page(
        "Errors of Kafka",
        "From `processors/host/errors.py`: what the processor does about each error of Kafka and of its client "
        "library. In a transaction the library marks an error as fatal, abortable, retriable or nothing of it; "
        "*consuming* is what comes in place of a record, *asking* is a question to the cluster (offsets, watermarks, "
        "metadata), asked again for at most a minute.",
        table(("action", "what the processor does"), ((code(one), text) for one, text in MEANINGS.items())),
        table(header, map(_cells, (*TABLE, UNKNOWN))),
        *blocks,
    )


def _cells(row: Row) -> tuple[str, ...]:
    actions = (row.fatal, row.abortable, row.retriable, row.plain, row.consuming, row.asking)
    return row.title, *map(code, actions)
