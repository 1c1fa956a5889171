"""One file that holds everything: text, pictures, and the script that draws them. It opens without a network.

Its policy allows no request at all and no script but the two that it carries (by their digests), whatever a bundle's
names may contain.
"""

import base64
import hashlib
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from html import escape
from pathlib import Path

from rollbook.replay.bundle.model import COMPLETE, MANIFEST
from rollbook.replay.engine.handover import Handover
from rollbook.replay.engine.result import Beside, Divergence, Outcome, RankResult, ReplayReport, Verdict
from rollbook.replay.html.figures import distribution, error_map, errors, script
from rollbook.replay.html.pictures import Picture
from rollbook.replay.report.beside import details, heading
from rollbook.replay.stages.stage import Unit
from rollbook.replay.stages.table import STAGES
from rollbook.replay.wholefile import replace_file
from rollbook.schemas.errors import BadInput, EnvironmentFault
from rollbook.schemas.text import plural, visible

_START = b"<!doctype html"
_OF_BUNDLE = (MANIFEST, COMPLETE)
_DRAW = """
for (const holder of document.querySelectorAll("script[type='application/json']")) {
  const figure = JSON.parse(holder.textContent);
  Plotly.newPlot(holder.previousElementSibling, figure.data, figure.layout,
    {responsive: true, displayModeBar: false});
}
"""
_STYLE = """
:root { color-scheme: light; }
body { font: 15px/1.5 system-ui, sans-serif; color: #1d2530; background: #fff; margin: 0 auto; max-width: 1080px;
  padding: 24px; }
h1 { font-size: 22px; margin: 36px 0 4px; overflow-wrap: anywhere; } h2 { font-size: 17px; margin: 32px 0 8px; }
h3 { font-size: 14px; margin: 0 0 4px; overflow-wrap: anywhere; }
.path { color: #5c6875; overflow-wrap: anywhere; }
.verdict { display: inline-block; font-weight: 600; padding: 1px 10px; border-radius: 4px; background: #eceff3; }
.pass { color: #1c6b3a; } .diverges { color: #b3261e; } .unverified, .unsupported, .lacking { color: #8a5a00; }
.first { border-left: 4px solid #b3261e; background: #fdf3f2; padding: 10px 16px; margin: 16px 0; }
table { border-collapse: collapse; font-variant-numeric: tabular-nums; max-width: 100%; }
th { text-align: left; color: #5c6875; font-weight: 500; white-space: nowrap; }
th, td { padding: 4px 24px 4px 0; vertical-align: top; border-bottom: 1px solid #e5e9ee; }
td.name { white-space: nowrap; } td.text { overflow-wrap: anywhere; } td.number, th.number { text-align: right; }
.pair { display: grid; grid-template-columns: 1fr 1fr; gap: 16px; }
@media (max-width: 760px) { .pair { grid-template-columns: 1fr; } }
"""


@dataclass(frozen=True, slots=True)
class Shown:
    """A bundle on the page, and what its ranks took over from the one before."""

    report: ReplayReport
    handovers: tuple[Handover, ...] = ()


def spare(path: Path) -> None:
    """Raises `BadInput` where a page at `path` would destroy something: a file of a bundle, whose numbers may exist
    nowhere else, or any other that is no page; and where it could not be. An empty one, a device and a pipe are
    taken."""
    target = path.resolve()
    try:
        if not target.parent.is_dir() or target.is_dir():
            raise BadInput(
                f"cannot write the page {visible(path)}: it is a folder, or lies in none; name a file in a folder that "
                "there is"
            )
        bundle = next((one for one in target.parents if any((one / name).is_file() for name in _OF_BUNDLE)), None)
        if bundle is not None:
            raise BadInput(
                f"--html {visible(path)} lies inside the bundle {visible(bundle)}: name a file outside of it"
            )
        if target.is_file() and target.stat().st_size:
            with target.open("rb") as file:
                if file.read(len(_START)).lower() != _START:
                    raise BadInput(
                        f"--html {visible(path)} is there already and is no page: name another file, or delete it first"
                    )
    except OSError as error:
        raise BadInput(f"cannot write the page {visible(path)}: {error.strerror}; check the path") from None


