"""What a what-if gives: how many rows had an answer and would have it, as lines for a terminal and as JSON."""

from collections.abc import Iterator
from dataclasses import dataclass
from enum import StrEnum
from typing import Any

from rollbook.processors.reasons import Reason
from rollbook.replay.history.source import Bounds
from rollbook.schemas.records.run import Admission
from rollbook.schemas.text import plural, visible

UNMEASURED = "unmeasured"


class Stage(StrEnum):
    """Where a row is judged, and whether it was trained on."""

    RESERVE = "reserve"
    ADMIT = "admit"
    TRAIN = "train"


@dataclass(frozen=True, slots=True)
class Count:
    """How many rows of a behavior version (None: the log does not know the row) had an answer, and would have it. A row
    is counted once for each Reserve that asks for it, once an update at Admit and at Commit."""

    stage: Stage
    version: int | None
    reason: str
    was: int
    would: int


@dataclass(frozen=True, slots=True)
class Rules:
    """The admission of one configuration, and the one in its place. `horizon`: beyond it rows were forgotten."""

    config_version: int
    was: Admission
    would: Admission
    horizon: int


@dataclass(frozen=True, slots=True)
class RunWhatIf:
    """One run. `within_reach`: by behavior version, rows that no update ever took because they were stale, and that
    would pass: their drift is unmeasured, and which of them a trainer would have asked for is not known."""

    run_id: str
    observed: bool
    rules: tuple[Rules, ...]
    counts: tuple[Count, ...]
    within_reach: tuple[tuple[int, int], ...]

    def total(self, stage: Stage) -> dict[str, tuple[int, int]]:
        """Over all versions: how many were and would be, by reason."""
        found: dict[str, tuple[int, int]] = {}
        for one in self.counts:
            if one.stage is stage:
                was, would = found.get(one.reason, (0, 0))
                found[one.reason] = (was + one.was, would + one.would)
        return found


@dataclass(frozen=True, slots=True)
class WhatIfReport:
    """All runs of a stretch."""

    lifecycle: str
    partition: int
    within: Bounds
    decided: int
    undecided: int
    runs: tuple[RunWhatIf, ...]


HELD_FIXED = (
    "held fixed: all records, which rows a claim chose, every policy and lag; each Reserve and Admit is judged again "
    "by itself, and what a refusal would have changed later is not told"
)
_TITLES = {
    Stage.RESERVE: "reserve (each answer of a Reserve)",
    Stage.ADMIT: "admit (each row, once an update)",
    Stage.TRAIN: "train (each row of a Commit)",
}
_GOOD = {Stage.RESERVE: Reason.RESERVED, Stage.ADMIT: Reason.OK, Stage.TRAIN: Reason.TRAINED}


def lines(report: WhatIfReport) -> Iterator[str]:
    """For a person at a terminal."""
    where = f"{report.lifecycle}:{report.partition}:{report.within.first}-{report.within.end}"
    yield f"WHAT IF  {where}: {plural(report.decided, 'decision')} derived, byte for byte the topic's"
    if report.undecided:
        yield f"  {plural(report.undecided, 'record')} at the end not decided yet"
    yield from (f"  {text}" for text in HELD_FIXED.split("; "))
    if not report.runs:
        yield "  nothing was judged: no Reserve is there"
    for run in report.runs:
        yield f"run {visible(run.run_id)}{', which was only observed: refusals bound nobody' if run.observed else ''}"
        for rules in run.rules:
            yield f"  configuration {rules.config_version}: {_changes(rules)}"
        yield from _beyond_horizon(run)
        yield from _in_all(run)
        yield from _by_version(run)


def _changes(rules: Rules) -> str:
    was, would = rules.was.model_dump(mode="json"), rules.would.model_dump(mode="json")
    return ", ".join(
        f"{name} {was[name]} -> {would[name]}" if was[name] != would[name] else f"{name} {was[name]}" for name in was
    )


def _beyond_horizon(run: RunWhatIf) -> Iterator[str]:
    for rules in run.rules:
        if 0 < rules.horizon < rules.would.max_lag:
            yield f"  rows more than {rules.horizon} behind went offline by the horizon: that is held fixed, too"


def _in_all(run: RunWhatIf) -> Iterator[str]:
    yield f"  {'':<36}{'was':>10}{'would':>10}"
    for stage in Stage:
        found = run.total(stage)
        if found:
            yield f"  {_TITLES[stage]}"
        for reason, (was, would) in sorted(found.items(), key=lambda one: (one[0] != _GOOD[stage], one[0])):
            yield f"    {reason:<34}{was:>10,}{would:>10,}"
    reach = sum(count for _, count in run.within_reach)
    if reach:
        yield f"  within reach: {plural(reach, 'row')}, passed over as stale, would pass; their drift is {UNMEASURED}"


def _by_version(run: RunWhatIf) -> Iterator[str]:
    """What passed and would pass, by behavior version, and what was never measured."""
    reach = dict(run.within_reach)
    versions = {one.version for one in run.counts} | set(reach)
    if not versions:
        return
    columns = [f"{stage} {side}" for stage in Stage for side in ("was", "would")]
    yield "  " + "".join(f"{name:>15}" for name in ("by version", *columns, UNMEASURED, "within reach"))
    for version in sorted(versions, key=lambda one: -1 if one is None else one):
        of_it = [one for one in run.counts if one.version == version]
        figures: list[int] = []
        for stage in Stage:
            good = [one for one in of_it if one.stage is stage and one.reason == _GOOD[stage]]
            figures += [sum(one.was for one in good), sum(one.would for one in good)]
        unmeasured = sum(one.would for one in of_it if one.reason == UNMEASURED)
        named = "not known" if version is None else str(version)
        cells = [f"{figure:,}" for figure in (*figures, unmeasured, 0 if version is None else reach.get(version, 0))]
        yield "  " + "".join(f"{cell:>15}" for cell in (named, *cells))


def plain(report: WhatIfReport) -> dict[str, Any]:
    """For scripts: keys only ever grow."""
    return {
        "lifecycle": report.lifecycle,
        "partition": report.partition,
        "start": report.within.first,
        "end": report.within.end,
        "decided": report.decided,
        "undecided": report.undecided,
        "held_fixed": HELD_FIXED,
        "runs": [
            {
                "run_id": run.run_id,
                "observed": run.observed,
                "rules": [
                    {
                        "config_version": one.config_version,
                        "horizon": one.horizon,
                        "was": one.was.model_dump(mode="json"),
                        "would": one.would.model_dump(mode="json"),
                    }
                    for one in run.rules
                ],
                "counts": [
                    {
                        "stage": one.stage.value,
                        "version": one.version,
                        "reason": one.reason,
                        "was": one.was,
                        "would": one.would,
                    }
                    for one in run.counts
                ],
                "within_reach": [{"version": version, "rows": rows} for version, rows in run.within_reach],
            }
            for run in report.runs
        ],
    }
