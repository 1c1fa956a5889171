"""How figures are drawn and said in a few characters. Pure."""

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


def age(seconds: float | None) -> str:
    """`3 s`, `4 min`, `2 h`, `9 d`."""
    if seconds is None:
        return "?"
    for length, unit in ((86_400, "d"), (3_600, "h"), (60, "min")):
        if seconds >= 2 * length:
            return f"{int(seconds // length):,} {unit}"
    return f"{int(seconds)} s"


def rate(value: float | None) -> str:
    """Per second, to three places or so."""
    if value is None:
        return "?"
    if value >= 100:
        return f"{value:,.0f}"
    return f"{value:.1f}" if value >= 1 or not value else f"{value:.2f}"


def share(value: float | None) -> str:
    """In per cent; what is not all is not said to be."""
    if value is None:
        return "?"
    if 0.995 <= value < 1:
        return ">99%"
    if 0 < value < 0.005:
        return "<1%"
    return f"{value:.0%}"
