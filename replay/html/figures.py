"""The pictures as figures of the plotting library, which is imported here only."""

from collections.abc import Sequence
from html import escape
from math import log10
from typing import Any

import numpy as np

from rollbook.replay.html.pictures import Cell, Picture
from rollbook.replay.stages.stage import Unit
from rollbook.schemas.errors import EnvironmentFault
from rollbook.schemas.text import plural, visible

_SMALLEST, _LARGEST = -12.0, 4.0
_RECORDED, _RECOMPUTED, _WRONG = "#5b7ea4", "#d98f3c", "#b3261e"
_LAYOUT = {
    "template": "plotly_white",
    "margin": {"l": 66, "r": 20, "t": 44, "b": 46},
    "font": {"family": "system-ui, sans-serif", "size": 12},
    "title": {"font": {"size": 14}, "x": 0, "xref": "paper", "xanchor": "left"},
}
_SCALE = [[0.0, "#f3f5f8"], [0.35, "#c7d5e5"], [0.6, "#7d9bbd"], [0.8, "#d98f3c"], [1.0, "#b3261e"]]


def library() -> Any:
    """The plotting library; raises `EnvironmentFault` where it is not installed."""
    try:
        import plotly.graph_objects as graph  # type: ignore[import-untyped]
    except ModuleNotFoundError:
        raise EnvironmentFault("a page with pictures needs the package plotly: pip install 'rollbook[html]'") from None
    return graph


def script() -> str:
    """The library's own script, which the page carries so that it needs no network."""
    library()
    from plotly.offline import get_plotlyjs  # type: ignore[import-untyped]

    return str(get_plotlyjs())


def error_map(picture: Picture) -> str:
    """The absolute error by sample and token, or by sample, as JSON of a figure."""
    return _by_token(picture) if picture.result.unit is Unit.TOKEN else _by_sample(picture)


def _by_token(picture: Picture) -> str:
    graph = library()
    cells = picture.cells
    largest = max((_log(cell.error) for row in cells for cell in row if cell is not None), default=0.0)
    figure = graph.Figure(
        graph.Heatmap(
            z=[[None if cell is None else _log(cell.error) for cell in row] for row in cells],
            text=[["" if cell is None else _hover(cell) for cell in row] for row in cells],
            hovertemplate="%{text}<extra></extra>",
            x0=0,
            dx=picture.tokens_per_column,
            y0=0,
            dy=picture.samples_per_row,
            zmin=_SMALLEST,
            zmax=max(0.0, largest),
            colorscale=_SCALE,
            colorbar={"title": {"text": "error"}, "tickvals": _TICKS, "ticktext": _TICK_TEXTS, "outlinewidth": 0},
            hoverongaps=False,
        )
    )
    many = picture.samples_per_row * picture.tokens_per_column
    figure.update_layout(
        **_LAYOUT,
        title_text=f"Absolute error by sample and token{_worst_of(many)}",
        xaxis_title="token of the response",
        yaxis_title="sample, in index order",
        height=440,
    )
    figure.update_xaxes(showgrid=False, zeroline=False)
    figure.update_yaxes(showgrid=False, zeroline=False, autorange="reversed")
    if picture.first is not None:
        row, column = picture.first
        marker = {"symbol": "circle-open", "size": 16, "color": "black", "line": {"width": 2}}
        x, y = column * picture.tokens_per_column, row * picture.samples_per_row
        figure.add_scatter(x=[x], y=[y], mode="markers", marker=marker, hoverinfo="skip", showlegend=False)
    return str(figure.to_json())


def _by_sample(picture: Picture) -> str:
    graph = library()
    cells = [row[0] for row in picture.cells]
    figure = graph.Figure(
        graph.Bar(
            x=[at * picture.samples_per_row for at in range(len(cells))],
            y=[0 if cell is None else _log(cell.error) - _SMALLEST for cell in cells],
            customdata=["" if cell is None else _hover(cell) for cell in cells],
            hovertemplate="%{customdata}<extra></extra>",
            marker={"color": [_color(picture, cell) for cell in cells], "line": {"width": 0}},
        )
    )
    figure.update_layout(
        **_LAYOUT,
        title_text=f"Absolute error by sample{_worst_of(picture.samples_per_row)}",
        xaxis_title="sample, in index order",
        yaxis_title="error",
        height=260,
    )
    ticks = [tick - _SMALLEST for tick in _TICKS]
    figure.update_yaxes(tickvals=ticks, ticktext=_TICK_TEXTS, range=[0, max(-_SMALLEST, *_heights(cells)) + 0.5])
    return str(figure.to_json())


