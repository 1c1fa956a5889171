"""Fuzzes one target: makes input from its seeds, and keeps what brings something new. Follows from the seed alone.

Something new is an answer that was not had before: accepted, or a refusal in other words (names and numbers aside).
"""

import ctypes
import gc
import re
import resource
import signal
import sys
import threading
import time
import traceback
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from hashlib import sha256
from pathlib import Path
from random import Random
from types import FrameType

from rollbook.tests.fuzz.mutation import mutated
from rollbook.tests.fuzz.target import Target, refusals

CPU_S = 5.0
"""For one input. Of this process's own time: a busy machine is no fault of a parser."""
GROWTH_BYTES = 512 * 1024 * 1024
"""How much more memory than before one input may use at any time."""
_KEPT_BYTES = 64 * 1024 * 1024
"""What may be left in the allocator's hands by one input: the next one would use it unseen."""
_ACCEPTED = "accepted"
_MOST_KEPT = 2_000
_MOST_FAILURES = 25
_PLAIN = re.compile(r"'.*'|\".*\"|/(?:tmp|dev/shm)/\S+|[0-9a-f]{8,}|[0-9]+", re.DOTALL)
"""Of an answer what is of its input."""
_HERE = str(Path(__file__).parents[2])
_CLEAR, _STATUS = Path("/proc/self/clear_refs"), Path("/proc/self/status")
"""Linux alone can begin a process' peak anew."""


class TookTooLong(BaseException):
    """Not an Exception: a parser that takes any of them for bad input must not take this."""


@dataclass(frozen=True, slots=True)
class Failure:
    """An input that broke a promise. `kind`: the exception and where it came from, the same for the same fault."""

    target: str
    data: bytes
    kind: str
    trace: str

    @property
    def name(self) -> str:
        return f"{self.target}-{sha256(self.data).hexdigest()[:12]}"


@dataclass(slots=True)
class Result:
    """What fuzzing a target came to."""

    target: str
    inputs: int = 0
    accepted: int = 0
    answers: int = 0
    seconds: float = 0.0
    failures: list[Failure] = field(default_factory=list)


def tried(target: Target, data: bytes) -> tuple[str, Failure | None]:
    """What a target answers to one input, in plain words, and what is wrong with that."""
    before = _peak_begins()
    try:
        with _bounded():
            refusals.clear()
            accepted = target.check(data)
            answer = f"{_ACCEPTED if accepted else ''} {_PLAIN.sub('_', ' '.join(refusals)[:300])}"
        if _peak_bytes() - before > GROWTH_BYTES:
            raise MemoryError(f"{(_peak_bytes() - before) >> 20} MiB more for {len(data):,} bytes")
    except KeyboardInterrupt:
        raise
    except BaseException as fault:
        return "failed", Failure(target.name, data, _kind(fault), "".join(traceback.format_exception(fault)))
    finally:
        if _peak_bytes() - before > _KEPT_BYTES:
            _give_back()
    return answer, None


def fuzz(
    target: Target,
    seed: int,
    *,
    inputs: int | None = None,
    seconds: float | None = None,
    tell: Callable[[Failure], None] = lambda _: None,
) -> Result:
    """Try the target's seeds, then so many inputs, or for so long. Each kind of failure is told once, made smaller."""
    began = time.monotonic()
    result = Result(target.name)
    rng = Random(f"{seed} {target.name}")
    pool = list(target.seeds())
    kinds: set[str] = set()
    answers: set[str] = set()
    for data, is_new in _inputs(target, rng, pool):
        if is_new and (_is_over(began, seconds) or inputs == 0 or len(kinds) == _MOST_FAILURES):
            break
        inputs = inputs if inputs is None or not is_new else inputs - 1
        answer, failure = tried(target, data)
        result.inputs += 1
        result.accepted += answer.startswith(_ACCEPTED)
        if failure is not None and failure.kind not in kinds:
            kinds.add(failure.kind)
            result.failures.append(_smaller(target, failure))
            tell(result.failures[-1])
        elif failure is None and answer not in answers and is_new and len(pool) < _MOST_KEPT:
            pool.append(data)
        answers.add(answer)
    result.answers, result.seconds = len(answers), time.monotonic() - began
    return result


def _is_over(began: float, seconds: float | None) -> bool:
    return seconds is not None and time.monotonic() - began > seconds


def _inputs(target: Target, rng: Random, pool: list[bytes]) -> Iterator[tuple[bytes, bool]]:
    """The seeds, then without end what is made of the pool, which grows meanwhile."""
    yield from ((data, False) for data in tuple(pool))
    while True:
        data = rng.choice(pool)
        if target.mutate is not None and rng.random() < 0.6:
            data = target.mutate(rng, data)
            if rng.random() < 0.8:
                yield data, True
                continue
        yield mutated(rng, data, pool, target.words), True


def _smaller(target: Target, failure: Failure, most: int = 400) -> Failure:
    """The same fault with pieces left out, as far as so many attempts go."""
    if "TookTooLong" in failure.kind or "MemoryError" in failure.kind:
        return failure
    size, left = max(1, len(failure.data) // 2), most
    while left > 0:
        at = 0
        while at < len(failure.data) and left > 0:
            shorter = failure.data[:at] + failure.data[at + size :]
            left -= 1
            _, found = tried(target, shorter)
            if found is not None and found.kind == failure.kind:
                failure = found
            else:
                at += size
        if size == 1:
            break
        size //= 2
    return failure


def _kind(fault: BaseException) -> str:
    """By the innermost line of this project."""
    frames = traceback.extract_tb(fault.__traceback__)
    ours = [frame for frame in frames if frame.filename.startswith(_HERE) and "/.venv/" not in frame.filename]
    at = next((frame for frame in reversed(ours) if "/tests/fuzz/engine" not in frame.filename), None)
    where = "" if at is None else f" at {Path(at.filename).relative_to(_HERE)}:{at.lineno}"
    return f"{type(fault).__name__}{where}"


@contextmanager
def _bounded() -> Iterator[None]:
    """Raises TookTooLong in what uses too much of the processor; only the main thread can be told so."""
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    before = signal.signal(signal.SIGPROF, _end)
    signal.setitimer(signal.ITIMER_PROF, CPU_S)
    try:
        yield
    finally:
        signal.setitimer(signal.ITIMER_PROF, 0)
        signal.signal(signal.SIGPROF, before)


def _end(_: int, __: FrameType | None) -> None:
    raise TookTooLong(f"more than {CPU_S:.0f} s of the processor's time")


def _peak_begins() -> int:
    """The memory in use, from which the peak is measured anew: that of the process would hide all that is lower.
    Elsewhere than on Linux it is the process' own."""
    with suppress(OSError):
        _CLEAR.write_text("5")
    return _peak_bytes()


def _peak_bytes() -> int:
    if not _STATUS.exists():
        unit = 1 if sys.platform == "darwin" else 1024
        return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * unit
    peak = next(line for line in _STATUS.read_text().splitlines() if line.startswith("VmHWM:"))
    return int(peak.split()[1]) * 1024


def _give_back() -> None:
    gc.collect()
    with suppress(AttributeError):  # the C library of Linux has it
        ctypes.CDLL(None).malloc_trim(0)
