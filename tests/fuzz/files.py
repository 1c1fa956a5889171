"""Files from outside: exported and sealed histories, bundles, what lies beside them, checkpoints."""

import json
import shutil
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, redirect_stderr
from functools import cache
from hashlib import sha256
from io import StringIO
from pathlib import Path
from random import Random
from tempfile import TemporaryDirectory
from typing import IO, Any

import fastavro
import numpy as np

from rollbook.producers.observing.facts import ObservedRow
from rollbook.producers.trl import saved
from rollbook.replay.audit.anchor import anchor_of, digest_of
from rollbook.replay.audit.bundles import check_bundles
from rollbook.replay.audit.given import Given, UnknownForm, bundles_at
from rollbook.replay.bundle.masks import lift_masks
from rollbook.replay.bundle.terms import TERMS
from rollbook.replay.histories import open_history
from rollbook.replay.history.container import RECORD, Contents, Running, stored
from rollbook.replay.history.file import FileLog, contents_at
from rollbook.replay.materialize.materialize import Wanted, materialize
from rollbook.replay.materialize.provenance import provenance_path
from rollbook.schemas.codec import decode
from rollbook.schemas.records.common import PolicyRef
from rollbook.schemas.records.payload import StepRecording
from rollbook.schemas.records.update import Checkpoint
from rollbook.tests.fuzz import recorded
from rollbook.tests.fuzz.avro import keyed_changed
from rollbook.tests.fuzz.jsons import changed as json_changed
from rollbook.tests.fuzz.target import Target, noted, told
from rollbook.tests.producers.trl.recorded import Story, read_log, settings_of
from rollbook.tests.replay import fuzz as bundles
from rollbook.tests.replay.reseal import edit_bundle

_HISTORY, _DIGEST, _TOTALS = "rollbook.history", "rollbook.history.sha256", "rollbook.totals"
_ANCHORED = recorded.DATA / "archives" / "anchored"
_EXPORTED = recorded.DATA / "archives" / "exported" / "run.avro"


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
    fastavro.writer(file, RECORD, rows, codec="deflate", metadata=said, sync_marker=b"rollbook-history")


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


def anchor(data: bytes) -> bool:
    """A row of a seal's anchor, with every digest right: an audit that begins there finds it, or refuses the seal."""
    size = int.from_bytes(data[:2], "big")
    key, value = data[2 : 2 + size], data[2 + size :]
    path = _ANCHORED / "anchor.avro"
    metadata, rows = _parts(path)
    contents = Contents.model_validate_json(metadata[_HISTORY])
    section, note = contents.sections[-1], contents.anchor
    assert note is not None
    of_anchor = [row for row in rows if row["topic"] == section.topic]
    alike = [row for row in of_anchor if row["key"] == key] or of_anchor[:1]
    changed = [{**row, "key": key, "value": value} if row is alike[0] else row for row in of_anchor]
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
    assert is_figure or not with_its_own or changed == of_anchor, "a seal was changed, and its own audit passed"
    return bool(passed)


def _audited(path: Path) -> bool:
    with open_history(path) as history:
        return all(one.passed for one in history.audit(payloads=False))


def _anchor_rows() -> list[bytes]:
    path = _ANCHORED / "anchor.avro"
    rows = [row for row in _parts(path)[1] if row["topic"] == "anchor"]
    return [len(row["key"]).to_bytes(2, "big") + row["key"] + row["value"] for row in rows]


_kept: list["TemporaryDirectory[str]"] = []
"""Removed when the process ends."""


def _kept_folder() -> Path:
    _kept.append(TemporaryDirectory(prefix="rollbook-fuzz-"))
    return Path(_kept[-1].name)


@cache
def _materialized() -> tuple[Any, Any, Path]:
    """A recorded run's bundles, kept as long as the process lives."""
    log, settings = read_log(Story.GATE), settings_of(Story.GATE)
    folder = _kept_folder()
    materialize(log, Wanted.of_run(Story.GATE.value, log, settings), folder)
    return log, settings, folder


def _bundles() -> list[Path]:
    return sorted(path for path in _materialized()[2].iterdir() if path.is_dir())


def provenance(data: bytes) -> bool:
    """What lies beside a bundle and says where it comes from."""
    log, settings, _ = _materialized()
    with TemporaryDirectory() as folder:
        bundle = Path(folder) / _bundles()[0].name
        shutil.copytree(_bundles()[0], bundle)
        provenance_path(bundle).write_bytes(data)
        found = told(lambda: bundles_at([bundle]))
        for given in found or ():
            _look(given)
        checked = None if found is None else told(lambda: check_bundles(log, settings, [bundle]))
    if checked is None:
        return False
    passed = not checked.findings
    assert not passed or json.loads(data) == json.loads(provenance_path(_bundles()[0]).read_bytes())
    return passed


def _look(given: Given) -> None:
    told(lambda: given.commit, UnknownForm)
    told(lambda: given.policy, UnknownForm)
    list(given.records())
    list(given.chunks())


def _of_bundle(name: str) -> Callable[[bytes], bool]:
    """Other bytes in a file of a bundle, sealed again where it is sealed."""

    def check(data: bytes) -> bool:
        with TemporaryDirectory() as folder:
            bundle = Path(folder) / "bundle"
            if name.startswith("COMPLETE") or name == TERMS:
                shutil.copytree(bundles.ONE, bundle)
                (bundle / name).write_bytes(data)
            else:
                edit_bundle(bundles.ONE, bundle, raw={name: lambda _: data})
            return bundles.check_bundle(bundle)

    return check


