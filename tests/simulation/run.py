"""Many seeds, or one with its trace:

python -m rollbook.tests.simulation.run --seeds 20000 --jobs 1
python -m rollbook.tests.simulation.run --seed 4711 --trace
"""

import argparse
import multiprocessing
import sys
import time
from collections import Counter

from rollbook.tests.simulation.invariants import Violation
from rollbook.tests.simulation.world import simulate

PROGRESS_EVERY = 1_000


def attempt(seed: int) -> tuple[int, Counter[str], str]:
    """A seed, its counts, and what was violated."""
    try:
        return seed, simulate(seed), ""
    except Violation as broken:
        return seed, Counter(), str(broken)


def main() -> None:
    """Run what was asked for; exit code 1 when a seed fails."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seeds", type=int, default=1_000, help="how many")
    parser.add_argument("--first", type=int, default=0, help="the first of them")
    parser.add_argument("--jobs", type=int, default=1, help="processes")
    parser.add_argument("--seed", type=int, help="only this one")
    parser.add_argument("--trace", action="store_true", help="print what happened")
    asked = parser.parse_args()
    if asked.seed is not None:
        sys.exit(_one(asked.seed, trace=asked.trace))
    sys.exit(_many(range(asked.first, asked.first + asked.seeds), asked.jobs))


def _one(seed: int, *, trace: bool) -> int:
    lines: list[str] = []
    try:
        counts = simulate(seed, lines)
    except Violation as broken:
        print(*(lines if trace else lines[-40:]), sep="\n")
        print(f"seed {seed}: {broken}")
        return 1
    if trace:
        print(*lines, sep="\n")
    _print(counts)
    return 0


def _many(seeds: range, jobs: int) -> int:
    began = time.monotonic()
    total: Counter[str] = Counter()
    failed = 0
    with multiprocessing.Pool(jobs) as pool:
        results = map(attempt, seeds) if jobs == 1 else pool.imap_unordered(attempt, seeds, chunksize=20)
        for done, (seed, counts, broken) in enumerate(results, 1):
            total += counts
            if done % PROGRESS_EVERY == 0:
                print(f"{done} seeds, {time.monotonic() - began:.0f} s, {failed} failed", file=sys.stderr, flush=True)
            if broken:
                failed += 1
                print(
                    f"seed {seed}: {broken}\n  python -m rollbook.tests.simulation.run --seed {seed} --trace",
                    flush=True,
                )
    _print(total)
    print(f"{len(seeds)} seeds in {time.monotonic() - began:.0f} s, {failed} failed")
    return 1 if failed else 0


def _print(counts: Counter[str]) -> None:
    for name in sorted(counts):
        print(f"{counts[name]:9d} {name}")


if __name__ == "__main__":
    main()
