"""Fuzz the parsers for some minutes, all of them or some:

    python -m rollbook.tests.fuzz --minutes 60 [--target NAME]... [--seed N] [--jobs N] [--out FOLDER]

The same seed tries the same input in the same order; the minutes only say how much of it. An input that breaks a
promise is written to a file, once for each kind of failure, as small as could be made; `--again FILE` tries one alone.
Exits 1 where there is any. It belongs then into tests/fuzz/found/TARGET/, from where each test run tries it again.
"""

import argparse
import os
import sys
from collections.abc import Iterator, Sequence
from concurrent.futures import ProcessPoolExecutor
from contextlib import contextmanager
from multiprocessing import get_context
from pathlib import Path

from rollbook.tests.fuzz.engine import Failure, Result, fuzz, tried
from rollbook.tests.fuzz.table import TARGETS

_MEMORY = Path("/dev/shm")


def main(arguments: Sequence[str]) -> int:
    options = _options(arguments)
    if options.list:
        for target in TARGETS.values():
            print(f"{target.name:<20} x{target.share} {target.about}")
        return 0
    if options.again is not None:
        return _again(options.target, options.again)
    names = options.target or list(TARGETS)
    # Two minutes of files that are synced to a disk are a few seconds of ones in memory.
    if _MEMORY.is_dir():
        os.environ.setdefault("TMPDIR", str(_MEMORY))
    seconds = 60 * options.minutes * options.jobs / sum(TARGETS[name].share for name in names)
    failures = 0
    print(f"seed {options.seed}, {len(names)} targets, {seconds:.0f} s for each share of one", flush=True)
    with _pool(options.jobs) as pool:
        # The long ones first, so that no job is left with one of them at the end.
        names.sort(key=lambda name: -TARGETS[name].share)
        work = [(name, options.seed, seconds * TARGETS[name].share, options.out) for name in names]
        for result in map(_work, work) if pool is None else pool.map(_work, work):
            failures += len(result.failures)
            print(
                f"{result.target:<20} {result.inputs:>9,} tried {result.accepted:>9,} accepted {result.answers:>7,} "
                f"answers {result.seconds:>6.0f} s  {len(result.failures) or 'no'} failures",
                flush=True,
            )
    return 1 if failures else 0


def _options(arguments: Sequence[str]) -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m rollbook.tests.fuzz", description="Fuzz the parsers.")
    parser.add_argument(
        "--minutes", type=float, default=1.0, help="for all targets together, by their shares, on each job"
    )
    parser.add_argument(
        "--target", action="append", choices=[*TARGETS], metavar="NAME", help="only this; several times"
    )
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--jobs", type=int, default=1, help="processes")
    parser.add_argument("--out", type=Path, default=Path("fuzz-found"), help="folder of inputs that failed")
    parser.add_argument("--again", type=Path, metavar="FILE", help="try one input of the target alone")
    parser.add_argument("--list", action="store_true", help="the targets")
    options = parser.parse_args(arguments)
    if options.again is not None and len(options.target or ()) != 1:
        parser.error("--again FILE wants one --target")
    return options


def _work(of: tuple[str, int, float, Path]) -> Result:
    name, seed, seconds, out = of
    return fuzz(TARGETS[name], seed, seconds=seconds, tell=lambda failure: _keep(failure, out))


def _keep(failure: Failure, out: Path) -> None:
    folder = out / failure.target
    folder.mkdir(parents=True, exist_ok=True)
    path = folder / f"{failure.name}.bin"
    path.write_bytes(failure.data)
    path.with_suffix(".txt").write_text(failure.trace, encoding="utf-8", errors="backslashreplace")
    print(f"{failure.target}: {failure.kind}: {path}", flush=True)


def _again(names: Sequence[str], path: Path) -> int:
    answer, failure = tried(TARGETS[names[0]], path.read_bytes())
    print(answer if failure is None else failure.trace)
    return 0 if failure is None else 1


@contextmanager
def _pool(jobs: int) -> Iterator[ProcessPoolExecutor | None]:
    """None for one job: it works here, and can be looked into."""
    if jobs == 1:
        yield None
        return
    with ProcessPoolExecutor(jobs, mp_context=get_context("spawn")) as pool:
        yield pool


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
