"""Would the tests notice? Each mutant of the rules is put in place, and a selection of the tests must fail:

    python -m rollbook.tests.processors.proof.mutants            all of them
    python -m rollbook.tests.processors.proof.mutants --only order

Survivors are listed; those in `EXPLAINED` change nothing that anybody can see, and say why. Any other makes the command
fail. What killed the mutant before is tried first: neighbours mostly die of the same test."""

import argparse
import os
import signal
import sys
import time
from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass, field
from pathlib import Path

import hypothesis  # noqa: F401  loaded once, before the forks
import pytest

from rollbook.tests.processors.proof.checks import HERE, Check, checks
from rollbook.tests.processors.proof.explained import EXPLAINED
from rollbook.tests.processors.proof.mutations import Mutant, mutants

STAGES: tuple[tuple[str, ...], ...] = (
    ("proof/test_recorded.py", "test_fold_evidence.py", "test_rules.py"),
    ("proof/test_exhaustive.py", "proof/test_walks.py", "proof/test_trainers.py", "test_properties.py"),
    ("order",),
)
"""What a mutant must pass that survives the checks."""
CHECKS_CPU_S, STAGES_CPU_S = 60, 600
"""A mutant that runs on and on is as dead as one that fails; of its own time, since the machine may be busy."""
CHECKS = checks()


def _child(mutant: Mutant | None, order: list[int], deselected: Iterable[str], said: int) -> int:
    """In a process of its own: put the mutant in place, and test; what fails is said. 0: it survives."""
    with Path(os.devnull).open("w") as nothing:
        os.dup2(nothing.fileno(), 1)
        os.dup2(nothing.fileno(), 2)
    signal.setitimer(signal.ITIMER_PROF, CHECKS_CPU_S)
    if mutant is not None:
        mutant.apply()
    for at in order:
        try:
            CHECKS[at].run()
        except BaseException:
            os.write(said, str(at).encode())
            return 1
    signal.setitimer(signal.ITIMER_PROF, STAGES_CPU_S)
    skips = [f"--deselect={name}" for name in deselected]
    for stage in STAGES:
        files = [str(HERE.parent / name) for name in stage]
        if pytest.main(["-x", "-q", "-p", "no:cacheprovider", "-p", "no:xdist", *skips, *files]):
            return 1
    return 0


def _forked(mutant: Mutant | None, order: list[int], deselected: Iterable[str]) -> tuple[int, int]:
    """Its process, and where it says what failed."""
    heard, said = os.pipe()
    pid = os.fork()
    if pid == 0:
        code = 1
        try:
            code = _child(mutant, order, deselected, said)
        finally:
            os._exit(code)
    os.close(said)
    return pid, heard


def _heard(pipe: int) -> Check | None:
    with os.fdopen(pipe) as reader:
        text = reader.read()
    return CHECKS[int(text)] if text else None


@dataclass
class Found:
    """Who survived, and of what the others died."""

    survivors: list[Mutant] = field(default_factory=list)
    killers: Counter[str] = field(default_factory=Counter)


def search(chosen: list[Mutant], deselected: Iterable[str], jobs: int) -> Found:
    """Each mutant in a process of its own."""
    found, order = Found(), list(range(len(CHECKS)))
    running: dict[int, tuple[Mutant, int]] = {}
    waiting = list(reversed(chosen))
    while waiting or running:
        while waiting and len(running) < jobs:
            mutant = waiting.pop()
            pid, pipe = _forked(mutant, order, deselected)
            running[pid] = mutant, pipe
        pid, status = os.wait()
        mutant, pipe = running.pop(pid)
        check = _heard(pipe)
        if status == 0:
            found.survivors.append(mutant)
            print(f"survives: {mutant.name}", flush=True)
        elif check is not None:
            found.killers[check.source] += 1
            at = CHECKS.index(check)
            order.remove(at)
            order.insert(0, at)
        else:
            found.killers["out of time" if os.WIFSIGNALED(status) else "the test runner"] += 1
            print(f"dies late: {mutant.name}", flush=True)
    return found


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
    pid, pipe = _forked(None, list(range(len(CHECKS))), options.deselect)
    _, status = os.waitpid(pid, 0)
    check = _heard(pipe)
    if status:
        print(f"{'a test' if check is None else check.name} fails without any mutant: mend that first")
        return 1
    began = time.monotonic()
    found = search(chosen, options.deselect, options.jobs)
    return report(chosen, found, time.monotonic() - began)


def report(chosen: list[Mutant], found: Found, seconds: float) -> int:
    """What came of it, by kind and by what killed."""
    unexplained = [mutant for mutant in found.survivors if mutant.name not in EXPLAINED]
    alive = Counter(mutant.kind for mutant in found.survivors)
    for kind, count in Counter(mutant.kind for mutant in chosen).items():
        print(f"{kind:20} {count:4} mutants, {alive[kind]:3} survive")
    for source, count in found.killers.most_common():
        print(f"{count:5} died of {source}")
    print(f"{len(chosen)} mutants, {len(found.survivors)} survive, {len(unexplained)} unexplained, {seconds:.0f} s")
    for mutant in unexplained:
        print(f"unexplained: {mutant.name}")
    dead = EXPLAINED.keys() & {mutant.name for mutant in chosen} - {mutant.name for mutant in found.survivors}
    for name in sorted(dead):
        print(f"explained, but dead: {name}")
    return 1 if unexplained or dead else 0


if __name__ == "__main__":
    sys.exit(main())
