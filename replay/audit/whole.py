"""Whether a run is there from its first record on, without a gap: what is said of a part would be told as of all."""

from rollbook.replay.audit.decisions import Stretch
from rollbook.replay.history.decisions import DecisionLog, NotADecision
from rollbook.replay.history.file import FileLog
from rollbook.replay.history.source import LogSource
from rollbook.schemas.errors import BadInput
from rollbook.schemas.records.decision import Decision
from rollbook.schemas.text import visible


def check_joined(log: LogSource, stretch: Stretch) -> None:
    """Raises BadInput where the files' lifecycle or decisions of the stretch's partition have a gap, wherever it lies.
    What lies in Kafka has none."""
    if not isinstance(log, FileLog):
        return
    for topic in (stretch.lifecycle, stretch.decisions):
        parts = log.stretches(topic, stretch.partition, stretch.run_id)
        if len(parts) > 1:
            raise BadInput(
                f"{topic}:{stretch.partition}:{parts[0].end}-{parts[1].first} is in none of the files, and what lies "
                "there nobody could rule out: give the file that holds it, too, or those alone that join"
            )


def check_begun(log: LogSource, stretch: Stretch) -> None:
    """Raises BadInput where the run began before the stretch."""
    first, run_id = stretch.within.first, stretch.run_id or ""
    decision = _first_decision(log, stretch) if first else None
    if decision is None or decision.sequence == 1:
        return
    source = decision.source.offset
    records = log.read(stretch.lifecycle, stretch.partition, first, min(source + 1, stretch.within.end))
    begun = next((one for one in records if one.key == run_id.encode()), None)
    if begun is not None and begun.offset == source:
        raise BadInput(
            f"{begun.place} is the first record of run {visible(run_id)} here, and number {decision.sequence:,} of the "
            "run; what lies before it is in all weights that followed: begin with the run's first record; the files "
            "that hold it may be given together with the rest"
        )


def _first_decision(log: LogSource, stretch: Stretch) -> Decision | None:
    try:
        decided = DecisionLog(log, stretch.decisions, stretch.partition).since(stretch.within.first)
        return next((one.decision for one in decided if one.decision.run_id == stretch.run_id), None)
    except NotADecision:  # told where it lies when its turn comes
        return None
