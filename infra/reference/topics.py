"""The page of the topics and their settings."""

from rollbook.infra.reference.markdown import code, page, table
from rollbook.infra.settings import DEFAULT_TOPIC_PREFIX
from rollbook.infra.topics.table import TOPIC_TABLE, Partitioning

_PARTITIONS = {
    Partitioning.RUNS: "those of the runs: one number, fixed for ever",
    Partitioning.OWN: "its own number",
    Partitioning.SINGLE: "1",
}


def topics() -> str:
    """Every topic with what it must be."""
    blocks = []
    for spec in TOPIC_TABLE:
        rows = ((code(one.name), code(one.value), "" if one.fixed else "yours to change") for one in spec.settings)
        blocks += [
            f"## {spec.topic}",
            f"Partitions: {_PARTITIONS[spec.partitioning]}.",
            table(("setting", "value", ""), rows),
        ]
    return page(
        "Topics",
        f"From `infra/topics/table.py`. Each name gets the prefix ({code(DEFAULT_TOPIC_PREFIX)} by default). "
        "`rollbook topics create` makes them so, `rollbook topics describe` compares. With three nodes or more there "
        "are three copies, of which two must be in sync.",
        *blocks,
    )
