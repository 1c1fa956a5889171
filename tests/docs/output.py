"""Whether a command printed what its page shows: the same words in the same lines, whatever numbers and ids they hold.

A line `...` stands for any number of lines, and at a line's end for what is left of it.
"""

import re
from collections.abc import Iterable, Sequence

_DRAWN = frozenset("▁▂▃▄▅▆▇█─")


def is_as_shown(shown: Sequence[str], printed: Sequence[str]) -> bool:
    """Line by line; what is left out on the page is left out."""
    text = "".join(f"{shape(line)}\n" for line in _trimmed(printed))
    return re.fullmatch("".join(map(_pattern, _trimmed(shown))), text) is not None


def _pattern(line: str) -> str:
    if line.strip() == "...":
        return r"(?:.*\n)*?"
    if line.endswith(" ..."):
        return rf"{re.escape(shape(line.removesuffix(' ...')))}.*\n"
    return rf"{re.escape(shape(line))}\n"


def shape(line: str) -> str:
    """A line without what differs from run to run: words that hold a digit, the heights of charts, runs of spaces."""
    return " ".join("#" if _varies(word) else word for word in line.split())


def _varies(word: str) -> bool:
    return any(char.isdigit() for char in word) or (word != "" and set(word) <= _DRAWN)


def _trimmed(lines: Iterable[str]) -> list[str]:
    return [line for line in lines if line.strip()]