def _file_of_bundle(name: str) -> Callable[[], Sequence[bytes]]:
    others = [path for path in sorted(recorded.DATA.glob(f"bundles-*/*/{name}")) if path.stat().st_size < 30_000][:4]
    return lambda: [path.read_bytes() for path in dict.fromkeys((bundles.ONE / name, *others)) if path.exists()]


def masks(data: bytes) -> bool:
    """Masks that were lifted out of a JSON text are those that a parser finds in it."""
    lifted = lift_masks(data)
    if lifted is None or not lifted.masks:
        return False
    try:
        plain = json.loads(data, object_pairs_hook=_unique)
    except (ValueError, RecursionError):
        return False
    found = json.loads(lifted.text, object_pairs_hook=lambda pairs: lifted.put_back(_unique(pairs)))
    assert json.dumps(found, default=list) == json.dumps(plain)
    return True


def _unique(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    if len(dict(pairs)) < len(pairs):
        raise ValueError("a key twice")
    return dict(pairs)


def _indexes() -> list[bytes]:
    return [
        b'{"samples": [{"loss_mask": [1, 0,1], "x": 2}, {"loss_mask":[], "y": "loss_mask"}]}' + b" " * 200,
        b'[{"loss_mask": [0]}, {"loss_mask": {"loss_mask": [1,1]}}]' + b" " * 200,
        *_file_of_bundle("index.json")(),
    ]


@cache
def _tensors() -> tuple[bytes, ...]:
    found = sorted(recorded.DATA.glob("bundles-1.0.0/*/payloads/*.pt"))[::12]
    return (bundles.KL, *(path.read_bytes() for path in found))


def _tensor_changed(rng: Random, data: bytes) -> bytes:
    """Other bytes in the program of the pickle, with every checksum right."""
    new = rng.choice(
        (b"", b"R", b".", b"\x80\x02", b"tQ", b"\x89", b"J\xff\xff\xff\x7f", b"\x8a\x08" + b"\xff" * 8, b"K\x00")
    )
    return bundles.spliced_program(bundles.KL, rng.random(), rng.choice((0, 1, 2, 5)), new)


def checkpoint(data: bytes) -> bool:
    """What the ledger writes beside TRL's checkpoint: which update was open."""
    with _checkpoint() as folder:
        (folder / saved.NAME).write_bytes(data)
        return told(lambda: saved.read(folder)) is not None


def checkpoint_rows(data: bytes) -> bool:
    """The rows of the open update."""
    with _checkpoint() as folder:
        (folder / saved.ROWS).write_bytes(data)
        found = told(lambda: saved.read(folder))
    if found is None:
        return False
    for row in found[1]:
        assert len(row.log_probs) == sum(len(np.asarray(mask)) for _, mask in row.behavior)
    return True


def checkpoint_steps(data: bytes) -> bool:
    """Its recordings: what cannot be read stops no training."""
    with _checkpoint() as folder, redirect_stderr(StringIO()):
        (folder / saved.STEPS).write_bytes(data)
        return bool(saved.read_steps(folder))


@contextmanager
def _checkpoint() -> Iterator[Path]:
    with TemporaryDirectory() as name:
        shutil.copytree(_written(), name, dirs_exist_ok=True)
        yield Path(name)


@cache
def _written() -> Path:
    folder = _kept_folder()
    policy = PolicyRef(version=5, artifact_hash="w")
    open_part = saved.OpenPart(update_id="u", rollout_id=4, steps=(("a", "b"),))
    of = saved.Saved(
        run_id="r", learner_id="l", checkpoint=Checkpoint(id="c", digest="c" * 64), step=5, policy=policy,
        next_rollout_id=4, open=open_part,
    )  # fmt: skip
    rows = [ObservedRow(name, [(np.zeros(3, np.float32), np.ones(3, np.bool_))], np.ones(3)) for name in ("a", "b")]
    saved.write(folder, of, rows, _steps())
    return folder


def _steps() -> list[Any]:
    values = (row["value"] for row in recorded.rows("histories/trl-gate-payloads.avro"))
    return [one for one in map(decode, values) if isinstance(one, StepRecording)][:2]


def _of_checkpoint(name: str) -> Callable[[], Sequence[bytes]]:
    return lambda: [(_written() / name).read_bytes()]


_BUNDLE_FILES = ("manifest.json", "index.json", "expected.json", "COMPLETE", "COMPLETE.0")
TARGETS = (
    Target("archive", "an exported or sealed history, any byte of it", _archives, archive),
    Target(
        "archive-contents",
        "what an exported history says that it holds, with every digest right",
        _contents,
        archive_contents,
        json_changed,
    ),
    Target("anchor", "a row of a seal's anchor, with every digest right", _anchor_rows, anchor, keyed_changed),
    Target(
        "provenance",
        "what lies beside a bundle and says where it comes from",
        lambda: [provenance_path(bundle).read_bytes() for bundle in _bundles()],
        provenance,
        json_changed,
    ),
    *(
        Target(f"bundle-{name}", f"{name} of a bundle", _file_of_bundle(name), _of_bundle(name), json_changed)
        for name in _BUNDLE_FILES
    ),
    Target("bundle-terms", f"{TERMS} of a bundle", _file_of_bundle(TERMS), _of_bundle(TERMS), json_changed),
    Target("masks", "loss masks in an index", _indexes, masks, words=(b'"loss_mask"', b": [", b"1, 0", b"]", b"\\")),
    Target("tensor", "a tensor of a bundle", _tensors, bundles.check_payload, _tensor_changed),
    Target("checkpoint", saved.NAME, _of_checkpoint(saved.NAME), checkpoint, json_changed),
    Target("checkpoint-rows", saved.ROWS, _of_checkpoint(saved.ROWS), checkpoint_rows),
    Target("checkpoint-steps", saved.STEPS, _of_checkpoint(saved.STEPS), checkpoint_steps),
)
