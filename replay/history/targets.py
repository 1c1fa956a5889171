"""What a command is to work on: offset ranges or a run, of the cluster or of exported files."""

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from rollbook.infra.settings import Settings, Topic
from rollbook.replay.history.container import Contents, topic_of
from rollbook.replay.history.export import ranges_of_run
from rollbook.replay.history.file import FileLog, contents_at
from rollbook.replay.history.kafka import KafkaLog
from rollbook.replay.history.ranges import OffsetRange, looks_like_range, parse_range
from rollbook.replay.history.source import LogSource
from rollbook.replay.text import visible
from rollbook.schemas.errors import BadInput


@dataclass(frozen=True, slots=True)
class Targets:
    """An open log, the settings that name its topics, and what is asked for of it. `are_named`: whether the ranges were
    given, and are not all of a run or all that files hold."""

    log: LogSource
    settings: Settings
    ranges: tuple[OffsetRange, ...]
    run_id: str | None
    are_named: bool


def is_history(text: str) -> bool:
    """Whether a text can only be an offset range or an exported file, and no folder of bundles."""
    path = Path(text)
    if not path.exists():
        return looks_like_range(text) or text.endswith(".avro")
    return path.is_file() and path.suffix == ".avro"


@contextmanager
def opened(texts: Sequence[str], run_id: str | None = None) -> Iterator[Targets]:
    """`texts`: each the path of an exported file, or an offset range; without a range it is all of the run or, without
    a run, all that the files hold. Raises BadInput."""
    files = tuple(Path(text) for text in texts if Path(text).exists())
    wanted = [text for text in texts if not Path(text).exists()]
    for text in wanted:
        if "/" in text or text.endswith(".avro"):
            raise BadInput(f"{visible(text)} does not exist: give an exported history, or an offset range")
    if not files:
        with KafkaLog(settings := Settings.from_env()) as log:
            yield Targets(log, settings, _ranges(log, settings, wanted, run_id, ()), run_id, bool(wanted))
        return
    with FileLog(files) as log:
        settings = Settings(topic_prefix=log.topic_prefix)
        held = [OffsetRange(one.topic, one.partition, one.start, one.end) for one in log.sections]
        yield Targets(log, settings, _ranges(log, settings, wanted, run_id, held), run_id, bool(wanted))


@contextmanager
def opened_for(texts: Sequence[str], run_id: str) -> Iterator[Targets]:
    """Of exported files those that can hold a run, so that files of several runs, or of several clusters, may be given
    together; without any the cluster. Raises BadInput where none of them holds it."""
    for text in texts:
        if not Path(text).is_file():
            raise BadInput(f"{visible(text)} is no file: give exported histories that hold the runs whole")
    holding = [text for text in texts if _holds(contents_at(Path(text)), run_id)]
    if texts and not holding:
        raise BadInput(f"run {visible(run_id)} is not in {', '.join(map(visible, texts))}: export it, too")
    with opened(holding, run_id) as of:
        yield of


def _holds(contents: Contents, run_id: str) -> bool:
    return any(
        section.run in (None, run_id)
        for section in contents.sections
        if topic_of(section.topic, contents.topic_prefix) is Topic.LIFECYCLE
    )


def _ranges(
    log: LogSource, settings: Settings, wanted: Sequence[str], run_id: str | None, held: Sequence[OffsetRange]
) -> tuple[OffsetRange, ...]:
    if wanted:
        return tuple(parse_range(text, settings) for text in wanted)
    if run_id is not None:
        return tuple(ranges_of_run(log, settings, run_id))
    if not held:
        raise BadInput("say what of: an offset range such as lifecycle:0:0-5000, an exported file, or --run RUN")
    return tuple(held)
