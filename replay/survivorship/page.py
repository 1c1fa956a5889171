"""A survivorship report as one page to keep: no script, no request, and whatever a run's names contain stays text.

Each figure names its place in the JSON (`data-figure`), so that the two can be held against one another.
"""

import json
from collections.abc import Iterable, Sequence
from datetime import UTC, datetime
from html import escape
from importlib.metadata import version

from rollbook.replay.survivorship.charts import histogram, share_bar, single_bar
from rollbook.replay.survivorship.fates import KIND_OF, MEANING, MEANING_OF_PART, OF_KIND, Fate, Kind, Part
from rollbook.replay.survivorship.result import Became, OfLength, OfTask, SurvivorshipReport
from rollbook.replay.survivorship.style import STYLE
from rollbook.replay.survivorship.text import names_of, real
from rollbook.schemas.text import plural, visible

START = '<!doctype html><html lang="en"><head><meta charset="utf-8"><title>Survivorship'
"""How a page begins, by which an older one is known."""

_POLICY = "default-src 'none'; style-src 'unsafe-inline'; base-uri 'none'; form-action 'none'"
_MOST_VERSIONS, _MOST_TASKS, _MOST_CAUSES = 100, 50, 10
_LABEL = {
    Kind.TRAINED: "trained on",
    Kind.ROLLED_BACK: "rolled back",
    Kind.REFUSED: "refused",
    Kind.DISCARDED: "discarded",
    Kind.TAKEN_OUT: "quarantined, expired",
    Kind.FAILED: "failed",
    Kind.OPEN: "not over",
    Kind.EVALUATION: "evaluation",
}
_CHART = " class='chart'"
_STEPS = ("known", "dispatched", "generated", "rewarded", "reserved", "admitted", "trained", "consumed")


def page(report: SurvivorshipReport) -> str:
    """The text of the page."""
    body = "".join(
        (
            _head(report),
            _reached(report),
            _fates(report),
            _rewards(report),
            _tasks(report),
            _versions(report),
            _lengths(report),
            _happened(report),
        )
    )
    return (
        f"{START} of {_text(report.run_id)}</title>"
        f'<meta http-equiv="Content-Security-Policy" content="{_POLICY}">'
        '<meta name="viewport" content="width=device-width, initial-scale=1">'
        f"<style>{STYLE}</style></head>\n<body>\n{body}\n<footer>Made by rollbook {_text(version('rollbook'))}, "
        f"{datetime.now(UTC):%Y-%m-%d %H:%M} UTC. All figures, and the lines that are left out here: "
        "<code>rollbook report --json</code>.</footer>\n</body></html>\n"
    )


def _head(report: SurvivorshipReport) -> str:
    total, starved = report.total, report.starved
    within = f"{report.lifecycle}:{report.partition}:{report.within.first}-{report.within.end}"
    state = "The run is over." if report.closed else "The run goes on: what waits may still be trained on."
    notes = [state]
    if report.observed:
        notes.append("It is only observed: what its trainer reports is taken as a fact, and nothing was refused to it.")
    if report.undecided:
        notes.append(f"{plural(report.undecided, 'record')} at the end not decided yet.")
    tiles = (
        ("trajectories", _int("total.trajectories", total.trajectories)),
        ("trained on, of those not for evaluation", _percent("total.share_consumed", total.share_consumed)),
        ("mean reward, trained on", _real("rewards.consumed.mean", report.of(Part.CONSUMED).mean)),
        ("mean reward, never trained on", _real("rewards.never_trained.mean", report.of(Part.NEVER_TRAINED).mean)),
        ("starved tasks", _int("starved_tasks", len(starved))),
    )
    shown = "".join(f"<div class='tile'><b>{value}</b><span>{name}</span></div>" for name, value in tiles)
    return (
        f"<header><h1>Survivorship of {_text(report.run_id)}</h1><p class='quiet'>{_text(within)}, "
        f"{_int('decided', report.decided)} decisions, chain head <code>{_text(report.chain)}</code></p>"
        f"<p>{' '.join(notes)}</p></header>\n<div class='tiles'>{shown}</div>\n"
    )


