"""The log in exported files: the same records at the same places as in Kafka, and no broker. Files may overlap, as two
runs of one partition do, or an export and a later one: each offset is read once."""

from collections.abc import Iterable, Iterator, Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path
from types import TracebackType
from typing import IO, Any, cast

import fastavro

from rollbook.replay.history.container import AnchorNote, Contents, Section, Total, contents_of
from rollbook.replay.history.joined import gap_in, joined
from rollbook.replay.history.measured import Measured
from rollbook.replay.history.parts import Cursor, Part, broken, check_same, once, overlapping
from rollbook.replay.history.source import Bounds, OutOfRange, StoredRecord, place_of
from rollbook.schemas.errors import BadInput
from rollbook.schemas.text import visible

_MAGIC = b"Obj\x01"


@dataclass(frozen=True, slots=True)
class Changed:
    """A section that does not hold what was exported."""

    path: Path
    section: Section
    there: Total
    exported: Total


class FileLog:
    """A `LogSource` over exported files; a context manager. `run_id`: without what they hold of other runs alone.

    Raises BadInput for a file that is no export, was cut short, or does not read to its end; its readers NotTheLog
    where a section does not hold what was exported, and for files that hold different records at one place.
    """

    def __init__(self, paths: Sequence[Path], run_id: str | None = None) -> None:
        self._open = ExitStack()
        self._paths = paths
        self._run_id = run_id
        self._parts: dict[tuple[str, int], list[Part]] = {}
        self.contents: list[Contents] = []
        """Of each file."""
        self._anchors: list[tuple[AnchorNote, Part]] = []
        with self._open:
            for path in paths:
                self._take(path)
            self._check_one_cluster(paths)
            for parts in self._parts.values():
                parts.sort(key=lambda part: (part.section.start, part.section.end))
            self._open = self._open.pop_all()

    @property
    def topic_prefix(self) -> str:
        return self.contents[0].topic_prefix

    @property
    def sections(self) -> tuple[Section, ...]:
        """What all files hold together."""
        return tuple(part.section for parts in self._parts.values() for part in parts)

    @property
    def payload_ends(self) -> dict[int, int]:
        """Where partitions of the payloads topic ended, of those of which all files noted it."""
        noted = [one.payload_ends for one in self.contents]
        known = set.intersection(*map(set, noted))
        return {partition: max(ends[partition] for ends in noted) for partition in known}

    def partitions(self, topic: str) -> int:
        """How many partitions a topic has on the cluster that the files were exported from."""
        for contents in self.contents:
            if topic in contents.partitions:
                return contents.partitions[topic]
        raise BadInput(f"topic {visible(topic)} is not in {self.names}: export it, too")

    def bounds(self, topic: str, partition: int) -> Bounds:
        """From the first offset to the last file's end; what lies between two files is refused where it is read."""
        stretches = self._stretches(topic, partition)
        return Bounds(stretches[0].first, stretches[-1].end)

    def holds(self, topic: str, partition: int) -> bool:
        """Whether they have anything of a partition."""
        return (topic, partition) in self._parts

    def stretches(self, topic: str, partition: int, run_id: str | None) -> list[Bounds]:
        """What they have of everybody, and of a run where one is given, ascending; between two of them there is a
        gap."""
        own = (part.section for part in self._parts.get((topic, partition), ()))
        return joined(Bounds(one.start, one.end) for one in own if one.run in (None, run_id))

    def end_together(self, *places: tuple[str, int]) -> bool:
        """Whether the ends of these partitions lie in one file, so that they were taken together."""
        last = []
        for place in places:
            parts = self._parts.get(place, [])
            end = max((part.section.end for part in parts), default=0)
            last.append({part.path for part in parts if part.section.end == end})
        return bool(set.intersection(*last))

    def offset_at(self, topic: str, partition: int, timestamp_ms: int) -> int | None:
        """The offset of the first record with this timestamp or a later one; None where there is none."""
        for one in self._stretches(topic, partition):
            for record in self.read(topic, partition, one.first, one.end):
                if record.timestamp_ms >= timestamp_ms:
                    return record.offset
        return None

    def read(self, topic: str, partition: int, start: int, end: int) -> Iterator[StoredRecord]:
        """The records of [start, end) in order, streamed."""
        self._check_there(topic, partition, start, end)
        parts = self._found(topic, partition)
        for together in overlapping([one for one in parts if one.section.start < end and start < one.section.end]):
            if len(together) == 1:
                yield from together[0].read(start, end)
            else:
                yield from once(together, start, end)

    def read_at(self, topic: str, partition: int, offsets: Iterable[int]) -> Iterator[StoredRecord]:
        """The records at these offsets, each once, in ascending order."""
        cursors = [Cursor(part) for part in self._found(topic, partition)]
        for offset in sorted(set(offsets)):
            found = [(record, one.part) for one in cursors if (record := one.at(offset)) is not None]
            if not found:
                place = place_of(topic, partition, offset)
                raise OutOfRange(place, f"no such record is in {self.names}", self.bounds(topic, partition))
            for other in found[1:]:
                check_same(found[0], other)
            yield found[0][0]

    def anchors(self, *, even_changed: bool = False) -> Iterator[tuple[AnchorNote, Path, Iterator[StoredRecord]]]:
        """Of each sealed file its anchor, with the ledger's rows; `even_changed`: for who finds out by himself."""
        for note, part in self._anchors:
            part.is_told |= even_changed
            yield note, part.path, part.read(0)

    def verify(self) -> Iterator[Changed]:
        """Sections whose records are not those that were exported. Each is looked through once, whoever asks again; who
        was told reads them nevertheless."""
        anchors = [part for _, part in self._anchors]
        for part in (*(part for parts in self._parts.values() for part in parts), *anchors):
            part.is_told = True
            if part.total_found() != part.total:
                yield Changed(part.path, part.section, part.total_found(), part.total)

    def check(self, topic: str, partition: int) -> None:
        """Raises NotTheLog where they do not hold what was exported of a partition."""
        for part in self._found(topic, partition):
            part.check()

    def close(self) -> None:
        self._open.close()

    def __enter__(self) -> "FileLog":
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def _found(self, topic: str, partition: int) -> list[Part]:
        count = self.partitions(topic)
        if partition >= count:
            raise BadInput(f"partition {topic}:{partition} does not exist: the topic has {count}")
        found = self._parts.get((topic, partition))
        if not found:
            raise BadInput(f"{topic}:{partition} is not in {self.names}: export it, too")
        return found

    def _stretches(self, topic: str, partition: int) -> list[Bounds]:
        """What joins, ascending, with a gap before each but the first; between named payloads there is none."""
        sections = [part.section for part in self._found(topic, partition)]
        found = joined(Bounds(one.start, one.end) for one in sections)
        if all(one.only_referenced for one in sections):
            return [Bounds(found[0].first, found[-1].end)]
        return found

    def _check_there(self, topic: str, partition: int, start: int, end: int) -> None:
        """Before the first record is read: half of a range is no answer to who asked for all of it."""
        stretches = self._stretches(topic, partition)
        if (gap := gap_in(Bounds(start, end), stretches)) is not None:
            near = next((one for one in stretches if start < one.end), stretches[-1])
            problem = f"{topic}:{partition}:{gap.first}-{gap.end} is in none of the files {self.names}"
            raise OutOfRange(f"{topic}:{partition}:{start}-{end}", problem, near)

    @property
    def names(self) -> str:
        """Of the files, for people."""
        return ", ".join(visible(path) for path in self._paths)

    def _take(self, path: Path) -> None:
        """Look through the file once: what it holds, and where."""
        file = self._open.enter_context(_opened(path))
        measured = Measured(file, visible(path))
        blocks = _blocks(measured, path)
        measured.begin()
        contents, totals = contents_of(blocks.metadata, visible(path))
        self.contents.append(contents)
        parts = [Part(path, file, b"", one, total) for one, total in zip(contents.sections, totals, strict=True)]
        self._index(path, blocks, iter(parts))
        header = _header(file, parts)
        for part in parts:
            part.header = header
        if contents.anchor is not None:
            self._anchors.append((contents.anchor, parts.pop()))
        for part in parts:
            if self._run_id is None or part.section.run in (None, self._run_id):
                self._parts.setdefault((part.section.topic, part.section.partition), []).append(part)

    def _index(self, path: Path, blocks: Any, parts: Iterator[Part]) -> None:
        """Each section begins with a block of its own, and those without a record have none."""
        part: Part | None = None
        seen = 0
        try:
            for block in blocks:
                if part is None or seen == part.total.records:
                    part, seen = next(one for one in parts if one.total.records), 0
                first = next(iter(block))
                part.positions.append(block.offset)
                part.firsts.append(first["offset"])
                seen += block.num_records
                part.end = block.offset + block.size
        except BadInput:
            raise
        except Exception as error:  # truncated, or bytes that were changed
            raise BadInput(f"{visible(path)} does not read to its end ({broken(error)}): export it again") from None
        if (part is not None and seen != part.total.records) or any(one.total.records for one in parts):
            raise BadInput(f"{visible(path)} was cut short: export it again")

    def _check_one_cluster(self, paths: Sequence[Path]) -> None:
        """By what the files say of topics that several have: one that was sealed has fewer than one of a whole run."""
        for at, other in enumerate(self.contents):
            for before in range(at):
                if not other.is_of_cluster(self.contents[before]):
                    raise BadInput(
                        f"{visible(paths[at])} and {visible(paths[before])} were exported from different clusters: "
                        "give those of one"
                    )


