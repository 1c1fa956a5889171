"""Files from outside: bundles, what lies beside them, checkpoints."""

import json
import shutil
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, redirect_stderr
from functools import cache
from io import StringIO
from pathlib import Path
from random import Random
from tempfile import TemporaryDirectory
from typing import Any

import numpy as np

from rollbook.producers.observing.facts import ObservedRow
from rollbook.producers.trl import saved
from rollbook.replay.audit.bundles import check_bundles
from rollbook.replay.audit.given import Given, UnknownForm, bundles_at
from rollbook.replay.bundle.masks import lift_masks
from rollbook.replay.bundle.terms import TERMS
from rollbook.replay.materialize.materialize import Wanted, materialize
from rollbook.replay.materialize.provenance import provenance_path
from rollbook.schemas.codec import decode
from rollbook.schemas.records.common import PolicyRef
from rollbook.schemas.records.payload import StepRecording
from rollbook.schemas.records.update import Checkpoint
from rollbook.tests.fuzz import recorded
from rollbook.tests.fuzz.jsons import changed as json_changed
from rollbook.tests.fuzz.target import Target, told
from rollbook.tests.producers.trl.recorded import Story, read_log, settings_of
from rollbook.tests.replay import fuzz as bundles
from rollbook.tests.replay.reseal import edit_bundle

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
    Target(
        "provenance",
        "what lies beside a bundle and says where it comes from",
        lambda: [provenance_path(bundle).read_bytes() for bundle in _bundles()],
        provenance,
        json_changed,
        share=2,
    ),
    *(
        Target(f"bundle-{name}", f"{name} of a bundle", _file_of_bundle(name), _of_bundle(name), json_changed, share=2)
        for name in _BUNDLE_FILES
    ),
    Target("bundle-terms", f"{TERMS} of a bundle", _file_of_bundle(TERMS), _of_bundle(TERMS), json_changed, share=2),
    Target("masks", "loss masks in an index", _indexes, masks, words=(b'"loss_mask"', b": [", b"1, 0", b"]", b"\\")),
    Target("tensor", "a tensor of a bundle", _tensors, bundles.check_payload, _tensor_changed),
    Target("checkpoint", saved.NAME, _of_checkpoint(saved.NAME), checkpoint, json_changed),
    Target("checkpoint-rows", saved.ROWS, _of_checkpoint(saved.ROWS), checkpoint_rows),
    Target("checkpoint-steps", saved.STEPS, _of_checkpoint(saved.STEPS), checkpoint_steps),
)
