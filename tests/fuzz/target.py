"""A parser to be fuzzed: what it is given at first, and what must hold whatever it is given.

Bytes in, and out comes a value or a `RollbookError` of one line, in bounded time and memory; what is accepted can be
written and read again where that is defined.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from random import Random
from typing import TypeVar

from rollbook.schemas.errors import RollbookError

T = TypeVar("T")
_LONGEST_LINE = 6_000

refusals: list[str] = []
"""Of the input that is being tried, in words: other words are another answer."""

Mutate = Callable[[Random, bytes], bytes]


@dataclass(frozen=True, slots=True)
class Target:
    """`about`: what is parsed, and who it comes from. `seeds`: good input, to begin with. `check`: whether it was
    accepted; raises whatever must not be. `mutate`: knows the structure, used beside changes of any bytes. `words`:
    what is likely to be understood. `share`: of the programme's time, against 1 for most: what asks much of each input
    gets through few of them."""

    name: str
    about: str
    seeds: Callable[[], Sequence[bytes]]
    check: Callable[[bytes], bool]
    mutate: Mutate | None = None
    words: tuple[bytes, ...] = ()
    share: int = 1


def noted(answer: str) -> None:
    """What else tells one answer from another, where accepted is not all there is to say."""
    refusals.append(answer)


def told(call: Callable[[], T], *also: type[Exception]) -> T | None:
    """What the call returns; None where it refuses, by an error of ours, or one `also` promised, on one line."""
    refused: tuple[type[Exception], ...] = (RollbookError, *also)
    try:
        return call()
    except refused as error:
        text = str(error)
    assert text.strip(), "a refusal that says nothing"
    assert "\n" not in text, f"more than a line: {text!r}"
    assert len(text) <= _LONGEST_LINE, f"a message of {len(text)} characters: {text[:200]!r}"
    refusals.append(text)
    return None