def _heights(cells: Sequence[Cell | None]) -> list[float]:
    return [_log(cell.error) - _SMALLEST for cell in cells if cell is not None]


def _color(picture: Picture, cell: Cell | None) -> str:
    if cell is None:
        return _RECORDED
    tolerance = picture.result.tolerance
    outside = not cell.error <= tolerance.atol + tolerance.rtol * abs(cell.expected)
    return _WRONG if outside and picture.result.first is not None else _RECORDED


def _worst_of(values: int) -> str:
    return f", each the worst of up to {values:,} values" if values > 1 else ""


_TICKS = [-12, -9, -6, -3, 0, 3]
_TICK_TEXTS = ["1e-12", "1e-9", "1e-6", "1e-3", "1", "1e3"]


def distribution(picture: Picture) -> str:
    """Recorded and recomputed values in the same bins, as JSON of a figure."""
    graph = library()
    found = picture.values
    assert found is not None
    middles = (found.edges[:-1] + found.edges[1:]) / 2
    width = float(found.edges[1] - found.edges[0])
    most = int(max(found.expected.max(), found.actual.max(), 1))
    figure = graph.Figure()
    for name, counts, color in (("recorded", found.expected, _RECORDED), ("recomputed", found.actual, _RECOMPUTED)):
        figure.add_bar(
            x=middles.tolist(),
            y=counts.tolist(),
            width=width,
            name=name,
            marker={"color": color, "line": {"width": 0}},
            opacity=0.6,
            hovertemplate=f"%{{y:,}} {name} about %{{x:.4g}}<extra></extra>",
        )
    figure.update_layout(
        **_LAYOUT,
        title_text="Values, recorded and recomputed",
        barmode="overlay",
        bargap=0,
        height=300,
        xaxis_title="value",
        yaxis={"title": {"text": "count"}, "type": "log", "dtick": 1, "range": [-0.3, log10(most) + 0.1]},
        legend={"orientation": "h", "x": 1, "xanchor": "right", "y": 1.14},
    )
    return str(figure.to_json())


def errors(picture: Picture) -> str:
    """How large the errors are, beside the tolerance, as JSON of a figure."""
    graph = library()
    edges = np.linspace(_SMALLEST, _LARGEST, picture.errors.size + 1)
    middles = (edges[:-1] + edges[1:]) / 2
    figure = graph.Figure(
        graph.Bar(
            x=middles.tolist(),
            y=picture.errors.tolist(),
            width=float(edges[1] - edges[0]),
            marker={"color": _RECORDED, "line": {"width": 0}},
            hovertemplate="%{y:,} values off by about 1e%{x:.1f}<extra></extra>",
        )
    )
    atol = picture.result.tolerance.atol
    if atol > 0:
        figure.add_vline(
            x=log10(atol), line={"color": _WRONG, "dash": "dash"}, annotation_text=f"atol {atol:g}", annotation_y=1
        )
    figure.update_layout(
        **_LAYOUT,
        title_text=f"Size of the errors; {plural(picture.exact, 'value')} exactly equal",
        height=300,
        xaxis_title="absolute error",
        yaxis_title="count",
        bargap=0,
    )
    figure.update_xaxes(range=[_SMALLEST, _LARGEST], tickvals=_TICKS, ticktext=_TICK_TEXTS)
    return str(figure.to_json())


def _log(error: float) -> float:
    return float(np.clip(np.log10(error), _SMALLEST, _LARGEST)) if error > 0 else _SMALLEST


def _hover(cell: Cell) -> str:
    token = "" if cell.token is None else f", token {cell.token:,}"
    return (
        f"{escape(visible(cell.sample_id, 60))}{token}<br>recorded {cell.expected:.9g}<br>"
        f"recomputed {cell.actual:.9g}<br>error {cell.error:.3g}"
    )
