"""The checklist of docs/connect-your-trainer.md, judged by what a run's log has shown so far. Pure.

It cannot know what a trainer did and did not tell; it says what is missing, and what to look at.
"""

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from enum import StrEnum

from rollbook.infra.looking.decisions import Wanted, last
from rollbook.infra.looking.integration import Integration
from rollbook.infra.looking.place import Place
from rollbook.infra.looking.refold import refold
from rollbook.infra.looking.show import counted
from rollbook.infra.settings import Topic
from rollbook.processors.ledger.store import Run
from rollbook.processors.reasons import Reason
from rollbook.schemas.records.ledger import TrajectoryStatus, UpdateStatus
from rollbook.schemas.records.run import DriftGate
from rollbook.schemas.text import plural


class Verdict(StrEnum):
    """Whether a step was seen done; `look` is for what only its author can know."""

    SEEN = "seen"
    LOOK = "look"
    MISSING = "missing"


@dataclass(frozen=True, slots=True)
class Line:
    """One step of the checklist: its number and name there, and what was seen of it."""

    number: int
    step: str
    verdict: Verdict
    told: str


Answer = tuple[Verdict, str]
_WAITS = (Reason.NOTHING_TAKEN, Reason.MISSING_WORKER_ACK, Reason.WORKER_MISMATCH)
"""Refusals of a loop that asks again until something is there."""
_CONTRACTS = (Reason.UNREGISTERED_CONTRACT, Reason.CONTRACT_HASH_MISMATCH, Reason.CONTRACT_NOT_PINNED)
_POLICIES = (Reason.UNKNOWN_POLICY, Reason.POLICY_NOT_ACTIVE, Reason.FUTURE_POLICY, Reason.ARTIFACT_MISMATCH)
_MASKS = (Reason.EVIDENCE_MISMATCH, Reason.EMPTY_ACTION_MASK)


def read_checklist(place: Place) -> tuple[Line, ...]:
    """The run's decided records, judged. Raises BadInput for a run that has none."""
    newest = last(place, 1, Wanted())
    if not newest:
        raise place.nothing("decision")
    topic = place.topic(Topic.LIFECYCLE)
    first = place.log.bounds(topic, place.partition).first
    records = place.log.read(topic, place.partition, first, newest[0].decision.source.offset + 1)
    seen = Integration()
    run = refold(records, place.run_id, place.partition, place.partitions, (seen,))
    return checklist(run, seen)


def checklist(run: Run, seen: Integration) -> tuple[Line, ...]:
    """One line a step, in the page's order. A run that was never configured has all of them missing."""
    if not run.head.config_version:
        nothing = Verdict.MISSING, "the run is not configured: nothing counts before Coordinator.configure"
        return tuple(Line(number, name, *nothing) for number, (name, _) in enumerate(_STEPS, 1))
    return tuple(Line(number, name, *judge(run, seen)) for number, (name, judge) in enumerate(_STEPS, 1))


def _identity(run: Run, seen: Integration) -> Answer:
    if not seen.accepted["Generated"]:
        return Verdict.MISSING, "no trajectory was generated"
    partial = sum(len(group.known) < group.expected for group in seen.groups.values())
    told = f"{seen.accepted['Generated']:,} trajectories in {plural(len(seen.groups), 'group')}"
    if partial:
        return (
            Verdict.LOOK,
            f"{told}; of {partial} not all members are known, generated or failed, as group_expected says",
        )
    return Verdict.SEEN, told


def _contract(run: Run, seen: Integration) -> Answer:
    if refused := _of(seen, _CONTRACTS):
        return Verdict.LOOK, f"refused: {refused}"
    if not seen.accepted["GenerationContract"]:
        return Verdict.MISSING, "no contract was registered"
    return Verdict.SEEN, plural(seen.accepted["GenerationContract"], "registration")


def _behavior(run: Run, seen: Integration) -> Answer:
    if seen.without_payload:
        told = f"{seen.without_payload:,} trajectories without payload: neither load nor an audit sees log-probs"
        return Verdict.LOOK, told
    own = seen.drift.get(0)
    if own is None:
        return (
            Verdict.LOOK,
            "no row was shown at lag 0: how far sampler and trainer are apart by themselves is not known",
        )
    told = f"drift at lag 0: mean {own.mean:.3g}, at most {own.largest:.3g} nats ({plural(own.count, 'row')})"
    if not own.largest:
        return Verdict.LOOK, f"{told}: sampler and trainer are one, or its numbers were compared with themselves"
    if 2 * own.far > own.count:
        return Verdict.LOOK, f"{told}: {own.far} above half the limit before any update: temperature, shift or mask?"
    return Verdict.SEEN, told


def _versions(run: Run, seen: Integration) -> Answer:
    if refused := _of(seen, _POLICIES):
        return Verdict.LOOK, f"refused: {refused}"
    lags = counted((f"at lag {lag}", figures.count) for lag, figures in sorted(seen.drift.items()))
    return Verdict.SEEN, f"{len(run.policies):,} policies; rows shown {lags}"


def _revision(run: Run, seen: Integration) -> Answer:
    if not seen.accepted["Reserve"]:
        return Verdict.MISSING, "nothing was reserved"
    if refused := _of(seen, (Reason.REVISION_CONFLICT, Reason.NOT_REWARDED)):
        return Verdict.LOOK, f"{plural(seen.accepted['Reserve'], 'reservation')}; refused: {refused}"
    return Verdict.SEEN, plural(seen.accepted["Reserve"], "reservation")


