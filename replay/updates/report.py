"""The replay of a run: lines for a terminal as it goes on, JSON for scripts."""

from collections.abc import Iterator
from typing import Any

from rollbook.replay.engine.chain import Link
from rollbook.replay.engine.result import Divergence, Outcome, Verdict
from rollbook.replay.materialize.report import MEANING, Problem
from rollbook.replay.report.as_json import chain_divergence, link_fields
from rollbook.replay.report.as_text import divergence_lines
from rollbook.replay.updates.replayed import ReplayedUpdate, Total, UpdateOutcome
from rollbook.schemas.text import plural, visible

_WIDTH = max(map(len, UpdateOutcome)) + 2
_UNVERIFIED = (Outcome.UNSUPPORTED, Outcome.LACKING, Outcome.RECORDED_ONLY)


def lines(update: ReplayedUpdate) -> Iterator[str]:
    """One update, for a person: a line, and below it the first divergence of each of its bundles."""
    where = f"update {visible(update.update_id)} of run {visible(update.run_id)} at {update.commit}"
    done = f": {plural(len(update.links), 'bundle')}, {plural(update.verified_values, 'value')}" if update.links else ""
    yield f"{update.outcome.upper():{_WIDTH}}{where}{done}"
    for problem in update.problems:
        yield f"  {_why(problem)}"
    for problem in update.without_update:
        yield f"  replayed as its steps alone: {_why(problem)}"
    for link in update.links:
        yield from _of_link(link, unverified=update.outcome is UpdateOutcome.UNVERIFIED)


def summary(total: Total) -> str:
    """The last line, for a person."""
    counts = ", ".join(f"{total.outcomes[one]:,} {one}" for one in UpdateOutcome if total.outcomes[one])
    replayed = total.outcomes.total()
    stopped = "" if replayed == total.committed else f", stopped after {replayed:,}"
    left = "".join(f"; offsets {one.first} to {one.end - 1} are not decided yet" for one in total.undecided)
    return f"{total.verdict}: {plural(total.committed, 'committed update')}{stopped}{counts and ': '}{counts}{left}"


def why_no_pass(total: Total) -> str:
    """Why nothing differs, and it is not a pass all the same: exit code 4 alone leaves that to be guessed."""
    if not total.committed:
        return "nothing was committed there, so nothing is verified, which is no pass: is it the run that is meant?"
    reasons = sorted(total.reasons.items())
    told = [f"{plural(count, 'update')} {reason} ({MEANING[reason].rstrip('.')})" for reason, count in reasons]
    if total.outcomes[UpdateOutcome.UNVERIFIED]:
        told.append(f"{plural(total.outcomes[UpdateOutcome.UNVERIFIED], 'update')} with stages that nothing verifies")
    if not told:
        return "no update that stands has optimizer steps, so nothing is verified, which is no pass"
    return f"nothing differs, but not all could be verified, which is no pass: {'; '.join(told)}"


def plain_summary(total: Total) -> dict[str, Any]:
    """The last line, for scripts."""
    return {
        "kind": "summary",
        "verdict": total.verdict,
        "committed": total.committed,
        "outcomes": {one.value: total.outcomes[one] for one in UpdateOutcome},
        "undecided": [{"start": one.first, "end": one.end} for one in total.undecided],
    }


def plain(update: ReplayedUpdate) -> dict[str, Any]:
    """One update, for scripts: keys only ever grow."""
    return {
        "kind": "update",
        "run_id": update.run_id,
        "update_id": update.update_id,
        "commit": update.commit,
        "outcome": update.outcome,
        "verified_values": update.verified_values,
        "first_divergence": update.first_divergence and chain_divergence(update.first_divergence),
        "problems": [_problem(one) for one in update.problems],
        "without_update": [_problem(one) for one in update.without_update],
        "bundles": [{"step_id": _step_of(link), **link_fields(link)} for link in update.links],
    }


def _why(problem: Problem) -> str:
    step = "" if problem.step_id is None else f"step {problem.step_id}: "
    return f"{step}{problem.reason}: {MEANING[problem.reason]} {visible(problem.what, limit=1000)}"


def _problem(problem: Problem) -> dict[str, Any]:
    return {"step_id": problem.step_id, "reason": problem.reason, "what": problem.what}


def _of_link(link: Link, *, unverified: bool) -> Iterator[str]:
    name = f"bundle {visible(link.report.bundle_id)}" + ("" if link.at is None else f" ({link.at})")
    ranks = len(link.report.ranks)
    for found in link.handovers:
        if found.divergence is not None:
            yield from _diverging(f"on the way to {name}", found.divergence, ranks, "taken over")
    if link.report.first_divergence is not None:
        yield from _diverging(f"in {name}", link.report.first_divergence, ranks, "recomputed")
    elif unverified and link.report.verdict is Verdict.UNVERIFIED:
        for rank in link.report.ranks:
            reasons = [f"{one.stage}: {one.reason}" for one in rank.stages if one.outcome in _UNVERIFIED]
            yield f"  in {name}, rank {rank.rank}: {'; '.join(reasons) or 'nothing could be verified'}"


def _diverging(where: str, first: Divergence, ranks: int, actual: str) -> Iterator[str]:
    yield f"  {where}"
    for line in divergence_lines(first, ranks, actual):
        yield f"    {line}"


def _step_of(link: Link) -> int | None:
    return None if link.at is None or link.at.step_id < 0 else link.at.step_id
