"""The pictures as figures of the plotting library, which is imported here only."""

from html import escape
from math import log10
from typing import Any

import numpy as np

from rollbook.replay.html.pictures import Cell, Picture
from rollbook.replay.stage import Unit
from rollbook.replay.text import plural, visible
from rollbook.schemas.errors import EnvironmentFault

_SMALLEST, _LARGEST = -12.0, 4.0
_RECORDED, _RECOMPUTED, _WRONG = "#5b7ea4", "#d98f3c", "#b3261e"
_LAYOUT = {
    "template": "plotly_white",
    "margin": {"l": 60, "r": 20, "t": 44, "b": 46},
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
    graph = library()
    of_tokens = picture.result.unit is Unit.TOKEN
    cells = picture.cells if of_tokens else (tuple(row[0] for row in picture.cells),)
    heat = graph.Heatmap(
        z=[[None if cell is None else _log(cell.error) for cell in row] for row in cells],
        text=[["" if cell is None else _hover(cell) for cell in row] for row in cells],
        hovertemplate="%{text}<extra></extra>",
        x0=0,
        dx=picture.tokens_per_column if of_tokens else picture.samples_per_row,
        y0=0,
        dy=picture.samples_per_row if of_tokens else 1,
        zmin=_SMALLEST,
        zmax=0 if not cells else max(0.0, max(_log(cell.error) for row in cells for cell in row if cell is not None)),
        colorscale=_SCALE,
        colorbar={"title": {"text": "error"}, "tickvals": [-12, -9, -6, -3, 0, 3], "ticktext": _TICKS, "len": 1.0},
        hoverongaps=False,
    )
    figure = graph.Figure(heat)
    per = f", each cell the worst of up to {picture.samples_per_row * picture.tokens_per_column:,} values"
    binned = picture.samples_per_row * picture.tokens_per_column > 1
    figure.update_layout(
        **_LAYOUT,
        title_text=f"Absolute error by {'sample and token' if of_tokens else 'sample'}{per if binned else ''}",
        xaxis_title="token of the response" if of_tokens else "sample, in index order",
        yaxis_title="sample, in index order" if of_tokens else None,
        height=420 if of_tokens else 170,
    )
    figure.update_xaxes(showgrid=False)
    figure.update_yaxes(showgrid=False, autorange="reversed", showticklabels=of_tokens)
    first = picture.result.first
    if first is not None:
        place = _place(cells, first.sample_id, first.token_offset)
        if place is not None:
            row, column = place
            marker = {"symbol": "circle-open", "size": 16, "color": "black", "line": {"width": 2}}
            x = column * (picture.tokens_per_column if of_tokens else picture.samples_per_row)
            y = row * (picture.samples_per_row if of_tokens else 1)
            figure.add_scatter(x=[x], y=[y], mode="markers", marker=marker, hoverinfo="skip", showlegend=False)
    return str(figure.to_json())


_TICKS = ["≤ 1e-12", "1e-9", "1e-6", "1e-3", "1", "1e3"]


def distribution(picture: Picture) -> str:
    """Recorded and recomputed values in the same bins, as JSON of a figure."""
    graph = library()
    found = picture.values
    assert found is not None
    middles = (found.edges[:-1] + found.edges[1:]) / 2
    width = float(found.edges[1] - found.edges[0])
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
        yaxis_title="count",
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
    figure.update_xaxes(range=[_SMALLEST, _LARGEST], tickvals=[-12, -9, -6, -3, 0, 3], ticktext=_TICKS)
    return str(figure.to_json())


def _log(error: float) -> float:
    return float(np.clip(np.log10(error), _SMALLEST, _LARGEST)) if error > 0 else _SMALLEST


def _hover(cell: Cell) -> str:
    token = "" if cell.token is None else f", token {cell.token:,}"
    return (
        f"{escape(visible(cell.sample_id, 60))}{token}<br>recorded {cell.expected:.9g}<br>"
        f"recomputed {cell.actual:.9g}<br>error {cell.error:.3g}"
    )


def _place(
    cells: tuple[tuple[Cell | None, ...], ...], sample_id: str | None, token: int | None
) -> tuple[int, int] | None:
    """The cell that shows a value as its worst, if one does."""
    for row, line in enumerate(cells):
        for column, cell in enumerate(line):
            if cell is not None and (cell.sample_id, cell.token) == (sample_id, token):
                return row, column
    return None
