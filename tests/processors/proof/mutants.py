"""Would the tests notice? Each mutant of the rules is put in place, and a selection of the tests must fail:

    python -m rollbook.tests.processors.proof.mutants            all of them (about half an hour on two cores)
    python -m rollbook.tests.processors.proof.mutants --only order

Survivors are listed; those in `EXPLAINED` change nothing that anybody can see, and say why. Any other makes the command
fail."""

import argparse
import importlib
import inspect
import os
import signal
import sys
import time
from collections import Counter
from collections.abc import Callable, Iterable
from pathlib import Path

import hypothesis  # noqa: F401  loaded once, before the forks
import pytest

from rollbook.tests.processors.proof import exhaustive, situations, test_table, walks
from rollbook.tests.processors.proof.compare import ProvenLog
from rollbook.tests.processors.proof.explained import EXPLAINED
from rollbook.tests.processors.proof.mutations import Mutant, mutants

HERE = Path(__file__).parent
STAGES: tuple[tuple[str, ...], ...] = (
    ("proof/test_table.py", "proof/test_corners.py", "proof/test_recorded.py", "test_lifecycle.py", "test_rules.py"),
    (*sorted(path.name for path in HERE.parent.glob("test_fold_*.py")), "test_room.py"),
    ("proof/test_exhaustive.py", "proof/test_walks.py", "proof/test_trainers.py"),
)
"""What a mutant must pass that survives the calls below."""
TIMEOUT_S = 600


def plain_tests() -> list[Callable[[], None]]:
    """Tests that need nothing, to be called without a test runner: most mutants die of them within a second."""
    found: list[Callable[[], None]] = []
    names = [f"proof.{name}" for name in ("test_counterexamples", "test_found", "test_corners")]
    names += sorted(path.stem for path in HERE.parent.glob("test_fold_*.py"))
    for name in names:
        module = importlib.import_module(f"rollbook.tests.processors.{name}")
        tests = [getattr(module, attribute) for attribute in vars(module) if attribute.startswith("test_")]
        found += [test for test in tests if inspect.isfunction(test) and not inspect.signature(test).parameters]
    return found


PLAIN = plain_tests()


def called() -> None:
    """Raises for most mutants."""
    for case in situations.CASES:
        test_table.test_what_a_record_does_to_a_state(*case)
    for test in PLAIN:
        test()
    for start in exhaustive.STARTS:
        exhaustive.Search(start, lean=True).go(3)
    for seed in range(20):
        walks.run(ProvenLog(), walks.deep(seed))


def _child(mutant: Mutant | None, deselected: Iterable[str]) -> int:
    """In a process of its own: put the mutant in place, and test. 0: it survives."""
    with Path(os.devnull).open("w") as nothing:
        os.dup2(nothing.fileno(), 1)
        os.dup2(nothing.fileno(), 2)
    signal.alarm(TIMEOUT_S)
    if mutant is not None:
        mutant.apply()
    called()
    skips = [f"--deselect={name}" for name in deselected]
    for stage in STAGES:
        files = [str(HERE.parent / name) for name in stage]
        if pytest.main(["-x", "-q", "-p", "no:cacheprovider", "-p", "no:xdist", *skips, *files]):
            return 1
    return 0


def _forked(mutant: Mutant | None, deselected: Iterable[str]) -> int:
    pid = os.fork()
    if pid == 0:
        code = 1
        try:
            code = _child(mutant, deselected)
        finally:
            os._exit(code)
    return pid


def search(chosen: list[Mutant], deselected: Iterable[str], jobs: int) -> list[Mutant]:
    """The survivors."""
    running: dict[int, Mutant] = {}
    survivors: list[Mutant] = []
    waiting = list(reversed(chosen))
    while waiting or running:
        while waiting and len(running) < jobs:
            mutant = waiting.pop()
            running[_forked(mutant, deselected)] = mutant
        pid, status = os.wait()
        mutant = running.pop(pid)
        if status == 0:
            survivors.append(mutant)
            print(f"survives: {mutant.name}", flush=True)
    return survivors


def main() -> int:
    """Search, and say what survived unexplained."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--only", action="append", default=[], help="mutants whose name has this in it")
    parser.add_argument("--every", type=int, default=1, help="one in so many")
    parser.add_argument("--jobs", type=int, default=2)
    parser.add_argument("--list", action="store_true", help="only name them")
    parser.add_argument("--deselect", action="append", default=[], help="a test to leave out, as pytest takes it")
    options = parser.parse_args()
    chosen = [mutant for mutant in mutants() if not options.only or any(part in mutant.name for part in options.only)][
        :: options.every
    ]
    if options.list:
        print("\n".join(mutant.name for mutant in chosen))
        return 0
    _, status = os.waitpid(_forked(None, options.deselect), 0)
    if status:
        print("the selection fails without any mutant: mend that first")
        return 1
    began = time.monotonic()
    survivors = search(chosen, options.deselect, options.jobs)
    unexplained = [mutant for mutant in survivors if mutant.name not in EXPLAINED]
    alive, seconds = Counter(mutant.kind for mutant in survivors), time.monotonic() - began
    for kind, count in Counter(mutant.kind for mutant in chosen).items():
        print(f"{kind:20} {count:4} mutants, {alive[kind]:3} survive")
    print(f"{len(chosen)} mutants, {len(survivors)} survive, {len(unexplained)} unexplained, {seconds:.0f} s")
    for mutant in unexplained:
        print(f"unexplained: {mutant.name}")
    return 1 if unexplained else 0


if __name__ == "__main__":
    sys.exit(main())