def write_page(path: Path, reports: Sequence[Shown], pictures: Sequence[Sequence[Picture]]) -> None:
    """The page of some bundles in the order of their training, each with its pictures. Replaces the file at `path` as a
    whole, the one that a link there names. Raises `EnvironmentFault` where it cannot be written."""
    text = page(reports, pictures)
    try:
        replace_file(path, text)
    except OSError as error:
        raise EnvironmentFault(f"cannot write the page {visible(path)}: {error.strerror}; give another place") from None


def page(reports: Sequence[Shown], pictures: Sequence[Sequence[Picture]]) -> str:
    """The text of the page."""
    library = script()
    policy = (
        f"default-src 'none'; script-src {_digest(library)} {_digest(_DRAW)}; style-src 'unsafe-inline'; "
        "img-src data: blob:; base-uri 'none'; form-action 'none'"
    )
    title = ", ".join(_text(shown.report.bundle_id) for shown in reports)
    overview = _overview(reports) if len(reports) > 1 else ""
    body = overview + "".join("".join(_bundle(shown, of)) for shown, of in zip(reports, pictures, strict=True))
    return (
        f'<!doctype html>\n<html lang="en"><head><meta charset="utf-8">'
        f'<meta http-equiv="Content-Security-Policy" content="{policy}">'
        f'<meta name="viewport" content="width=device-width, initial-scale=1">'
        f"<title>Replay of {title}</title><style>{_STYLE}</style></head>\n<body>\n{body}\n"
        f"<script>{library}</script>\n<script>{_DRAW}</script>\n</body></html>\n"
    )


def _overview(shown: Sequence[Shown]) -> str:
    """Of several bundles: how each came out, and where what it took over or computed first differs."""
    rows = []
    for one in shown:
        found = [handover.divergence for handover in one.handovers if handover.divergence is not None]
        first = found[0] if found else one.report.first_divergence
        where = "" if first is None else f"{'on the way to it, ' if found else ''}{first.stage}, {first.field}"
        css = Verdict.DIVERGES if found else one.report.verdict
        rows.append(
            f"<tr><td class='text'>{_text(one.report.bundle_id)}</td><td class='name {css}'>{css}</td>"
            f"<td class='text'>{escape(where)}</td></tr>"
        )
    head = "<th>bundle</th><th>outcome</th><th>first divergence</th>"
    return f"<h1>{len(shown)} bundles</h1>\n<table><tr>{head}</tr>{''.join(rows)}</table>\n"


def _bundle(shown: Shown, pictures: Sequence[Picture]) -> Iterator[str]:
    report = shown.report
    yield f"<h1>{_text(report.bundle_id)}</h1>\n<p class='path'>{_text(report.path)}</p>\n"
    part = "" if report.selected_samples is None else f" {plural(report.selected_samples, 'sample')} selected"
    yield f"<p><span class='verdict {report.verdict}'>{report.verdict}</span>{part}</p>\n"
    if report.verdict is Verdict.UNVERIFIED:
        yield "<p>Not everything that the bundle promises, or nothing at all, could be verified.</p>\n"
    for found in shown.handovers:
        if found.divergence is not None:
            title = f"On the way from {_text(found.upstream)}"
            yield _first(found.divergence, len(report.ranks), title, "taken over")
    if report.first_divergence is not None:
        yield _first(report.first_divergence, len(report.ranks), "First divergence")
    for rank in report.ranks:
        name = f" of rank {rank.rank}" if len(report.ranks) > 1 else ""
        yield f"<h2>Stages{name}</h2>\n{_stages(rank)}"
    yield from map(_beside, report.beside)
    yield from _scalars([picture for picture in pictures if picture.single is not None])
    # What the bundle holds of itself is worth a picture only where it contradicts itself.
    drawn = (one for one in pictures if one.cells and (one.differs or not STAGES[one.stage].structural))
    for picture in sorted(drawn, key=lambda one: one.result.first is None):
        yield from _figures(picture, len(report.ranks))


def _first(first: Divergence, ranks: int, title: str, actual: str = "recomputed") -> str:
    point = first.point
    place = [("rank", str(first.rank))] if ranks > 1 else []
    place += [("stage", first.stage), ("field", first.field)]
    if point.sample_id is not None:
        place.append(("sample", visible(point.sample_id)))
    if point.token_offset is not None:
        place.append(("token", f"{point.token_offset:,}"))
    counted = f"{plural(first.diverging_values, 'value')} in {plural(first.diverging_samples, 'sample')}"
    place += [
        ("recorded", f"{point.expected:.9g}"),
        (actual, f"{point.actual:.9g}"),
        ("absolute error", f"{point.abs_error:.3g}"),
        ("diverging", counted if first.diverging_samples else "a scalar of the whole step"),
    ]
    rows = "".join(f"<tr><th>{name}</th><td class='text'>{escape(value)}</td></tr>" for name, value in place)
    reason = f"<p>{_text(first.reason, 2_000)}</p>" if first.reason else ""
    return f"<div class='first'><h3>{title}</h3><table>{rows}</table>{reason}</div>\n"


