"""Freezes what is new: schemas, keys of bundles, recorded histories and bundles.

    python -m rollbook.tests.frozen.freeze

What is frozen stays as it is. An entry that has changed, or is gone, ends this with what differs, and nothing is
written; `--thaw NAME` takes one back all the same, which breaks every archive that relies on it.
"""

import argparse
import sys
from collections.abc import Sequence

from rollbook.tests.frozen.archives import ARCHIVES
from rollbook.tests.frozen.bundles import BUNDLES
from rollbook.tests.frozen.formats import FORMATS
from rollbook.tests.frozen.histories import HISTORIES
from rollbook.tests.frozen.rules import RULES
from rollbook.tests.frozen.schemas import SCHEMAS
from rollbook.tests.frozen.situations import SITUATIONS
from rollbook.tests.frozen.table import Table, Thawed

TABLES: tuple[Table, ...] = (SCHEMAS, RULES, FORMATS, BUNDLES, HISTORIES, SITUATIONS, ARCHIVES)


def main(arguments: Sequence[str] | None = None, tables: Sequence[Table] = TABLES) -> int:
    """0: all is frozen; 1: something is otherwise than it was frozen."""
    parser = argparse.ArgumentParser(prog="freeze", description=__doc__.partition("\n")[0])
    parser.add_argument("--thaw", action="append", default=[], metavar="NAME", help="An entry to take back.")
    thaw = parser.parse_args(arguments).thaw
    refused = False
    for table in tables:
        try:
            for name in table.freeze(thaw):
                print(f"{table.name}: {name}")
        except Thawed as problem:
            print(problem, file=sys.stderr)
            refused = True
    return int(refused)


if __name__ == "__main__":
    sys.exit(main())
