"""Archives: exported and sealed files of recorded histories, which are read and audited as they are for ever, without a
broker. A folder is one; its `anchor.avro` is the sealed file that lies before the others, if it has one.

    python -m rollbook.tests.frozen.archives

writes those that are missing; one that is there is never made anew.
"""

from collections.abc import Callable, Iterator, Mapping
from functools import partial
from pathlib import Path

from rollbook.infra.settings import Settings, Topic
from rollbook.processors.ledger.fold import Ledger
from rollbook.processors.ledger.keys import position_key
from rollbook.replay.audit.anchor import anchor_of
from rollbook.replay.audit.audit import stretch_of
from rollbook.replay.audit.ledger import rows_of
from rollbook.replay.audit.seal import seal
from rollbook.replay.history.export import export
from rollbook.replay.history.file import FileLog
from rollbook.replay.history.ranges import OffsetRange
from rollbook.schemas.codec import encode
from rollbook.schemas.records.ledger import Position
from rollbook.tests.frozen.histories import History, read
from rollbook.tests.frozen.reports import digest_of, said_of
from rollbook.tests.frozen.table import Entry, Table

FOLDER = Path(__file__).parents[1] / "data" / "archives"
ANCHOR = "anchor.avro"
_LIFECYCLE = Topic.LIFECYCLE.value


def names() -> tuple[str, ...]:
    """All that were ever written."""
    return tuple(sorted(path.name for path in FOLDER.iterdir() if path.is_dir()))


def frozen(name: str) -> Entry:
    """What must come out again."""
    folder = FOLDER / name
    with FileLog(sorted(path for path in folder.glob("*.avro") if path.name != ANCHOR)) as log:
        section = next(one for one in log.sections if one.topic.endswith(_LIFECYCLE))
        settings = Settings(topic_prefix=section.topic.removesuffix(_LIFECYCLE))
        anchor = anchor_of(folder / ANCHOR) if (folder / ANCHOR).exists() else None
        here = OffsetRange(section.topic, section.partition)
        has_payloads = any(one.topic == settings.topic(Topic.PAYLOADS) for one in log.sections)
        said = said_of(
            log, settings, here if anchor is None else anchor.begin(here), payloads=has_payloads, anchor=anchor
        )
        return {
            "files": digest_of(folder),
            "sections": [f"{one.topic}:{one.partition}:{one.start}-{one.end}" for one in log.sections],
            "verified": [str(problem) for problem in log.verify()],
            **said,
        }


def archives() -> Mapping[str, Callable[[], Entry]]:
    return {name: partial(frozen, name) for name in names()}


ARCHIVES = Table("archives", archives)


def _with_ledger(name: str) -> History:
    """A recorded history with the compacted ledger that its decisions lead to."""
    history = read(name)
    ledger = Ledger(history.partition, history.topic_partitions)
    for one in history.records:
        ledger.fold(one)
    topic, end = history.settings.topic(Topic.LEDGER), history.records[-1].offset + 1
    position = Position(next_offset=end, transactional_id="recorder")
    for key, row in (*rows_of(ledger), (position_key(history.partition), encode(position))):
        history.log.append(topic, history.partition, key, row)
    return history


def _exported(folder: Path) -> None:
    """All that there is of a training: records, decisions, ledger and payloads."""
    history = _with_ledger("trl-asynchronous")
    topics = (Topic.LIFECYCLE, Topic.DECISIONS, Topic.LEDGER)
    ranges = [OffsetRange(history.settings.topic(topic), history.partition) for topic in topics]
    export(history.log, history.settings, ranges, folder / "run.avro", payloads=True)


def _anchored(folder: Path) -> None:
    """The end of a partition, of which the rest is an anchor."""
    history = read("every-record")
    middle = history.records[len(history.records) // 2].offset
    _seal(history, OffsetRange(history.range.topic, history.partition, None, middle), folder / ANCHOR)
    _seal(history, OffsetRange(history.range.topic, history.partition, middle), folder / "rest.avro", folder / ANCHOR)


def _seal(history: History, wanted: OffsetRange, path: Path, before: Path | None = None) -> None:
    stretch = stretch_of(history.log, history.settings, wanted, None)
    anchor = None if before is None else anchor_of(before)
    assert seal(history.log, history.settings, stretch, path, before=anchor).exported is not None


WRITERS: Mapping[str, Callable[[Path], None]] = {"exported": _exported, "anchored": _anchored}


def write_missing() -> Iterator[Path]:
    for name, write in WRITERS.items():
        folder = FOLDER / name
        if not folder.exists():
            folder.mkdir(parents=True)
            write(folder)
            yield folder


if __name__ == "__main__":
    for written in write_missing():
        print(written.name)
