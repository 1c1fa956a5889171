"""What a command is to work on where the log is in exported files: each offset once, however many files have it; run by
run where they were narrowed to runs; and nowhere over a gap, which would make of the part an answer about the whole."""

from collections.abc import Iterator, Sequence

from rollbook.infra.settings import Settings, Topic
from rollbook.replay.history.export import OF_RUNS, ranges_of_run
from rollbook.replay.history.file import FileLog
from rollbook.replay.history.joined import gap_in
from rollbook.replay.history.ranges import OffsetRange
from rollbook.replay.history.source import Bounds
from rollbook.schemas.errors import BadInput
from rollbook.schemas.text import visible

_WHOLE = Topic.LIFECYCLE, Topic.DECISIONS
"""Of these a gap changes what the rest says."""


class Held:
    """What the files of a log hold, in which nothing of other runs is where it was opened for one."""

    def __init__(self, log: FileLog, settings: Settings, run_id: str | None) -> None:
        self._log = log
        self._run_id = run_id
        self._of_runs = {settings.topic(topic) for topic in OF_RUNS}
        self._whole = {settings.topic(topic) for topic in _WHOLE}
        self._settings = settings

    def all(self) -> Iterator[OffsetRange]:
        """All of it, or all of the run; payloads go with the records that name them. Raises BadInput for a gap, and
        where it cannot be told what all of it is."""
        if self._run_id is not None:
            found = ranges_of_run(self._log, self._settings, self._run_id)
            for one in found:
                self._check_whole(one.topic, one.partition, None)
            yield from found
            return
        of_their_own = [one for one in self._log.sections if not one.only_referenced]
        for topic, partition in dict.fromkeys((one.topic, one.partition) for one in of_their_own):
            for run in self._runs(topic, partition):
                self._check_whole(topic, partition, run)
                for own in self._log.stretches(topic, partition, run):
                    yield OffsetRange(topic, partition, own.first, own.end, run, is_open=True, from_first=True)

    def of(self, wanted: OffsetRange) -> Iterator[OffsetRange]:
        """A range of it, once for each run that files were narrowed to: its open sides are where that run's end."""
        resolved = wanted.resolved(self._log)
        for run in self._runs(wanted.topic, wanted.partition):
            if run is None:
                yield wanted
                continue
            own = self._log.stretches(wanted.topic, wanted.partition, run)
            if own:
                start = own[0].first if wanted.start is None else resolved.first
                end = own[-1].end if wanted.end is None else resolved.end
                self._check(wanted.topic, wanted.partition, run, Bounds(start, end), own)
                is_open, from_first = wanted.end is None, wanted.start is None
                yield OffsetRange(wanted.topic, wanted.partition, start, end, run, is_open, from_first)
            if wanted.topic == self._settings.topic(Topic.LIFECYCLE):
                self._check_whole(self._settings.topic(Topic.DECISIONS), wanted.partition, run)

    def _runs(self, topic: str, partition: int) -> Sequence[str | None]:
        """Whose records lie there; None: everybody's."""
        if topic not in self._of_runs or self._run_id is not None:
            return (None,)
        sections = [one for one in self._log.sections if one.topic in self._of_runs and one.partition == partition]
        narrowed = next((one for one in sections if one.run is not None), None)
        of_all = next((one for one in sections if one.run is None), None)
        if narrowed is not None and of_all is not None:
            raise BadInput(
                f"{narrowed} was exported of run {visible(narrowed.run)} alone, and {of_all} of all: leave one of the "
                f"files out, or add --run {visible(narrowed.run)}"
            )
        return sorted({one.run for one in sections if one.run is not None}) or (None,)

    def _check_whole(self, topic: str, partition: int, run: str | None) -> None:
        own = self._log.stretches(topic, partition, run or self._run_id)
        if own and topic in self._whole:
            self._check(topic, partition, run, Bounds(own[0].first, own[-1].end), own)

    def _check(self, topic: str, partition: int, run: str | None, wanted: Bounds, own: Sequence[Bounds]) -> None:
        if (gap := gap_in(wanted, own)) is not None:
            of_run = "" if run is None else f" of run {visible(run)}"
            raise BadInput(
                f"{topic}:{partition}:{gap.first}-{gap.end}{of_run} is in none of the files, and what lies there "
                "nobody could rule out: give the file that holds it, too, or those alone that join"
            )
