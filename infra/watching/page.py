"""Lines of a frame: cells that fit their width, sections that share a height. Pure; what records say is only text."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from enum import StrEnum

from rich.cells import cell_len
from rich.text import Text

from rollbook.infra.watching.charts import Ink
from rollbook.schemas.text import visible

_LONGEST = 200
_GAP = "   "


class Tone(StrEnum):
    """How something is shown beside its words; nothing is told by its colour alone."""

    PLAIN = ""
    QUIET = "dim"
    STRONG = "bold"
    CHART = "cyan"
    GOOD = "green"
    LOOK = "yellow"
    BAD = "bold red"


@dataclass(frozen=True, slots=True)
class Section:
    """A title and its lines, most important first."""

    title: str
    lines: tuple[Text, ...]


def said(value: object, tone: Tone = Tone.PLAIN) -> Text:
    """Data: no markup, no control characters, one line."""
    return Text(visible(value, _LONGEST), style=tone.value, no_wrap=True)


def joined(*parts: Text | str) -> Text:
    """One after the other."""
    found = Text(no_wrap=True)
    for part in parts:
        found.append_text(part if isinstance(part, Text) else Text(part))
    return found


def fit(line: Text, width: int, ink: Ink, *, pad: bool = False) -> Text:
    """Cut where it is too long, which is shown."""
    found = line.copy()
    if cell_len(found.plain) > width:
        found.truncate(max(0, width - len(ink.more)))
        found.append(ink.more[: max(0, width)], style=Tone.QUIET.value)
    if pad:
        found.pad_right(max(0, width - cell_len(found.plain)))
    return found


def flowed(parts: Iterable[Text], width: int) -> list[Text]:
    """As many on a line as there is room for."""
    lines: list[Text] = []
    for part in parts:
        if lines and cell_len(lines[-1].plain) + len(_GAP) + cell_len(part.plain) <= width:
            lines[-1] = joined(lines[-1], _GAP, part)
        else:
            lines.append(part)
    return lines


def stacked(sections: Sequence[Section], height: int, ink: Ink) -> list[Text]:
    """One below the other. Each has its title and a line as long as there is room; what is left goes round."""
    shown = [section for section in sections if section.lines][: max(0, height // 2)]
    rows = [1] * len(shown)
    left = height - 2 * len(shown)
    while left > 0 and (open_ := [at for at, one in enumerate(shown) if rows[at] < len(one.lines)]):
        for at in open_[:left]:
            rows[at] += 1
            left -= 1
    return [line for at, section in enumerate(shown) for line in _section(section, rows[at], ink)]


def _section(section: Section, rows: int, ink: Ink) -> list[Text]:
    title, more = Text(section.title, style=Tone.STRONG.value, no_wrap=True), len(section.lines) - rows
    if more:
        title = joined(title, Text(f" ({rows} of {len(section.lines):,})", style=Tone.QUIET.value))
    return [title, *section.lines[:rows]]


def beside(left: Sequence[Text], right: Sequence[Text], width: int, ink: Ink) -> list[Text]:
    """In two columns."""
    gap = 2
    first = (width - gap) // 2
    second = width - gap - first
    nothing = Text()
    return [
        joined(
            fit(left[at] if at < len(left) else nothing, first, ink, pad=True),
            " " * gap,
            fit(right[at] if at < len(right) else nothing, second, ink),
        )
        for at in range(max(len(left), len(right)))
    ]