def contents_at(path: Path) -> Contents:
    """What a file says it holds, without a look at its records. Raises BadInput."""
    with _opened(path) as file:
        return contents_of(_blocks(file, path).metadata, visible(path))[0]


def is_container(path: Path) -> bool:
    """Whether a file begins as an Avro object container does, whatever its name."""
    try:
        with path.open("rb") as file:
            return file.read(len(_MAGIC)) == _MAGIC
    except OSError:
        return False


def _opened(path: Path) -> IO[bytes]:
    try:
        if not (path.is_file() or path.is_dir()) and path.exists():
            raise BadInput(
                f"{visible(path)} is a pipe or a device, and a history is read from many places: make it a file first"
            )
        return path.open("rb")
    except OSError as fault:
        raise _unreadable(path, fault) from None


def _blocks(file: IO[bytes] | Measured, path: Path) -> Any:
    try:
        return fastavro.block_reader(cast(IO[bytes], file))
    except OSError as fault:
        raise _unreadable(path, fault) from None
    except Exception as error:  # whatever fastavro meets in a file that is no container
        raise BadInput(
            f"{visible(path)} is no Avro container file ({broken(error)}): give an exported history"
        ) from None


def _unreadable(path: Path, fault: OSError) -> BadInput:
    return BadInput(f"{visible(path)} cannot be read ({fault.strerror}): give an exported history")


def _header(file: IO[bytes], parts: Sequence[Part]) -> bytes:
    first = min((part.positions[0] for part in parts if part.positions), default=0)
    file.seek(0)
    return file.read(first)
