"""Since which fold version a lifecycle record is read, by the schema that it is under.

A processor that does not know a schema makes a dead letter of the record, and that decision stands: a later package,
which knows it, must decide the same, or an audit would call the history changed, and two hosts would disagree while an
upgrade is under way. So a schema that came later is read in runs of its fold version alone, which a host that does not
know it has stopped at.
"""

FIRST = 1
"""Of the schemas that were there when the formats were frozen."""

READ_SINCE: dict[str, int] = {}
"""Of each that came later, by its fingerprint as records begin with it (hexadecimal): a grown record, or a new one."""


def read_since(schema: str) -> int:
    """The fold version since which records under a schema are read."""
    return READ_SINCE.get(schema, FIRST)