def _reached(report: SurvivorshipReport) -> str:
    rows = []
    for name in _STEPS:
        count = getattr(report.reached, name)
        bar = single_bar(count, report.reached.known, Kind.TRAINED)
        rows.append(f"<tr><th>{name}</th><td class='n'>{_int(f'reached.{name}', count)}</td><td class='bar'>{bar}</td>")
    told = (
        "How many trajectories ever came that far. Not every worker says when it begins, so that fewer may be "
        "dispatched than generated. Consumed: an update that stands trained on them."
    )
    return f"<section><h2>How far they came</h2><p class='quiet'>{told}</p>{_table((), rows)}</section>\n"


def _fates(report: SurvivorshipReport) -> str:
    rows = []
    for fate, count in report.total.fates:
        bar = single_bar(count, report.total.trajectories, KIND_OF[fate])
        rows.append(
            f"<tr><th>{fate.replace('_', ' ')}</th><td class='n'>{_int(f'total.fates.{fate}', count)}</td>"
            f"<td class='bar'>{bar}</td><td class='why'>{MEANING[fate]}{_causes(report, fate)}</td>"
        )
    return f"<section><h2>What became of them</h2>{_table((), rows)}</section>\n"


def _causes(report: SurvivorshipReport, fate: Fate) -> str:
    found = [(at, one) for at, one in enumerate(report.causes) if one.fate is fate]
    found.sort(key=lambda one: -one[1].count)
    told = [f"{_text(one.why)} {_int(f'causes.{at}.count', one.count)}" for at, one in found[:_MOST_CAUSES]]
    told += [f"{len(found) - _MOST_CAUSES:,} more causes"] if len(found) > _MOST_CAUSES else []
    return f"<br><span class='quiet'>{', '.join(told)}</span>" if told else ""


def _rewards(report: SurvivorshipReport) -> str:
    rows = []
    for one in report.rewards:
        place, found = f"rewards.{one.part}", one
        figures = (
            ("mean", found.mean),
            ("deviation", found.deviation),
            ("minimum", found.minimum),
            *((f"quartiles.{at}", value) for at, value in enumerate(found.quartiles)),
            ("maximum", found.maximum),
        )
        cells = "".join(f"<td class='n'>{_real(f'{place}.{name}', value)}</td>" for name, value in figures)
        rows.append(
            f"<tr><th>{one.part.replace('_', ' ')}</th><td class='n'>{_int(f'{place}.count', found.count)}</td>{cells}"
            f"<td>{histogram(found, report.edges, _KIND_OF_PART[one.part])}</td>"
            f"<td class='why'>{MEANING_OF_PART[one.part]}</td>"
        )
    head = (
        "",
        "count",
        "mean",
        "deviation",
        "minimum",
        "25&nbsp;%",
        "median",
        "75&nbsp;%",
        "maximum",
        "distribution",
        "",
    )
    if report.edges:
        low, high = (_real(f"edges.{at}", report.edges[at]) for at in (0, len(report.edges) - 1))
        axis = f" Bins are the same for all, from {low} to {high}."
    else:
        axis = ""
    told = f"Raw rewards. A failure has none, and is no reward of 0.{axis}"
    if report.distance is not None:
        told += (
            " The largest difference between the cumulative distributions of what was consumed and what was never "
            f"trained on is {_real('distance', report.distance)}: 0 where they are the same, 1 where nothing overlaps."
        )
    return f"<section><h2>Rewards</h2><p>{told}</p>{_table(head, rows)}</section>\n"


_KIND_OF_PART = {
    Part.ALL: Kind.OPEN,
    Part.CONSUMED: Kind.TRAINED,
    Part.ROLLED_BACK: Kind.ROLLED_BACK,
    Part.NEVER_TRAINED: Kind.FAILED,
    Part.REFUSED: Kind.REFUSED,
    Part.DISCARDED: Kind.DISCARDED,
    Part.EVALUATION: Kind.EVALUATION,
}


def _tasks(report: SurvivorshipReport) -> str:
    named = list(enumerate(report.tasks))
    named.sort(key=lambda one: (not _starves(one[1]), _share(one[1].became), -one[1].became.trajectories))
    shown = named[:_MOST_TASKS]
    rows = [
        _slice(f"tasks.{at}", _text(name, 80) + ("<em>starved</em>" if _starves(one) else ""), one.became)
        for name, (at, one) in zip(names_of([one for _, one in shown]), shown, strict=True)
    ]
    left = len(named) - len(rows)
    told = (
        "Starved: nothing of it is trained on, though trajectories of it have come to their end. Those come first, "
        "then what is least trained on."
    )
    told += f" {left:,} that are better off are left out." if left else ""
    return f"<section><h2>By task</h2><p>{told}</p>{_slices('task', rows)}</section>\n"


