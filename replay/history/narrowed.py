"""Files that were narrowed to a run when they were exported: what can be asked of them is asked of that run."""

from rollbook.replay.history.file import FileLog
from rollbook.replay.history.joined import gap_in
from rollbook.replay.history.ranges import OffsetRange
from rollbook.replay.history.source import LogSource
from rollbook.schemas.errors import BadInput
from rollbook.schemas.text import visible


def narrowed_to(log: LogSource, wanted: OffsetRange, run_id: str | None) -> str | None:
    """The run to ask of a range: `run_id` where it is given, else that which files hold alone, if they do. They have
    neither the records of others nor the decisions on what lies under the run's key and belongs to none. Raises
    BadInput where a file of another run has offsets of the range, and no file the run's records there."""
    run_id = run_id or wanted.run
    if not isinstance(log, FileLog):
        return run_id
    sections = [one for one in log.sections if (one.topic, one.partition) == (wanted.topic, wanted.partition)]
    found = run_id or next((one.run for one in sections if one.run is not None), None)
    others = [one for one in sections if one.run not in (None, found)]
    if others and (run_id is None or not _has(log, wanted, run_id)):
        raise BadInput(
            f"{others[0]} was exported of run {visible(others[0].run)} alone: leave that file out, and ask of each run "
            "alone"
        )
    return found


def _has(log: FileLog, wanted: OffsetRange, run_id: str) -> bool:
    return gap_in(wanted.resolved(log), log.stretches(wanted.topic, wanted.partition, run_id)) is None
