"""Whether exported files hold a run without a gap: a proof of a part would be told as one of the whole."""

from rollbook.replay.audit.decisions import Stretch
from rollbook.replay.history.file import FileLog
from rollbook.replay.history.joined import joined
from rollbook.replay.history.source import Bounds, LogSource
from rollbook.schemas.errors import BadInput


def check_joined(log: LogSource, stretch: Stretch) -> None:
    """Raises BadInput where the files' lifecycle or decisions of the stretch's partition have a gap, wherever it lies:
    the stretch ends before it where nobody named its end. What lies in Kafka has none."""
    if not isinstance(log, FileLog):
        return
    for topic in (stretch.lifecycle, stretch.decisions):
        own = [one for one in log.sections if (one.topic, one.partition) == (topic, stretch.partition)]
        parts = joined(Bounds(one.start, one.end) for one in own if one.run in (None, stretch.run_id))
        if len(parts) > 1:
            raise BadInput(
                f"{topic}:{stretch.partition}:{parts[0].end}-{parts[1].first} is in none of the files, and what lies "
                "there nobody could rule out: give the file that holds it, too, or those alone that join"
            )
