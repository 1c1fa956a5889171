"""The demo's last page: what became of the trajectories, what the gates let through, what was learnt, what replays."""

import os
import shlex
from collections import Counter
from pathlib import Path

from rich.console import Console
from rich.table import Table
from rich.text import Text

from rollbook.infra.demo.config import EVAL_MARGIN
from rollbook.infra.demo.processes.faults import planned_faults
from rollbook.infra.demo.run import DemoResult
from rollbook.infra.demo.telling.rollback import RolledBack
from rollbook.infra.settings import DEFAULT_TOPIC_PREFIX

_MEANING = {
    "consumed": "trained on, each in one update that stands",
    "discarded": "stale, or of a group with a failed member",
    "forgotten": "below the horizon when their update was undone",
    "generated": "no reward yet",
    "generation_failed": "the attempt gave no trajectory",
    "offline": "too old to be trained on, evaluation too",
    "quarantined": "drifted too far, or of a policy that was undone",
    "reserved": "held by an open update",
    "reward_failed": "no reward could be had",
    "rewarded": "evaluation, and what is left to train on",
}


def print_result(result: DemoResult, console: Console) -> None:
    """The whole page."""
    console.print(_trajectories(result))
    console.print(_gates(result))
    console.print(_rewards(result))
    for line in _lines(result):
        console.print(Text(line))
    console.print()
    console.print("To look further:", style="bold")
    for command in further(result):
        console.print(Text(f"  {command}"), soft_wrap=True)


def further(result: DemoResult) -> list[str]:
    """Shell commands that work once the demo has ended."""
    folder, cluster, run = _shown(result.folder.path), result.cluster, result.plan.run_id
    commands = []
    broker = shlex.quote(f"{folder}/broker")
    if cluster.is_embedded and not result.is_kept:
        commands.append(f"rollbook broker start --data-dir {broker} --port {cluster.port}")
    commands.append(f"export ROLLBOOK_BOOTSTRAP_SERVERS={shlex.quote(cluster.settings.bootstrap_servers)}")
    if cluster.settings.topic_prefix != DEFAULT_TOPIC_PREFIX:
        commands.append(f"export ROLLBOOK_TOPIC_PREFIX={shlex.quote(cluster.settings.topic_prefix)}")
    commands += [f"rollbook {what} --run {run}" for what in ("ledger", "freshness", "decisions")]
    if result.trained_again is not None:
        commands.append(f"rollbook explain {result.trained_again} --run {run}")
    if result.update_bundles:
        commands.append(f"rollbook replay --chain {shlex.quote(_shown(result.update_bundles[-1].path))}")
    if cluster.is_embedded:
        commands.append(f"rollbook broker stop --data-dir {broker}")
    return commands


def _trajectories(result: DemoResult) -> Table:
    table = Table("state", "trajectories", "", title=f"Run {result.plan.run_id}: trajectories by state")
    table.columns[1].justify = "right"
    for state, count in result.figures.trajectories.items():
        table.add_row(state, str(count), _MEANING.get(state, ""))
    table.add_section()
    table.add_row("all", str(sum(result.figures.trajectories.values())), "")
    return table


def _gates(result: DemoResult) -> Table:
    """By lag: what Admit let through and refused, and what Reserve refused by name. A claim just passes over."""
    table = Table("lag", "freshness", "admitted", "refused: drift", "refused: stale", title="At the gates")
    for column in table.columns[2:]:
        column.justify = "right"
    counts = {**result.figures.admitted, **result.figures.refused}
    max_lag = result.plan.config.max_lag
    for lag in sorted({int(name.rpartition(" ")[2]) for name in counts if not name.endswith("None")}):
        kind = "fresh" if lag == 0 else "tolerated" if lag <= max_lag else "stale"
        table.add_row(
            str(lag),
            kind,
            *(str(counts.get(f"{reason} lag {lag}", 0)) for reason in ("ok", "policy_drift", "stale_policy")),
        )
    return table


def _rewards(result: DemoResult) -> Table:
    table = Table("policy", "mean reward, training", "mean reward, evaluation", title="Reward by version")
    found = result.figures
    for version in sorted({*found.reward_by_version, *found.eval_by_version}, key=int):
        table.add_row(
            version, *(_mean(means.get(version)) for means in (found.reward_by_version, found.eval_by_version))
        )
    return table


def _lines(result: DemoResult) -> list[str]:
    found, config = result.figures, result.plan.config
    updates = ", ".join(f"{count} {status}" for status, count in found.updates.items())
    lines = [
        f"Updates: {updates}; {found.steps} optimizer steps; {len(found.activated)} policies activated, each served by "
        f"{' and '.join(result.plan.workers)}.",
    ]
    lost = result.plan.workers[planned_faults(config).lost_worker]
    failures = ", ".join(f"{name} {count}" for name, count in found.failures.items())
    lines.append(f"Failed on purpose: {failures or 'nothing'} ({lost} was killed and came back).")
    lines += [line for undone in found.rolled_back for line in _roll_back(undone, found.trained_twice)]
    if result.freshness is not None:
        left = result.freshness
        lines.append(
            f"Left to train on: {left.ready_fresh} fresh, {left.ready_tolerated} tolerated, {left.ready_stale} stale."
        )
    lines.append(
        f"Evaluation: {_mean(found.eval_of(0))} before, {_mean(found.eval_of(found.last_version))} after; it rose by "
        f"{result.eval_rise:.3f} (wanted: {EVAL_MARGIN})."
    )
    verdicts = Counter(bundle.verdict.value for bundle in result.bundles)
    said = "all pass" if result.all_pass else ", ".join(f"{n} {name}" for name, n in sorted(verdicts.items()))
    lines.append(f"Replay: {len(result.bundles)} bundles of {found.steps} steps: {said}{_without(result)}.")
    lines += [f"Not materialized: {problem}" for problem in result.not_written]
    lines.append(f"{result.seconds:.0f} s in all; everything is in {_shown(result.folder.path)}.")
    return lines


def _roll_back(undone: RolledBack, twice: int) -> list[str]:
    """What happened to the rows of the updates that the trainer's crash undid."""
    policies = " and ".join(map(str, undone.policies))
    became = ", ".join(f"{count} {_BECAME.get(state, state)}" for state, count in undone.became.items())
    now = ", ".join(f"{count} {state}" for state, count in undone.now.items())
    return [
        f"Rolled back: the trainer was killed {undone.updates} updates after its last checkpoint and started again "
        f"from it; policies {policies} are orphaned.",
        f"Of the {undone.rows} rows of those updates: {became}. At the end: {now}; {twice or 'none'} trained on twice "
        "in what stands.",
    ]


_BECAME = {
    "forgotten": "were forgotten already",
    "offline": "went offline, too stale",
    "quarantined": "were quarantined with the orphaned policies",
    "rewarded": "returned to rewarded",
}


def _without(result: DemoResult) -> str:
    return f"; {len(result.undone)} updates were rolled back and have none" if result.undone else ""


def _mean(value: float | None) -> str:
    return "" if value is None else f"{value:.3f}"


def _shown(path: Path) -> str:
    """As seen from here, when it is below."""
    return os.path.relpath(path) if path.is_relative_to(Path.cwd()) else str(path)
