"""What a command is to work on: offset ranges or a run, of the cluster or of exported files."""

import os
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from rollbook.infra.settings import Settings, Topic
from rollbook.replay.history.arguments import Place, text_of
from rollbook.replay.history.export import OF_RUNS, ranges_of_all, ranges_of_run
from rollbook.replay.history.file import FileLog, is_container
from rollbook.replay.history.held import Held
from rollbook.replay.history.holding import files_of, run_of
from rollbook.replay.history.kafka import KafkaLog
from rollbook.replay.history.known import check_known
from rollbook.replay.history.ranges import OffsetRange, check_apart, looks_like_range, parse_range
from rollbook.replay.history.source import LogSource
from rollbook.replay.progress import Watch
from rollbook.schemas.errors import BadInput
from rollbook.schemas.text import visible


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
    return not path.is_dir() and (not path.is_file() or path.suffix == ".avro" or is_container(path))


Texts = Sequence[Place]


@contextmanager
def opened(texts: Texts, run_id: str | None = None, *, everything: bool = False) -> Iterator[Targets]:
    """`texts`: each the path of an exported file, or an offset range; without a range it is all of the run or, without
    a run, all that the files hold; `everything`: instead of these all that the cluster holds. Raises BadInput, also for
    files with a gap between them and for a run that is nowhere, and OutOfRange."""
    files, wanted = _told_apart(texts)
    _check_text(run_id)
    if everything and (files or wanted or run_id is not None):
        raise BadInput("--all is of every partition of the cluster: leave out ranges, files and --run, or --all")
    if everything:
        with KafkaLog(settings := Settings.from_env()) as log:
            yield _targets(log, settings, ranges_of_all(log, settings), run_id, are_named=False)
        return
    if not files:
        with KafkaLog(settings := Settings.from_env()) as log:
            yield _targets(log, settings, _in_kafka(log, settings, wanted, run_id), run_id, bool(wanted))
        return
    with FileLog(files, run_id) as log:
        settings = Settings(topic_prefix=log.topic_prefix)
        held = Held(log, settings, run_id)
        named = [one for text in wanted for one in held.of(parse_range(text, settings))]
        ranges = named if wanted else list(held.all())
        if not ranges:
            payloads = settings.topic(Topic.PAYLOADS)
            raise BadInput(f"{log.names}: nothing but named payloads is there: name a range, such as {payloads}:0:-")
        yield _targets(log, settings, ranges, run_id, bool(wanted))


def only_run(texts: Texts, watch: Watch) -> str:
    """The run that a question about one run is asked of where none was named: that of exported files of one run."""
    files, _ = _told_apart(texts)
    if not files:
        raise BadInput("say of which run: --run RUN, or an exported file of one run")
    return run_of(files, watch)


@contextmanager
def opened_for(texts: Texts, run_id: str) -> Iterator[Targets]:
    """Of exported files those that can hold a run, so that files of several runs, or of several clusters, may be given
    together; without any the cluster. Raises BadInput where none of them holds it."""
    files, wanted = _told_apart(texts)
    _check_text(run_id)
    for text in wanted:
        raise BadInput(f"{visible(text)} is no file: give exported histories that hold the runs whole")
    holding = files_of(files, run_id)
    if files and not holding:
        raise BadInput(f"run {visible(run_id)} is not in {', '.join(map(visible, files))}: export it, too")
    with opened(holding, run_id) as of:
        yield of


def _told_apart(texts: Texts) -> tuple[list[Path], list[str]]:
    """Files and ranges."""
    if isinstance(texts, str | os.PathLike):
        raise BadInput(f"'{visible(texts)}' is one text: give a list of files or ranges, such as ['{visible(texts)}']")
    given = [text_of(one, "a file or range") for one in texts]
    wanted = [text for text in given if not Path(text).exists()]
    for text in wanted:
        if "/" in text or text.endswith(".avro"):
            raise BadInput(f"{visible(text)} does not exist: give an exported history, or an offset range")
    return [Path(text) for text in given if text not in wanted], wanted


def _check_text(run_id: object) -> None:
    if run_id is not None and not isinstance(run_id, str):
        raise BadInput(f"run={visible(repr(run_id))} is no text: give the run's id")


def _in_kafka(log: LogSource, settings: Settings, wanted: Sequence[str], run_id: str | None) -> Sequence[OffsetRange]:
    if wanted:
        return [parse_range(text, settings) for text in wanted]
    if run_id is None:
        raise BadInput("say what of: an offset range such as lifecycle:0:0-5000, an exported file, or --run RUN")
    return ranges_of_run(log, settings, run_id)


def _targets(
    log: LogSource, settings: Settings, ranges: Sequence[OffsetRange], run_id: str | None, are_named: bool
) -> Targets:
    of_runs = {settings.topic(topic) for topic in OF_RUNS}
    for one in (one for one in ranges if run_id is not None and one.topic not in of_runs):
        raise BadInput(f"{one}: records of {one.topic} belong to no run: leave --run out (payloads: add --payloads)")
    if are_named:
        check_apart(log, ranges)
    if run_id is not None:
        check_known(log, settings, ranges, run_id)
    return Targets(log, settings, tuple(ranges), run_id, are_named)
