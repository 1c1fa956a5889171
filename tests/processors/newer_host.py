"""A host process of a package that knows one fold version more than this one; it works until SIGTERM.

Arguments as of crashing_host.
"""

from rollbook.processors.fold_version import FOLD_VERSION
from rollbook.processors.ledger import fold
from rollbook.tests.processors import crashing_host

NEWER = FOLD_VERSION + 1

if __name__ == "__main__":
    setattr(fold, "FOLD_VERSION", NEWER)  # noqa: B010  not a name that the module offers
    crashing_host.main()
