"""Exported and sealed histories from outside: any byte, and what they say of themselves with every digest right."""

import io
import json
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from functools import cache
from hashlib import sha256
from pathlib import Path
from random import Random
from tempfile import TemporaryDirectory
from typing import IO, Any

import fastavro

from rollbook.replay.audit.anchor import anchor_of, digest_of
from rollbook.replay.histories import open_history
from rollbook.replay.history.container import RECORD, Contents, Running, stored
from rollbook.replay.history.file import FileLog, contents_at
from rollbook.schemas.codec import decode
from rollbook.schemas.errors import BadInput
from rollbook.schemas.types import Part
from rollbook.tests.fuzz import recorded
from rollbook.tests.fuzz.avro import keyed_changed
from rollbook.tests.fuzz.jsons import changed as json_changed
from rollbook.tests.fuzz.target import Target, noted, told

_HISTORY, _DIGEST, _TOTALS = "rollbook.history", "rollbook.history.sha256", "rollbook.totals"
_SYNC = b"rollbook-history"
_ANCHORED = recorded.DATA / "archives" / "anchored"


@contextmanager
def _as_file(data: bytes, name: str) -> Iterator[Path]:
    with TemporaryDirectory() as folder:
        path = Path(folder) / name
        path.write_bytes(data)
        yield path


def archive(data: bytes) -> bool:
    """An exported history: where it says that it holds what was exported, it holds that."""
    with _as_file(data, "history.avro") as path:
        told(lambda: contents_at(path))
        held = told(lambda: _held(path))
        _asked(path)
    if held is None:
        return False
    assert held in _exports(), "the file was changed, and says that it was not"
    return True


def _held(path: Path) -> str | None:
    """A digest of its records, if it says that they are those that were exported."""
    with FileLog([path]) as log:
        list(log.anchors(even_changed=True))
        if list(log.verify()):
            noted("changed")
            return None
        digest = sha256()
        for one in sorted(log.sections, key=str):
            for record in log.read(one.topic, one.partition, one.start, one.end):
                digest.update(repr(record).encode())
        return digest.hexdigest()


def _asked(path: Path) -> None:
    def ask() -> None:
        with open_history(path) as history:
            noted(" ".join(str(one.passed) for one in history.audit()))

    told(ask)


@cache
def _exports() -> frozenset[str | None]:
    found = set()
    for data in _archives():
        with _as_file(data, "history.avro") as path:
            found.add(_held(path))
    return frozenset(found)


@cache
def _archives() -> tuple[bytes, ...]:
    """The recorded ones without the schemas in their headers, which are most of them."""
    return tuple(_rebuilt(path) for path in recorded.ARCHIVES)


@cache
def _parts(path: Path) -> tuple[Mapping[str, str], tuple[Any, ...]]:
    with path.open("rb") as file:
        reader = fastavro.reader(file)
        return reader.metadata, tuple(reader)


def _rebuilt(path: Path, history: str | None = None, rows: Sequence[Any] | None = None) -> bytes:
    """The file with other contents or rows, and every digest right."""
    metadata, there = _parts(path)
    rows = there if rows is None else rows
    history = metadata[_HISTORY] if history is None else history
    sections = [list(rows) for rows in _by_section(Contents.model_validate_json(metadata[_HISTORY]), rows)]
    totals = "".join(f"{one.records:020d}{one.digest}" for one in map(_total, sections))
    said = {
        _HISTORY: history,
        _DIGEST: sha256(history.encode()).hexdigest(),
        "rollbook.schemas": "{}",
        _TOTALS: totals,
    }
    with TemporaryDirectory() as folder:
        made = Path(folder) / "made.avro"
        with made.open("wb") as file:
            _append(file, [], said)
        with made.open("a+b") as file:
            for section in sections:
                _append(file, section, said)
        return made.read_bytes()


def _append(file: IO[bytes], rows: Sequence[Any], said: dict[str, str]) -> None:
    fastavro.writer(file, RECORD, rows, codec="deflate", metadata=said, sync_marker=_SYNC)


def _by_section(contents: Contents, rows: Sequence[Any]) -> Iterator[Iterator[Any]]:
    for section in contents.sections:
        yield (
            row
            for row in rows
            if (row["topic"], row["partition"]) == (section.topic, section.partition)
            and section.start <= row["offset"] < section.end
        )


def _total(rows: Sequence[Any]) -> Any:
    running = Running()
    for row in rows:
        running.taken(stored(row))
    return running.total


def archive_contents(data: bytes) -> bool:
    """What a history says of itself, with every digest right."""
    path = recorded.ARCHIVES[len(data) % len(recorded.ARCHIVES)]
    try:
        text = data.decode()
    except UnicodeDecodeError:
        return False
    with _as_file(_rebuilt(path, text), "history.avro") as file:
        opened = told(lambda: contents_at(file))
        told(lambda: _held(file))
        _asked(file)
    return opened is not None


def _contents() -> list[bytes]:
    return [_parts(path)[0][_HISTORY].encode() for path in recorded.ARCHIVES]


def archive_header(data: bytes) -> bool:
    """The header of a history, as JSON: its codec, the schema of its records and all else. What still says that it
    holds what was exported is read as that."""
    try:
        said = json.loads(data)
        metadata = {
            name.encode().decode(): (value if isinstance(value, str) else json.dumps(value)).encode()
            for name, value in said.items()
        }
    except (ValueError, AttributeError, RecursionError):
        return False
    with _as_file(_headed(metadata), "history.avro") as path:
        told(lambda: contents_at(path))
        held = told(lambda: _held(path))
        _asked(path)
    assert held is None or held in _exports(), "the file was changed, and says that it was not"
    return held is not None


