"""A survivorship report as lines for a terminal and as JSON for scripts."""

from collections.abc import Iterator, Sequence
from typing import Any

from rollbook.replay.survivorship.fates import MEANING, MEANING_OF_PART, OF_KIND, Fate, Part
from rollbook.replay.survivorship.result import Became, OfTask, Rewards, SurvivorshipReport
from rollbook.schemas.text import plural, visible

_MOST_CAUSES, _MOST_TASKS = 5, 10


def lines(report: SurvivorshipReport) -> Iterator[str]:
    """For a person at a terminal."""
    within = f"{report.lifecycle}:{report.partition}:{report.within.first}-{report.within.end}"
    yield f"run {visible(report.run_id)}: {trajectories(report.total.trajectories)} in {visible(within)}"
    if report.undecided:
        yield f"  {plural(report.undecided, 'record')} at the end not decided yet"
    for fate, count in report.total.fates:
        found = sorted((one for one in report.causes if one.fate is fate), key=lambda one: (-one.count, one.why))
        told = [f"{visible(one.why, 60)} {one.count:,}" for one in found[:_MOST_CAUSES]]
        told += [f"{len(found) - _MOST_CAUSES:,} more"] if len(found) > _MOST_CAUSES else []
        yield f"  {fate:<18} {count:>9,}  {', '.join(told)}".rstrip()
    yield f"  {'rewards':<18} {'count':>9} {'mean':>9} {'deviation':>9} {'median':>9}"
    for part in report.rewards:
        if part.count:
            figures = (part.mean, part.deviation, part.quartiles[1])
            yield f"  {part.part:<18} {part.count:>9,} {' '.join(f'{real(figure):>9}' for figure in figures)}"
    if report.distance is not None:
        what = "distance of the rewards consumed and never trained on"
        yield f"  {what}: {real(report.distance)} (0: the same, 1: apart)"
    starved = sorted(report.starved, key=lambda one: -one.became.trajectories)
    named = sum(one.task_id is not None for one in report.tasks)
    yield f"  starved: {len(starved):,} of {plural(named, 'task')}"
    shown = starved[:_MOST_TASKS]
    for name, one in zip(names_of(shown), shown, strict=True):
        yield f"    {visible(name)}  {trajectories(one.became.trajectories)}"
    if len(starved) > _MOST_TASKS:
        yield f"    {len(starved) - _MOST_TASKS:,} more: --out and --json have all"


def names_of(tasks: Sequence[OfTask]) -> list[str]:
    """For a person: with the data set where there are several among them."""
    several = len({one.dataset for one in tasks if one.dataset is not None}) > 1
    named = [f"{one.dataset}/{one.task_id}" if several else one.task_id for one in tasks]
    return ["unknown" if one.task_id is None else name or "" for one, name in zip(tasks, named, strict=True)]


def trajectories(count: int) -> str:
    return f"{count:,} {'trajectory' if count == 1 else 'trajectories'}"


def real(value: float | None) -> str:
    """A figure with a fraction, as all answers show it."""
    return "-" if value is None else f"{value:.4g}"


def plain(report: SurvivorshipReport) -> dict[str, Any]:
    """For scripts: keys only ever grow."""
    reached = report.reached
    return {
        "run_id": report.run_id,
        "lifecycle": report.lifecycle,
        "partition": report.partition,
        "start": report.within.first,
        "end": report.within.end,
        "decided": report.decided,
        "undecided": report.undecided,
        "sequence": report.sequence,
        "chain": report.chain,
        "fold_version": report.fold_version,
        "observed": report.observed,
        "closed": report.closed,
        "reached": {name: getattr(reached, name) for name in reached.__slots__},
        "total": _became(report.total),
        "causes": [{"fate": one.fate.value, "why": one.why, "count": one.count} for one in report.causes],
        "versions": [{"version": one.version, **_became(one.became)} for one in report.versions],
        "starved_tasks": len(report.starved),
        "tasks": [
            {
                "dataset": one.dataset,
                "task_id": one.task_id,
                "starved": one.task_id is not None and one.became.is_starved,
                **_became(one.became),
            }
            for one in report.tasks
        ],
        "lengths": [{"first": one.first, "last": one.last, **_became(one.became)} for one in report.lengths],
        "edges": list(report.edges),
        "rewards": {one.part.value: _rewards(one) for one in report.rewards},
        "distance": report.distance,
        "happened": [{"name": name, "count": count} for name, count in report.happened],
        "meaning": {fate.value: MEANING[fate] for fate in Fate},
        "meaning_of_part": {part.value: MEANING_OF_PART[part] for part in Part},
    }


def _became(found: Became) -> dict[str, Any]:
    return {
        "trajectories": found.trajectories,
        "fates": {fate.value: found.count(fate) for fate in Fate},
        "kinds": {kind.value: found.count(*fates) for kind, fates in OF_KIND.items()},
        "share_consumed": found.share_consumed,
        "rewarded": found.rewarded,
        "mean_reward": found.mean_reward,
        "mean_reward_consumed": found.mean_reward_consumed,
    }


def _rewards(found: Rewards) -> dict[str, Any]:
    return {
        "count": found.count,
        "mean": found.mean,
        "deviation": found.deviation,
        "minimum": found.minimum,
        "quartiles": list(found.quartiles),
        "maximum": found.maximum,
        "bins": list(found.bins),
    }
