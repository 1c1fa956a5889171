"""Whether exported files hold a run without a gap: a proof of a part would be told as one of the whole."""

from rollbook.replay.audit.decisions import Stretch
from rollbook.replay.history.container import Section
from rollbook.replay.history.file import FileLog
from rollbook.replay.history.source import LogSource
from rollbook.replay.text import visible
from rollbook.schemas.errors import BadInput


def check_joined(log: LogSource, stretch: Stretch) -> None:
    """Raises BadInput where the files' lifecycle or decisions of the stretch's partition do not join, or are of another
    run alone. What lies in Kafka has no gaps."""
    if isinstance(log, FileLog):
        for topic in (stretch.lifecycle, stretch.decisions):
            _check(
                [one for one in log.sections if (one.topic, one.partition) == (topic, stretch.partition)],
                stretch.run_id,
            )


def _check(sections: list[Section], run_id: str | None) -> None:
    sections.sort(key=lambda one: one.start)
    for one in sections:
        if one.run not in (None, run_id):
            raise BadInput(
                f"{one} was exported of run {visible(one.run)} alone: leave that file out, since what run "
                f"{visible(run_id)} has there is not in it"
            )
    end = sections[0].end if sections else 0
    for one in sections:
        if one.start > end:
            missing = f"{one.topic}:{one.partition}:{end}-{one.start}"
            raise BadInput(
                f"{missing} is in none of the files, and what lies there nobody could rule out: give the file that "
                "holds it, too, or those alone that join"
            )
        end = max(end, one.end)
