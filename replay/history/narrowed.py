"""Files that were narrowed to a run when they were exported: what can be asked of them is asked of that run."""

from rollbook.replay.history.file import FileLog
from rollbook.replay.history.source import LogSource
from rollbook.replay.text import visible
from rollbook.schemas.errors import BadInput


def narrowed_to(log: LogSource, topic: str, partition: int, run_id: str | None) -> str | None:
    """The run to ask of a partition: `run_id` where it is given, else that which files hold alone, if they do. They
    have neither the records of others nor the decisions on what lies under the run's key and belongs to none. Raises
    BadInput for a file of another run: it has the offsets, and not the run's records there."""
    if not isinstance(log, FileLog):
        return run_id
    sections = [one for one in log.sections if (one.topic, one.partition) == (topic, partition)]
    wanted = run_id or next((one.run for one in sections if one.run is not None), None)
    for one in sections:
        if one.run not in (None, wanted):
            raise BadInput(
                f"{one} was exported of run {visible(one.run)} alone: leave that file out, and ask of each run alone"
            )
    return wanted