def _mask(run: Run, seen: Integration) -> Answer:
    if refused := _of(seen, _MASKS):
        return Verdict.LOOK, f"refused: {refused}"
    return Verdict.SEEN, "masks agree wherever they were compared"


def _drift(run: Run, seen: Integration) -> Answer:
    admission = run.config.admission
    if not seen.accepted["Admit"]:
        off = admission.drift_gate is DriftGate.OFF
        return Verdict.LOOK if off else Verdict.MISSING, f"no Admit; the drift gate is {admission.drift_gate.value}"
    refused = seen.reasons[Reason.POLICY_DRIFT]
    told = f"{plural(seen.admitted.count, 'row')} admitted, at most {seen.admitted.largest:.3g} nats of "
    told += f"{admission.max_mean_abs_log_ratio:.3g}; {refused} refused"
    if seen.unproven:
        return Verdict.LOOK, f"{told}; of {seen.unproven} the current log-probs were not kept (keep_log_probs)"
    return Verdict.SEEN, told


def _gate(run: Run, seen: Integration) -> Answer:
    told = f"enforcement is {run.config.enforcement.value}"
    if seen.violations:
        return Verdict.LOOK, f"{told}; {plural(seen.violations, 'violation')}"
    return Verdict.SEEN, f"{told}; no violation"


def _commit(run: Run, seen: Integration) -> Answer:
    if not seen.accepted["Commit"]:
        return Verdict.MISSING, "no update was committed"
    started = [update for update in run.updates.all_open() if update.status is UpdateStatus.STARTED]
    told = f"{plural(seen.accepted['Commit'], 'commit')}"
    if started:
        return Verdict.LOOK, f"{told}; started and not ended: {', '.join(one.update_id for one in started[:3])}"
    return Verdict.SEEN, told


def _weights(run: Run, seen: Integration) -> Answer:
    prepared, activated = seen.accepted["PolicyPrepared"], seen.accepted["Activate"]
    if not prepared or not activated:
        return Verdict.MISSING, f"{prepared:,} policies prepared, {activated:,} activated"
    told = f"{prepared:,} policies prepared, {activated:,} activated"
    reported = {worker.worker_id: worker.serves for worker in run.workers.values()}
    late = [name for name in run.config.required_workers if reported.get(name) != run.head.active]
    if late:
        return Verdict.LOOK, f"{told}; not known to serve the active one: {', '.join(late[:3])}"
    return Verdict.SEEN, told


def _recordings(run: Run, seen: Integration) -> Answer:
    recorded = [one for one in seen.recorded.values() if one.ranks]
    if not recorded:
        return Verdict.MISSING, "no update says that its steps were recorded: nothing can be replayed"
    whole = sum(set(one.ranks) <= one.whole for one in recorded)
    told = f"of {plural(len(seen.recorded), 'commit')} {whole} with a recording of each step by each rank"
    return Verdict.SEEN if whole == len(seen.recorded) else Verdict.LOOK, told


def _checkpoints(run: Run, seen: Integration) -> Answer:
    if not seen.accepted["CheckpointSaved"]:
        return Verdict.MISSING, "no checkpoint: whatever starts anew undoes everything"
    return Verdict.SEEN, f"{seen.accepted['CheckpointSaved']} saved, {plural(seen.accepted['LearnerStarted'], 'start')}"


def _failures(run: Run, seen: Integration) -> Answer:
    told = counted((name, seen.accepted[name]) for name in ("GenerationFailed", "RewardFailed", "Discarded"))
    if told == "none":
        return Verdict.LOOK, "none was told: make a generation, a reward and a filter fail once"
    return Verdict.SEEN, told


def _end(run: Run, seen: Integration) -> Answer:
    states = [trajectory.status for trajectory in run.trajectories.values()]
    waiting = counted((state.value, states.count(state)) for state in _WAITING)
    refused = counted((reason, count) for reason, count in seen.rejected.most_common() if reason not in _WAITS)
    parts = [f"refused records: {refused}"] if refused != "none" else []
    parts += [f"trajectories that wait: {waiting}"] if waiting != "none" else []
    return (Verdict.LOOK, "; ".join(parts)) if parts else (Verdict.SEEN, "nothing was refused, nothing waits")


_WAITING = (
    TrajectoryStatus.DISPATCHED,
    TrajectoryStatus.GENERATED,
    TrajectoryStatus.REWARD_FAILED,
    TrajectoryStatus.REWARDED,
    TrajectoryStatus.RESERVED,
)
_STEPS: tuple[tuple[str, Callable[[Run, Integration], Answer]], ...] = (
    ("Identity", _identity),
    ("Contract", _contract),
    ("Behavior log-probs", _behavior),
    ("Versions and hashes", _versions),
    ("Revision", _revision),
    ("Mask", _mask),
    ("Drift", _drift),
    ("The gate", _gate),
    ("Commit", _commit),
    ("Weight sync", _weights),
    ("Recordings", _recordings),
    ("Checkpoints", _checkpoints),
    ("What fails", _failures),
    ("The end", _end),
)


def _of(seen: Integration, reasons: tuple[Reason, ...]) -> str:
    """`3 revision_conflict`, the most frequent first; empty for none."""
    found = sorted(((reason.value, seen.reasons[reason]) for reason in reasons), key=lambda one: -one[1])
    told = counted(found)
    return "" if told == "none" else told


def missing(lines: tuple[Line, ...]) -> Iterator[Line]:
    """The steps that nothing was seen of."""
    return (line for line in lines if line.verdict is Verdict.MISSING)
