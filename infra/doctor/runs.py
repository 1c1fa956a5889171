"""Checks of the runs: whether what a restart or a trainer would need is still there."""

from collections.abc import Iterator

from rollbook.infra.doctor.facts import Facts, Finding, Level, RunFacts
from rollbook.infra.settings import Topic
from rollbook.processors.fold_version import FOLD_VERSION
from rollbook.processors.ledger.store import Run
from rollbook.schemas.records.ledger import CheckpointState, UpdateState, UpdateStatus

_FULL = 0.9
_HOUR_MS = 3_600_000


def _living(facts: Facts) -> Iterator[RunFacts]:
    yield from (one for one in facts.runs if one.run.head.config_version and not one.run.head.closed)


def versions(facts: Facts) -> Iterator[Finding]:
    for one in _living(facts):
        asked = max(one.run.head.fold_version, one.run.config.fold_version)
        if asked > FOLD_VERSION:
            told = f"it is folded by the rules of version {asked}, this rollbook knows {FOLD_VERSION}"
            yield Finding(Level.UNSAFE, "versions", f"run {one.run.run_id}", told, "install a newer rollbook here")


def pinned_partitions(facts: Facts) -> Iterator[Finding]:
    for one in _living(facts):
        pinned = one.run.config.partition_count
        if pinned != facts.partitions:
            told = f"it is pinned to {pinned} partitions, the topics have {facts.partitions}: its records are misplaced"
            remedy = "partitions are never added: set ROLLBOOK_TOPIC_PREFIX to a new prefix and start the run anew"
            yield Finding(Level.UNSAFE, "partitions", f"run {one.run.run_id}", told, remedy)


def checkpoints(facts: Facts) -> Iterator[Finding]:
    """A start from a checkpoint undoes the updates behind it; what is forgotten of those is offered to nobody again."""
    for one in _living(facts):
        run = one.run
        for learner in run.learners.values():
            committed = [update for update in run.updates.values() if _stands(update, learner.learner_id)]
            saved = [c for c in run.checkpoints.values() if c.learner_id == learner.learner_id and not c.orphaned]
            yield from _checkpoints(run, learner.learner_id, committed, saved)


def _checkpoints(
    run: Run, learner_id: str, committed: list[UpdateState], saved: list[CheckpointState]
) -> Iterator[Finding]:
    about = f"run {run.run_id}, learner {learner_id}"
    newest = max(saved, key=lambda c: c.commit_order, default=None)
    undone, lost = _behind(committed, 0 if newest is None else newest.commit_order)
    if lost:
        start = (
            "it has no checkpoint; a start" if newest is None else f"a start from {newest.checkpoint_id}, its newest,"
        )
        told = f"{start} undoes {undone} updates, and {lost} trajectories of theirs are forgotten: lost for training"
        remedy = f"save a checkpoint now, and at least every {run.config.horizon} versions (the horizon), or raise it"
        yield Finding(Level.UNSAFE, "checkpoints", about, told, remedy)
    old = [c for c in saved if c is not newest and _behind(committed, c.commit_order)[1]]
    if old:
        names = ", ".join(c.checkpoint_id for c in old[:3]) + (", ..." if len(old) > 3 else "")
        told = f"{len(old)} of {len(saved)} checkpoints ({names}) are older than what the floor forgot"
        remedy = "start from a newer one: their later updates cannot be trained on again in full"
        yield Finding(Level.WARNING, "checkpoints", about, told, remedy)


def _stands(update: UpdateState, learner_id: str) -> bool:
    mine = update.learner is not None and update.learner.learner_id == learner_id
    return mine and update.status is UpdateStatus.COMMITTED


def _behind(committed: list[UpdateState], order: int) -> tuple[int, int]:
    """How many updates a start at this commit undoes, and how many of their trajectories are forgotten."""
    undone = [update for update in committed if update.commit_order > order]
    return len(undone), sum(update.forgotten for update in undone)


def payloads(facts: Facts) -> Iterator[Finding]:
    """Payloads must outlive the trajectories that may still be trained on."""
    topic = next((state for state in facts.topics if state.spec.topic is Topic.PAYLOADS), None)
    kept_ms = -1 if topic is None else int(topic.value("retention.ms"))
    for one in _living(facts):
        about = f"run {one.run.run_id}"
        if one.oldest is not None and one.oldest.gone:
            told = f"trajectory {one.oldest.trajectory_id} waits, but its payload {one.oldest.gone} is gone"
            remedy = "raise retention.ms of the payloads topic; discard what cannot be loaded (reason payload_lost)"
            yield Finding(Level.UNSAFE, "payloads", about, told, remedy)
        elif one.oldest is not None and 0 < kept_ms < 2 * (facts.now_ms - one.oldest.published_ms):
            waited, kept = _hours(facts.now_ms - one.oldest.published_ms), _hours(kept_ms)
            told = f"trajectory {one.oldest.trajectory_id} has waited {waited}, payloads are kept {kept}"
            remedy = "raise retention.ms of the payloads topic, or lower the run's horizon"
            yield Finding(Level.WARNING, "payloads", about, told, remedy)
        needed_ms = _horizon_ms(one)
        if kept_ms > 0 and needed_ms is not None and needed_ms > kept_ms:
            told = (
                f"at its pace {one.run.config.horizon} versions (the horizon) take {_hours(needed_ms)}, payloads "
                f"are kept {_hours(kept_ms)}: rows that may still be trained on lose theirs"
            )
            remedy = "raise retention.ms of the payloads topic, or lower the run's horizon"
            yield Finding(Level.UNSAFE, "payloads", about, told, remedy)


def _hours(milliseconds: float) -> str:
    return f"{milliseconds / _HOUR_MS:.4g} h"


def _horizon_ms(one: RunFacts) -> float | None:
    """How long the horizon takes at the run's pace; None where that cannot be told."""
    if len(one.activations) < 2 or not one.run.config.horizon:
        return None
    (first, began), (last, ended) = one.activations[0], one.activations[-1]
    return None if last <= first else one.run.config.horizon * (ended - began) / (last - first)


def room(facts: Facts) -> Iterator[Finding]:
    """What is bounded, and nearly full; what waits for somebody."""
    for one in _living(facts):
        run, about = one.run, f"run {one.run.run_id}"
        for name, many, most in (
            ("live trajectories (max_live)", run.trajectories.live, run.config.max_live),
            ("facts that wait (max_pending)", len(run.pending), run.config.max_pending),
        ):
            if many > _FULL * most:
                told = f"{many} of {most} {name}: more will be refused"
                yield Finding(Level.WARNING, "room", about, told, "see why they stay, or configure the run with more")
        doubtful = [update.update_id for update in run.updates.all_open() if update.in_doubt]
        if doubtful:
            told = f"updates in doubt: {', '.join(doubtful[:3])}: their rows may be in the weights, and are held"
            remedy = "start their learner again, or abort them as an operator"
            yield Finding(Level.WARNING, "updates", about, told, remedy)
        if run.head.active_orphaned and run.head.active is not None:
            told = f"the active policy {run.head.active.version} contains undone updates"
            yield Finding(Level.WARNING, "policies", about, told, "activate a version that stands")
        if not run.config.horizon:
            told = "its horizon is 0: nothing is ever forgotten, and the state grows as long as the run"
            yield Finding(Level.WARNING, "horizon", about, told, "configure it with a horizon above max_lag")
