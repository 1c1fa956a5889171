"""Materialize: the committed updates of an offset range as bundles on disk."""

from collections.abc import Callable
from pathlib import Path

from rollbook.replay.history.source import LogSource
from rollbook.replay.materialize.assemble import Assembled, Ready
from rollbook.replay.materialize.commits import CommittedUpdate
from rollbook.replay.materialize.evidence import UpdateEvidence
from rollbook.replay.materialize.form import Form
from rollbook.replay.materialize.provenance import provenance_path
from rollbook.replay.materialize.publish import Published, publish
from rollbook.replay.materialize.report import MaterializeReport, Problem, Written
from rollbook.replay.materialize.walk import Wanted, walk
from rollbook.replay.progress import Watch

__all__ = ["Told", "Wanted", "materialize"]

Told = Callable[[Written], None]
"""Told of each bundle once it is on disk, also where something ends the range later."""


def materialize(
    log: LogSource,
    wanted: Wanted,
    out: Path,
    watch: Watch = lambda *_: None,
    *,
    form: Form = Form(),  # noqa: B008
    told: Told = lambda _: None,
) -> MaterializeReport:
    """Write the bundles of the wanted updates below `out`: an update's bundles all or none.

    The same update gives the same bytes, whatever the range, whenever it is written: what an earlier call wrote is left
    as it is, and what it did not get to is added. What cannot be written is in the report with its reason. Raises
    OutOfRange for a range that is not to be had, EnvironmentFault when broker or disk do not play along.
    """
    written: list[Written] = []
    problems: list[Problem] = []
    without_update: list[Problem] = []

    def publish_all(update: CommittedUpdate, _: UpdateEvidence, assembled: Assembled) -> list[Written]:
        pairs = zip(assembled.all, publish(out, assembled.all), strict=True)
        return [_written(update, bundle, published) for bundle, published in pairs]

    found = walk(log, wanted, publish_all, watch, form)
    for made in found.each:
        for bundle in made.value or ():
            told(bundle)
            written.append(bundle)
        problems += made.problems
        without_update += made.without_update
    rest = found.undecided, tuple(without_update), wanted.update_id
    return MaterializeReport(found.committed, tuple(written), tuple(problems), *rest)


def _written(update: CommittedUpdate, bundle: Ready, published: Published) -> Written:
    index = next(iter(bundle.drafts.values())).index
    step, rollout_id = index.identity.actor_step_id, index.identity.rollout_id
    return Written(
        run_id=update.run_id,
        update_id=update.update_id,
        rollout_id=step.rollout_id if step is not None else rollout_id or 0,
        step_id=bundle.step_id,
        path=published.path,
        provenance=provenance_path(published.path),
        samples=sum(len(draft.index.samples) for draft in bundle.drafts.values()),
        was_there=published.was_there,
    )
