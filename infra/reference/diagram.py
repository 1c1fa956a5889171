"""The picture of a trajectory's lifecycle, from the table of transitions: an SVG that needs no library to be shown.

States and arrows are the table's; here is said only where a state stands. What several states share, the ways out of
the ledger, is a line along the bottom with a dot below each state that takes it.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from html import escape

from rollbook.processors.lifecycle import NONE, TRANSITIONS
from rollbook.schemas.records.ledger import TrajectoryStatus as S

_WIDTH, _HEIGHT, _DOT = 118, 36, 7
_COLUMN, _TOP, _LANE = 196, 96, 46
_PLACES = {
    NONE: (0, 0),
    S.DISPATCHED: (1, 0),
    S.GENERATED: (2, 0),
    S.REWARD_FAILED: (3, 1.6),
    S.REWARDED: (4, 0),
    S.RESERVED: (5, 0),
    S.CONSUMED: (6, 0),
}
"""Column and row of what is not at the end of a line."""
_FIRST_LANE = 3.1

_STYLE = """
.lifecycle { --ink: #1f2328; --soft: #6e7781; --paper: #ffffff; --line: #00796b; }
.lifecycle { font: 15px sans-serif; max-width: 100%; }
@media (prefers-color-scheme: dark) {
  .lifecycle { --ink: #e6edf3; --soft: #9aa4ae; --paper: #161b22; --line: #4db6ac; }
}
.lifecycle rect { fill: var(--paper); stroke: var(--ink); stroke-width: 1.2; }
.lifecycle circle { fill: var(--ink); }
.lifecycle path { fill: none; stroke: var(--line); stroke-width: 1.4; marker-end: url(#arrow); }
.lifecycle path.stem { stroke: var(--soft); stroke-width: 1; marker-end: none; }
.lifecycle circle.joint, .lifecycle marker path { fill: var(--line); stroke: none; }
.lifecycle text { fill: var(--ink); text-anchor: middle; }
.lifecycle text.event { fill: var(--soft); font-size: 13px; }
.lifecycle text.event { stroke: var(--paper); stroke-width: 5px; paint-order: stroke; }
"""


@dataclass(frozen=True, slots=True)
class Point:
    x: float
    y: float


@dataclass(frozen=True, slots=True)
class Arrow:
    """What leads from one state to another."""

    source: str
    target: str
    events: tuple[str, ...]

    def __str__(self) -> str:
        return f"{self.source} --> {self.target}: {self.label}"

    @property
    def label(self) -> str:
        return ", ".join(self.events)


def arrows() -> tuple[Arrow, ...]:
    """Those of the table, in its order; the events between the same two states together."""
    events: dict[tuple[str, str], list[str]] = {}
    for (state, event), after in TRANSITIONS.items():
        events.setdefault((state, after), []).append(str(event))
    return tuple(Arrow(str(state), str(after), tuple(names)) for (state, after), names in events.items())


def diagram() -> str:
    """The picture."""
    drawn = [*_lanes(), *(line for one in arrows() if one.target in _PLACES for line in _between(one)), *_states()]
    drawn.sort(key=lambda line: line.startswith("<text"))  # words over lines
    width = round(_lane(0).x + _WIDTH / 2 + 20)
    height = round(_lane(len(_ends()) - 1).y + _HEIGHT)
    size = f'width="{width}" height="{height}" viewBox="0 0 {width} {height}"'
    return "\n".join(
        (
            f'<svg xmlns="http://www.w3.org/2000/svg" class="lifecycle" {size} role="img">',
            "<title>The lifecycle of a trajectory</title>",
            f"<style>{_STYLE}</style>",
            '<marker id="arrow" viewBox="0 0 8 8" refX="7" refY="4" markerWidth="7" markerHeight="7" orient="auto">'
            '<path d="M0 0 8 4 0 8z"/></marker>',
            *drawn,
            "</svg>\n",
        )
    )


def _ends() -> list[str]:
    """The states that nothing leaves by name of their line, in the table's order."""
    return list(dict.fromkeys(one.target for one in arrows() if one.target not in _PLACES))


def _at(state: str) -> Point:
    column, row = _PLACES[state]
    return Point(16 + column * _COLUMN - (0 if column == 0 else 40), _TOP + row * _LANE)


def _lane(number: int) -> Point:
    return Point(_at(S.CONSUMED).x, _TOP + (_FIRST_LANE + number) * _LANE)


def _between(arrow: Arrow) -> Iterator[str]:
    """Straight to a neighbour, else in a bow over what lies between."""
    source, target = _at(arrow.source), _at(arrow.target)
    columns = round(abs(target.x - source.x) / _COLUMN)
    if source.y != target.y:
        down = target.y > source.y
        first = Point(source.x + (0.3 if down else 0.5) * _WIDTH, source.y + (0.5 * _HEIGHT if down else 0))
        last = Point(target.x - (0.5 if down else 0.3) * _WIDTH, target.y + (0 if down else 0.5 * _HEIGHT))
        yield _path(arrow, f"M{first.x:g} {first.y:g} {last.x:g} {last.y:g}")
        yield _event(Point((first.x + last.x) / 2, (first.y + last.y) / 2 + 4), arrow.label)
    elif target.x > source.x and (columns == 1 or not _is_taken(source, target)):
        left, right = source.x + _half(arrow.source), target.x - _half(arrow.target)
        yield _path(arrow, f"M{left:g} {source.y:g} {right:g} {target.y:g}")
        yield _event(Point((left + right) / 2 - 3, source.y - 8), arrow.label)
    else:
        lift, shift = 32 * columns, (10 if target.x > source.x else -10) * columns
        top = source.y - _HEIGHT / 2
        begin = source.y - (_DOT if arrow.source == NONE else _HEIGHT / 2)
        bow = f"C{source.x + shift:g} {top - lift:g} {target.x - shift:g} {top - lift:g} {target.x:g} {top:g}"
        yield _path(arrow, f"M{source.x:g} {begin:g} {bow}")
        yield _event(Point((source.x + target.x) / 2, top - 0.75 * lift + 4), arrow.label)


def _is_taken(source: Point, target: Point) -> bool:
    return any(source.x < _at(state).x < target.x and _at(state).y == source.y for state in _PLACES)


def _lanes() -> Iterator[str]:
    """A line for each end, and a stem below each state down to the last line that it joins."""
    joined: dict[str, list[Point]] = {}
    for number, end in enumerate(_ends()):
        line, into = _lane(number), [one for one in arrows() if one.target == end]
        first = min(_at(one.source).x + _stem(one.source) for one in into)
        for one in into:
            joined.setdefault(one.source, []).append(Point(_at(one.source).x + _stem(one.source), line.y))
        titles = "".join(f"<title>{escape(str(one))}</title>" for one in into)
        yield f'<path d="M{first:g} {line.y:g} {line.x - _WIDTH / 2 - 16:g} {line.y:g}">{titles}</path>'
        yield _event(Point(line.x - _WIDTH / 2 - 76, line.y - 8), into[0].label)
    for state, points in joined.items():
        top, bottom = _at(state).y + _depth(state), max(point.y for point in points)
        yield f'<path class="stem" d="M{points[0].x:g} {top:g} V{bottom:g}"/>'
        yield from (f'<circle class="joint" cx="{point.x:g}" cy="{point.y:g}" r="3"/>' for point in points)


def _stem(state: str) -> float:
    """Beside the middle, where an arrow leaves below."""
    return -0.2 * _WIDTH if state == S.GENERATED else 0


def _states() -> Iterator[str]:
    begin = _at(NONE)
    yield f'<circle cx="{begin.x:g}" cy="{begin.y:g}" r="{_DOT}"/>'
    for state in (*(one for one in _PLACES if one != NONE), *_ends()):
        at = _at(state) if state in _PLACES else _lane(_ends().index(state))
        width = _WIDTH if state in _PLACES else _WIDTH + 16
        left = at.x - width / 2 - (0 if state in _PLACES else 8)
        yield f'<rect x="{left:g}" y="{at.y - _HEIGHT / 2:g}" width="{width}" height="{_HEIGHT}" rx="6"/>'
        yield f'<text x="{left + width / 2:g}" y="{at.y + 5:g}">{escape(state)}</text>'


def _half(state: str) -> float:
    return _DOT + 3 if state == NONE else _WIDTH / 2


def _depth(state: str) -> float:
    return _DOT if state == NONE else _HEIGHT / 2


def _path(arrow: Arrow, line: str) -> str:
    return f'<path d="{line}"><title>{escape(str(arrow))}</title></path>'


def _event(at: Point, label: str) -> str:
    return f'<text class="event" x="{at.x:g}" y="{at.y:g}">{escape(label)}</text>'
