"""Whether memory stays flat over a long run with a horizon:

    python -m rollbook.tests.benchmarks.memory --versions 300 --groups 25

Prints, at intervals, the rows of each table and the memory of the process.
"""

import argparse
import gc
import resource
import sys
from pathlib import Path

from rollbook.processors.ledger.store import Run
from rollbook.tests.benchmarks.long_run import GROUP_SIZE, LongRun

_STATM = Path("/proc/self/statm")


def resident_mb() -> float:
    """Memory of this process now, in MiB; its peak where the system does not say."""
    if _STATM.exists():
        return int(_STATM.read_text(encoding="ascii").split()[1]) * resource.getpagesize() / 2**20
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    return peak / 2**20 if sys.platform == "darwin" else peak / 2**10


def row_counts(run: Run) -> dict[str, int]:
    """Rows of a run by table."""
    return {table.kind: len(table) for table in run.tables()}


def remembered(run: Run) -> int:
    """Names of trajectories that committed updates remember."""
    return sum(len(update.trained) for update in run.updates.values())


def main() -> None:
    """Run it and print the table."""
    parser = argparse.ArgumentParser(description="memory of the ledger over a long run")
    parser.add_argument("--versions", type=int, default=300, help="policy versions to make")
    parser.add_argument("--groups", type=int, default=25, help=f"groups of {GROUP_SIZE} trajectories a version")
    parser.add_argument("--horizon", type=int, default=4, help="versions behind which trajectories are forgotten")
    asked = parser.parse_args()
    long_run = LongRun(groups=asked.groups, horizon=asked.horizon)
    shown = ("trajectory", "pending", "update", "policy", "checkpoint")
    print(f"{'version':>8}{'records':>9}" + "".join(f"{kind:>12}" for kind in (*shown, "trained")) + f"{'MiB':>9}")
    for version in long_run.versions(asked.versions):
        if version % max(1, asked.versions // 10) == 0 or version == 2 * asked.horizon:
            gc.collect()
            run = long_run.history.run
            counts = [*(row_counts(run)[kind] for kind in shown), remembered(run)]
            sent = long_run.history.log.next_offset
            print(f"{version:>8}{sent:>9}" + "".join(f"{count:>12}" for count in counts) + f"{resident_mb():>9.1f}")


if __name__ == "__main__":
    main()