def _beside(found: Beside) -> str:
    rows = "".join(
        f"<tr><th>{name}</th><td class='text'>{_text(text, 2_000)}</td></tr>" for name, text in details(found)
    )
    return f"<h2>{_text(heading(found), 1_000)}</h2>\n<table>{rows}</table>\n"


def _stages(rank: RankResult) -> str:
    rows = []
    for stage in rank.stages:
        diverging = sum(found.diverging_values for found in stage.fields)
        compared = f"{stage.verified_values:,}" if stage.fields else ""
        shown = f"{diverging:,}" if stage.outcome is Outcome.DIVERGES else ""
        css = stage.outcome.replace(" ", "-")
        rows.append(
            f"<tr><td class='name'>{stage.stage}</td><td class='name {css}'>{stage.outcome}</td>"
            f"<td class='number'>{compared}</td><td class='number'>{shown}</td>"
            f"<td class='text'>{_text(stage.reason, 2_000)}</td></tr>"
        )
    head = "<th>stage</th><th>outcome</th><th class='number'>compared</th><th class='number'>diverging</th><th></th>"
    return f"<table><tr>{head}</tr>{''.join(rows)}</table>\n"


def _scalars(pictures: Sequence[Picture]) -> Iterator[str]:
    if not pictures:
        return
    ranked = len({picture.rank for picture in pictures}) > 1
    rows = []
    for picture in pictures:
        found = picture.single
        assert found is not None
        rank = f" (rank {picture.rank})" if ranked else ""
        css, word = ("diverges", "diverges") if picture.result.first is not None else ("pass", "agrees")
        rows.append(
            f"<tr><td class='name'>{picture.result.field}{rank}</td><td class='number'>{found.expected:.9g}</td>"
            f"<td class='number'>{found.actual:.9g}</td><td class='number'>{found.error:.3g}</td>"
            f"<td class='{css}'>{word}</td></tr>"
        )
    head = "".join(f"<th class='number'>{name}</th>" for name in ("recorded", "recomputed", "absolute error"))
    yield f"<h2>Scalars of the step</h2>\n<table><tr><th>field</th>{head}<th></th></tr>{''.join(rows)}</table>\n"


def _figures(picture: Picture, ranks: int) -> Iterator[str]:
    result = picture.result
    rank = f", rank {picture.rank}" if ranks > 1 else ""
    yield f"<h2>{picture.stage}, {result.field}{rank}</h2>\n"
    tolerance = f"atol {result.tolerance.atol:g}, rtol {result.tolerance.rtol:g}"
    found = f"{plural(result.values, 'value')} compared with {tolerance}; "
    if result.first is None:
        rounded = f", {result.rounded_values:,} of them within a float32 trainer's rounding"
        found += f"all agree{rounded if result.rounded_values else ''}{'' if picture.differs else ' exactly'}"
    else:
        samples = f" in {plural(result.diverging_samples, 'sample')}" if result.unit is Unit.TOKEN else ""
        found += f"<span class='diverges'>{result.diverging_values:,} diverge{samples}</span>"
    yield f"<p>{found}.</p>\n"
    if picture.differs:
        yield _figure(error_map(picture))
    if picture.values is not None:
        pair = (distribution(picture), *((errors(picture),) if picture.differs else ()))
        yield f"<div class='pair'>{''.join(f'<div>{_figure(figure)}</div>' for figure in pair)}</div>"


def _figure(content: str) -> str:
    """A place to draw in, and the figure as data behind it; no text of a bundle can end the element."""
    safe = content.replace("<", "\\u003c").replace(">", "\\u003e").replace("&", "\\u0026")
    return f"<div class='figure'></div><script type='application/json'>{safe}</script>\n"


def _text(value: object, limit: int = 200) -> str:
    return escape(visible(value, limit))


def _digest(content: str) -> str:
    return f"'sha256-{base64.b64encode(hashlib.sha256(content.encode()).digest()).decode()}'"
