"""A comparison of two runs: lines for a terminal, JSON for scripts."""

from collections.abc import Iterator
from dataclasses import asdict
from typing import Any

from rollbook.replay.diff.result import Difference, DiffReport, DiffVerdict, Side, What
from rollbook.schemas.text import plural, visible

_MOST_LEFT = 20
_WHAT = max(map(len, What))


def lines(report: DiffReport) -> Iterator[str]:
    """For a person: the first difference with both sides, then all that was compared, then what was not."""
    runs = f"{visible(report.run_a)} and {visible(report.run_b)}"
    counts = f"{plural(report.updates, 'update')}, {plural(report.rows, 'row')}, {plural(report.values, 'value')}"
    yield f"{report.verdict.upper()}  {runs}: {counts} compared"
    if report.first is not None:
        yield f"first difference: {_heading(report.first)}"
        yield from _sides(report.first)
    for what, tally in report.tallies.items():
        if tally.values:
            differ = f"{tally.differing:,} differ" if tally.differing else "the same"
            yield f"  {what:{_WHAT}}  {plural(tally.values, 'value')}, {differ}"
        if tally.first is not None and tally.first is not report.first:
            yield f"    first: {_heading(tally.first)}"
            yield from (f"    {line}" for line in _sides(tally.first))
    if report.undone:
        yield f"  {plural(report.undone, 'update')} rolled back, and part of neither run"
    for reason, count in report.left_counts.items():
        yield f"  not compared: {reason}: {count:,}"
    for left in report.left[:_MOST_LEFT]:
        where = f"update {left.number}, {visible(left.update_id)} of run {visible(left.run_id)}"
        yield f"    {left.reason}: {where}: {visible(left.text, 500)}"
    if (more := sum(report.left_counts.values()) - _MOST_LEFT) > 0:
        yield f"    and {more:,} more"
    if report.verdict is DiffVerdict.NOT_COMPARABLE:
        same = "all that could be compared is the same, but not all could be" if report.values else "nothing in common"
        yield f"  {same}"


def plain(report: DiffReport) -> dict[str, Any]:
    """For scripts: keys only ever grow."""
    return {
        "verdict": report.verdict,
        "run_a": report.run_a,
        "run_b": report.run_b,
        "updates": report.updates,
        "rows": report.rows,
        "values": report.values,
        "first": report.first and _difference(report.first),
        "compared": [
            {
                "what": what,
                "values": tally.values,
                "differing": tally.differing,
                "first": tally.first and _difference(tally.first),
            }
            for what, tally in report.tallies.items()
        ],
        "rolled_back": report.undone,
        "left_counts": {reason.value: count for reason, count in report.left_counts.items()},
        "left": [asdict(left) for left in report.left],
    }


def _difference(found: Difference) -> dict[str, Any]:
    return {
        "what": found.what,
        "field": found.field,
        "update": found.number,
        "task_row": found.row and asdict(found.row),
        "token_offset": found.token_offset,
        "atol": found.tolerance and found.tolerance.atol,
        "rtol": found.tolerance and found.tolerance.rtol,
        "a": asdict(found.a),
        "b": asdict(found.b),
    }


def _heading(found: Difference) -> str:
    row = "" if found.row is None else f", {visible(found.row)}"
    token = "" if found.token_offset is None else f", token {found.token_offset}"
    return f"{found.what}, {found.field}, in update {found.number}{row}{token}"


def _sides(found: Difference) -> Iterator[str]:
    width = max(len(_value(side)) for side in (found.a, found.b))
    for side in (found.a, found.b):
        yield f"  {_value(side):{width}}  {_where(side)}"


def _value(side: Side) -> str:
    value = side.value
    return "none" if value is None else f"{value:.9g}" if isinstance(value, float) else visible(value)


def _where(side: Side) -> str:
    parts = [f"run {visible(side.run_id)}", f"update {visible(side.update_id)}"]
    parts += [f"step {side.step}"] * bool(side.step)
    parts += [] if side.rank is None or not side.step else [f"rank {side.rank}"]
    parts += [] if side.sample_id is None else [f"sample {visible(side.sample_id)}"]
    return f"{', '.join(parts)}: {visible(side.place, 1000)}"