def _starves(task: OfTask) -> bool:
    return task.task_id is not None and task.became.is_starved


def _share(became: Became) -> float:
    return 2.0 if became.share_consumed is None else became.share_consumed


def _versions(report: SurvivorshipReport) -> str:
    numbered = list(enumerate(report.versions))[-_MOST_VERSIONS:]
    rows = [_slice(f"versions.{at}", f"{one.version:,}", one.became) for at, one in numbered]
    left = len(report.versions) - len(rows)
    told = "By the oldest policy that wrote some of it." + (f" {left:,} older ones are left out." if left else "")
    return f"<section><h2>By behavior version</h2><p>{told}</p>{_slices('version', rows)}</section>\n"


def _lengths(report: SurvivorshipReport) -> str:
    rows = []
    for at, one in enumerate(report.lengths):
        rows.append(_slice(f"lengths.{at}", _tokens(one), one.became))
    told = "By response tokens, all segments together; none where nothing was generated."
    return f"<section><h2>By length</h2><p>{told}</p>{_slices('tokens', rows)}</section>\n"


def _tokens(of: OfLength) -> str:
    if of.last is None:
        return "none"
    return f"{of.last:,}" if of.first == of.last else f"{of.first:,} to {of.last:,}"


def _slices(name: str, rows: Sequence[str]) -> str:
    kinds = [_LABEL[kind] for kind in OF_KIND]
    heads = (name, "trajectories", "", *kinds, "share trained on", "mean reward", "of those trained on")
    return f"{_legend()}{_table(heads, rows)}"


def _slice(place: str, name: str, became: Became) -> str:
    counts = {kind: became.count(*fates) for kind, fates in OF_KIND.items()}
    cells = "".join(f"<td class='n'>{_int(f'{place}.kinds.{kind}', count)}</td>" for kind, count in counts.items())
    return (
        f"<tr><th class='name'>{name}</th><td class='n'>{_int(f'{place}.trajectories', became.trajectories)}</td>"
        f"<td class='bar'>{share_bar(counts, became.trajectories)}</td>{cells}"
        f"<td class='n'>{_percent(f'{place}.share_consumed', became.share_consumed)}</td>"
        f"<td class='n'>{_real(f'{place}.mean_reward', became.mean_reward)}</td>"
        f"<td class='n'>{_real(f'{place}.mean_reward_consumed', became.mean_reward_consumed)}</td>"
    )


def _legend() -> str:
    parts = "".join(f"<span><i class='k-{kind}'></i>{_LABEL[kind]}</span>" for kind in OF_KIND)
    return f"<p class='legend'>{parts}</p>"


def _happened(report: SurvivorshipReport) -> str:
    rows = [
        f"<tr><th class='name'>{_text(name)}</th><td class='n'>{_int(f'happened.{at}.count', count)}</td>"
        for at, (name, count) in enumerate(report.happened)
    ]
    told = "The ledger's own tallies: how often something happened, and not to how many trajectories."
    return f"<section><h2>How often</h2><p>{told}</p>{_table((), rows)}</section>\n"


def _table(heads: Iterable[str], rows: Sequence[str]) -> str:
    if not rows:
        return "<p class='quiet'>Nothing.</p>"
    head = "".join(f"<th scope='col'{_CHART if name == 'distribution' else ''}>{name}</th>" for name in heads)
    top = f"<thead><tr>{head}</tr></thead>" if head else ""
    body = "".join(f"{row}</tr>" for row in rows)
    return f"<div class='wide' tabindex='0'><table>{top}<tbody>{body}</tbody></table></div>"


def _int(place: str, value: int) -> str:
    return _figure(place, value, f"{value:,}")


def _real(place: str, value: float | None) -> str:
    return _figure(place, value, real(value))


def _percent(place: str, value: float | None) -> str:
    return _figure(place, value, "-" if value is None else f"{value:.1%}")


def _figure(place: str, value: float | None, shown: str) -> str:
    return f"<data value='{json.dumps(value)}' data-figure='{place}'>{shown}</data>"


def _text(value: object, limit: int = 200) -> str:
    return escape(visible(value, limit))
