"""A share of the fuzzing programme, and every input that ever failed."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from rollbook.schemas.errors import BadInput
from rollbook.tests.fuzz.engine import Failure, fuzz, tried
from rollbook.tests.fuzz.table import TARGETS
from rollbook.tests.fuzz.target import Target, told

FOUND = Path(__file__).with_name("found")
SHARE = 12
"""Inputs of each target beside a few of its seeds: what a slip breaks at once. The programme is for the night."""


def inputs_that_failed() -> Iterator[tuple[str, Path]]:
    for path in sorted(FOUND.glob("*/*.bin")):
        yield path.parent.name, path


@pytest.mark.parametrize("name", TARGETS)
def test_a_share_of_the_programme(name: str) -> None:
    whole = TARGETS[name]
    few = Target(name, whole.about, lambda: whole.seeds()[:3], whole.check, whole.mutate, whole.words)
    result = fuzz(few, 1, inputs=SHARE)
    assert [failure.trace for failure in result.failures] == []
    assert result.inputs == SHARE + len(few.seeds())


@pytest.mark.parametrize(("name", "path"), list(inputs_that_failed()), ids=lambda one: getattr(one, "stem", None))
def test_what_failed_once_does_not_fail_again(name: str, path: Path) -> None:
    _, failure = tried(TARGETS[name], path.read_bytes())
    assert failure is None, failure.trace


def failures_of(target: Target) -> list[Failure]:
    return fuzz(target, 1, inputs=400).failures


def test_the_programme_notices_what_must_not_happen() -> None:
    """An error that is none of ours, one of several lines, and one that says nothing: else it could not fail."""

    def check(data: bytes) -> bool:
        if b"7" in data:
            raise ZeroDivisionError
        told(lambda: refuse("two\nlines" if b"8" in data else "" if b"9" in data else "no"))
        return False

    def refuse(text: str) -> None:
        raise BadInput(text)

    found = failures_of(Target("any", "any", lambda: [b"0123456"], check, words=(b"7", b"8", b"9")))
    assert sorted(failure.kind.split(" at ")[0] for failure in found) == ["AssertionError"] * 2 + ["ZeroDivisionError"]
    assert {failure.data for failure in found} == {b"7", b"8", b"9"}, "each as small as it can be"


def test_the_same_seed_tries_the_same_input() -> None:
    def inputs(seed: int) -> list[bytes]:
        seen: list[bytes] = []

        def check(data: bytes) -> bool:
            seen.append(data)
            return False

        fuzz(Target("any", "any", lambda: [b"one", b"two"], check), seed, inputs=50)
        return seen

    assert inputs(1) == inputs(1)
    assert inputs(1) != inputs(2)


def test_what_takes_too_long_or_too_much_memory_is_told(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("rollbook.tests.fuzz.engine.CPU_S", 0.2)

    def check(data: bytes) -> bool:
        try:
            while True:
                pass
        except Exception:  # as parsers take what their libraries raise
            return False

    _, slow = tried(Target("any", "any", lambda: [b""], check), b"")
    assert slow is not None
    assert slow.kind.startswith("TookTooLong")
    monkeypatch.setattr("rollbook.tests.fuzz.engine.GROWTH_BYTES", 32 << 20)
    memory = Target("any", "any", lambda: [b""], lambda data: bool(bytearray(int(data) << 20)))
    # Each by itself: neither does the first hide the others, nor is it held against them.
    large = [tried(memory, data)[1] for data in (b"96", b"1", b"80", b"96", b"1")]
    assert [failure and failure.kind.partition(" ")[0] for failure in large] == [
        "MemoryError", None, "MemoryError", "MemoryError", None,
    ]  # fmt: skip
