"""The long search: `python -m rollbook.tests.processors.proof.run --examples N --seed S`.

Random runs through the fold and the naive model, restarts, and simulated trainers with true weights. Each example has a
seed of its own, which a failure names: the same command with `--examples 1 --seed THAT` shows it again.
"""

import argparse
import time
from collections import Counter

from rollbook.schemas.records.run import DriftGate
from rollbook.tests.processors.history import refold
from rollbook.tests.processors.log import Log
from rollbook.tests.processors.proof import walks
from rollbook.tests.processors.proof.compare import ProvenLog
from rollbook.tests.processors.proof.rebuild import check_rebuild
from rollbook.tests.processors.proof.world import World


def example(seed: int, length: int) -> Counter[str]:
    """One run of each kind; what its records were answered."""
    rolls = walks.deep(seed, length)
    log = ProvenLog()
    walks.run(log, rolls)
    assert refold(log) == log.decisions
    check_rebuild(rolls, seed % length, 1 + seed % 9)
    World(seed, Log(), horizon=(0, 2)[seed % 2], gate=tuple(DriftGate)[seed // 2 % 2]).play(9 * length)
    decided = (folded.decision for folded in log.folded)
    return Counter(f"{one.record_type or 'undecodable'} {one.outcome.value} {one.reason}" for one in decided)


def main() -> None:
    """Parse, search, and say what was seen."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--examples", type=int, default=1000)
    parser.add_argument("--seed", type=int, default=0, help="of the first example; the others follow")
    parser.add_argument("--length", type=int, default=120, help="acts in a run")
    parser.add_argument("--answers", action="store_true", help="list every answer seen, with its count")
    options = parser.parse_args()
    started, seen = time.monotonic(), Counter[str]()
    for seed in range(options.seed, options.seed + options.examples):
        try:
            seen += example(seed, options.length)
        except Exception:
            print(f"seed {seed} failed; --examples 1 --seed {seed} --length {options.length} shows it again")
            raise
    seconds = time.monotonic() - started
    print(f"{options.examples} runs, {seen.total()} records, {len(seen)} answers, {seconds:.0f} s: no difference")
    for answer, count in sorted(seen.items()) if options.answers else ():
        print(f"{count:8} {answer}")


if __name__ == "__main__":
    main()