def _headed(metadata: Mapping[str, bytes]) -> bytes:
    out = io.BytesIO()
    fastavro.schemaless_writer(out, {"type": "map", "values": "bytes"}, metadata)
    _, sync, blocks = _archives()[-1].partition(_SYNC)
    return b"Obj\x01" + out.getvalue() + sync + blocks


def _header() -> list[bytes]:
    with io.BytesIO(_archives()[-1]) as file:
        metadata: dict[str, Any] = dict(fastavro.reader(file).metadata)
    return [json.dumps({**metadata, "avro.schema": json.loads(metadata["avro.schema"])}).encode()]


_OF_FIELDS = (
    {"logicalType": "timestamp-millis"}, {"logicalType": "decimal", "precision": 4, "scale": 2}, {"default": 0},
    {"logicalType": "uuid"}, {"logicalType": "date"}, {"aliases": ["topic"]}, {"order": "ignore"}, {"doc": "x"},
    {"items": "int"}, {"namespace": "x"}, {"name": "StoredRecord"}, {"type": "rollbook.history.StoredRecord"},
    {"type": "null"},
)  # fmt: skip
_CODECS = "null", "deflate", "bzip2", "xz", "snappy", "zstandard", "lz4", "", "x"


def _header_changed(rng: Random, data: bytes) -> bytes:
    """Another codec, or something else in a type or a field of the schema."""
    if rng.random() < 0.4:
        return json_changed(rng, data)
    try:
        said = json.loads(data)
        schema = said["avro.schema"]
        fields = [schema, *schema["fields"], *schema["fields"][-1]["type"]["items"]["fields"]]
        if rng.random() < 0.2:
            said["avro.codec"] = rng.choice(_CODECS)
        one = rng.choice(fields)
        new = rng.choice(_OF_FIELDS)
        if rng.random() < 0.5:
            one.update(new)
        else:
            one["type"] = {"type": one["type"], **new}
    except (ValueError, LookupError, AttributeError, TypeError, RecursionError):
        return data
    return json.dumps(said).encode()


def anchor(data: bytes) -> bool:
    """A row of a seal's anchor changed, or left out where it is given no value, with every digest right: an audit that
    begins there finds it, or refuses the seal."""
    size = int.from_bytes(data[:2], "big")
    key, value = data[2 : 2 + size], data[2 + size :]
    path = _ANCHORED / "anchor.avro"
    metadata, rows = _parts(path)
    contents = Contents.model_validate_json(metadata[_HISTORY])
    section, note = contents.sections[-1], contents.anchor
    assert note is not None
    of_anchor = [row for row in rows if row["topic"] == section.topic]
    alike = [row for row in of_anchor if row["key"] == key] or of_anchor[:1]
    instead = [{**alike[0], "key": key, "value": value}] if value else []
    changed = [one for row in of_anchor for one in (instead if row is alike[0] else [row])]
    pairs = [(row["key"] or b"", row["value"] or b"") for row in changed]
    history = contents.model_copy(
        update={"anchor": note.model_copy(update={"digest": digest_of(note.next_offset, pairs)})}
    )
    others = [row for row in rows if row["topic"] != section.topic]
    with _as_file(_rebuilt(path, history.model_dump_json(), [*others, *changed]), "seal.avro") as file:
        told(lambda: anchor_of(file))

        def audit() -> bool:
            with open_history(_ANCHORED / "rest.avro") as rest:
                return all(one.passed for one in rest.audit(anchor=file, payloads=False))

        passed = told(audit)
        with_its_own = told(lambda: _audited(file))
    is_figure = (
        b'"tally","figure: ' in key
    )  # held against the audit's own only where both count since the same decision
    says_the_same = changed == of_anchor or (key == alike[0]["key"] and _says(value) == _says(alike[0]["value"]))
    assert is_figure or not with_its_own or says_the_same, "a seal was changed, and its own audit passed"
    return bool(passed)


def _says(row: bytes) -> Part | None:
    """A byte that is no boolean is true: what is written otherwise may say the same."""
    try:
        return decode(row)
    except BadInput:
        return None


def _audited(path: Path) -> bool:
    with open_history(path) as history:
        return all(one.passed for one in history.audit(payloads=False))


def _anchor_rows() -> list[bytes]:
    path = _ANCHORED / "anchor.avro"
    rows = [row for row in _parts(path)[1] if row["topic"] == "anchor"]
    keyed = [(len(row["key"]).to_bytes(2, "big") + row["key"], row["value"]) for row in rows]
    return [key + value for key, value in keyed] + [key for key, _ in keyed]


TARGETS = (
    Target("archive", "an exported or sealed history, any byte of it", _archives, archive),
    Target(
        "archive-contents",
        "what an exported history says that it holds, with every digest right",
        _contents,
        archive_contents,
        json_changed,
        share=2,
    ),
    Target(
        "archive-header",
        "the schema and codec in an exported history's header",
        _header,
        archive_header,
        _header_changed,
        share=2,
    ),
    Target(
        "anchor",
        "a row of a seal's anchor, changed or left out, with every digest right",
        _anchor_rows,
        anchor,
        keyed_changed,
        share=4,
    ),
)
