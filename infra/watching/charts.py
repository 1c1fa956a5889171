"""Small charts of characters. Pure."""

from collections.abc import Sequence
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Ink:
    """What charts are drawn with: `levels` from the smallest to a full cell, `parts` of a cell from the left."""

    levels: str
    parts: str
    more: str
    rule: str


BLOCKS = Ink("▁▂▃▄▅▆▇█", "▏▎▍▌▋▊▉█", "…", "─")
ASCII = Ink(".:-=+*%#", "#", "...", "-")
"""For an output that takes nothing else."""


def ink_for(encoding: str) -> Ink:
    """What an output of this encoding can show."""
    try:
        "".join((BLOCKS.levels, BLOCKS.parts, BLOCKS.more, BLOCKS.rule)).encode(encoding)
    except (UnicodeEncodeError, LookupError):
        return ASCII
    return BLOCKS


def sparkline(values: Sequence[float | None], ink: Ink, top: float | None = None) -> str:
    """A cell for each value, a blank where it is 0 or below, or not known (None); `top` is a full cell, or the largest
    of them is."""
    highest = max((one for one in values if one is not None), default=0.0) if top is None else top
    return "".join(_cell(value, highest, ink) for value in values)


def _cell(value: float | None, top: float, ink: Ink) -> str:
    if value is None or value <= 0 or top <= 0:
        return " "
    most = len(ink.levels) - 1
    return ink.levels[min(most, int(value / top * most + 0.5))]


def bar(value: float, top: float, width: int, ink: Ink) -> str:
    """From the left, `width` cells for `top`; anything above 0 shows."""
    if value <= 0 or top <= 0 or width <= 0:
        return ""
    fine = len(ink.parts)
    filled = max(1, min(width * fine, round(value / top * width * fine)))
    whole, left = divmod(filled, fine)
    return ink.parts[-1] * whole + (ink.parts[left - 1] if left else "")
