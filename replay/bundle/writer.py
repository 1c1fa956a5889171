"""Writing a bundle: whole or not at all, and only what a strict reader accepts.

1. everything is checked in memory; 2. a hidden folder beside the target takes payloads, then the JSON files, then
COMPLETE.<rank>, then COMPLETE, each fsynced; 3. one rename publishes it. Two writers on one path cannot mix: the second
rename fails. The same draft gives the same bytes.
"""

import hashlib
import os
import secrets
import shutil
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np
from pydantic import ValidationError

from rollbook.replay.bundle.bundle import Bundle
from rollbook.replay.bundle.checks import check_metadata, check_tensor
from rollbook.replay.bundle.layout import PAYLOADS, leftover_name, payload_file, rank_complete
from rollbook.replay.bundle.model import (
    COMPLETE,
    EXPECTED,
    INDEX,
    MANIFEST,
    Capability,
    ComparisonPolicy,
    Complete,
    Expected,
    Index,
    Manifest,
    MetadataFile,
    Payload,
    Producer,
    RankComplete,
    Redaction,
    StageContract,
    StageId,
)
from rollbook.replay.bundle.problems import BadBundle, Problem, problems_of
from rollbook.replay.bundle.strictjson import render
from rollbook.replay.bundle.tensorfile import Tensor, tensor_bytes, torch_dtype
from rollbook.replay.bundle.torchzip import NotATensorFile
from rollbook.replay.text import visible
from rollbook.schemas.errors import BadInput, EnvironmentFault


@dataclass(frozen=True, slots=True)
class Draft:
    """What a bundle is written from: one rank of one step or rollout.

    `tensors`: float32, flat, the response tokens of all samples in index order ([samples] for the sample_* payloads).
    `contracts`: what a reader is promised; `recomputable(...)` makes the usual ones.
    """

    producer: Producer
    index: Index
    expected: Expected
    tensors: Mapping[str, Tensor]
    contracts: tuple[StageContract, ...]
    comparison_policy: ComparisonPolicy = field(default_factory=ComparisonPolicy)
    redaction: Mapping[str, Redaction] = field(default_factory=dict)
    rank: int = 0
    expected_ranks: tuple[int, ...] = (0,)

    @classmethod
    def of(cls, bundle: Bundle) -> "Draft":
        """The draft that writes a bundle as it was read."""
        manifest = bundle.manifest
        return cls(
            producer=manifest.producer,
            index=bundle.index,
            expected=bundle.expected,
            tensors=bundle.tensors,
            contracts=tuple(manifest.stage_contracts.values()),
            comparison_policy=manifest.comparison_policy,
            redaction=manifest.redaction,
            rank=bundle.rank,
            expected_ranks=bundle.expected_ranks,
        )


def recomputable(*stages: StageId) -> tuple[StageContract, ...]:
    """Contracts that promise these stages to be recomputable."""
    return tuple(StageContract(stage=stage, capability=Capability.RECOMPUTE) for stage in stages)


@dataclass(frozen=True, slots=True)
class _File:
    name: str
    content: bytes


def write_bundle(path: Path, draft: Draft) -> Path:
    """Publish the bundle at `path`, which must not exist yet; its parent folders are made.

    Raises `BadBundle` for a draft that a strict reader would refuse, `BadInput` when `path` exists, `EnvironmentFault`
    when the disk does not play along.
    """
    if os.path.lexists(path):
        raise BadInput(f"{visible(path)} exists: bundles are never overwritten, write to another path")
    payloads, metadata = _contents(path, draft)
    temporary = path.parent / leftover_name(path.name, secrets.token_hex(8))
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        temporary.mkdir()
        (temporary / PAYLOADS).mkdir()
        _write(temporary / PAYLOADS, payloads)
        _write(temporary, metadata)
        temporary.rename(path)
        _sync_folder(path.parent)
    except OSError as error:
        if path.exists() and temporary.exists():
            raise BadInput(f"{visible(path)} was written by someone else meanwhile: write to another path") from None
        raise EnvironmentFault(
            f"cannot write bundle {visible(path)}: {error.strerror}; check disk and folder"
        ) from None
    finally:
        shutil.rmtree(temporary, ignore_errors=True)
    return path


def _contents(path: Path, draft: Draft) -> tuple[tuple[_File, ...], tuple[_File, ...]]:
    """Payload files, then metadata files in the order in which they are written."""
    tensors = {name: np.ascontiguousarray(tensor) for name, tensor in draft.tensors.items()}
    try:
        payloads = {name: tensor_bytes(tensor, name) for name, tensor in tensors.items()}
        manifest = Manifest(
            bundle_id=draft.index.bundle_id,
            producer=draft.producer,
            stage_contracts={contract.stage: contract for contract in draft.contracts},
            payloads={name: _payload(name, tensors[name], data) for name, data in payloads.items()},
            comparison_policy=draft.comparison_policy,
            redaction=dict(draft.redaction),
        )
    except NotATensorFile as error:
        raise BadInput(f"bundle {visible(path)}: a payload cannot be written: {error}") from None
    except ValidationError as error:
        raise BadBundle(str(path), *problems_of(MANIFEST, error)) from None
    problems = tuple(_problems(manifest, draft, tensors))
    if problems:
        raise BadBundle(str(path), *problems)
    files = tuple(_File(payload_file(name), data) for name, data in payloads.items())
    return files, tuple(_metadata_files(manifest, draft))


def _payload(name: str, tensor: Tensor, data: bytes) -> Payload:
    return Payload(
        name=name,
        dtype=torch_dtype(tensor),
        shape=tuple(tensor.shape),
        bytes=len(data),
        sha256=hashlib.sha256(data).hexdigest(),
    )


def _problems(manifest: Manifest, draft: Draft, tensors: Mapping[str, Tensor]) -> Iterator[Problem]:
    if draft.rank not in draft.expected_ranks:
        yield Problem(COMPLETE, "expected_ranks", f"rank {draft.rank} is not among them", "list every rank that writes")
    yield from check_metadata(manifest, draft.index, draft.expected)
    for name, tensor in tensors.items():
        yield from check_tensor(name, manifest.payloads[name], tensor)


def _metadata_files(manifest: Manifest, draft: Draft) -> Iterator[_File]:
    contents: dict[MetadataFile, bytes] = {
        MANIFEST: render(manifest),
        INDEX: render(draft.index),
        EXPECTED: render(draft.expected, drop_absent=True),
    }
    yield from (_File(name, content) for name, content in contents.items())
    digests = {name: hashlib.sha256(content).hexdigest() for name, content in contents.items()}
    identity = draft.index.identity
    record = RankComplete(
        actor_step_id=identity.actor_step_id,
        rollout_id=identity.rollout_id,
        payloads={name: payload.sha256 for name, payload in manifest.payloads.items()},
        metadata=digests,
        expected_ranks=draft.expected_ranks,
    )
    yield _File(rank_complete(draft.rank), render(record))
    complete = Complete(ranks=(draft.rank,), expected_ranks=draft.expected_ranks, metadata=digests)
    yield _File(COMPLETE, render(complete))


def _write(folder: Path, files: Iterable[_File]) -> None:
    for file in files:
        with (folder / file.name).open("xb") as out:
            out.write(file.content)
            out.flush()
            os.fsync(out.fileno())
    _sync_folder(folder)


def _sync_folder(folder: Path) -> None:
    fd = os.open(folder, os.O_RDONLY | os.O_DIRECTORY)
    try:
        os.fsync(fd)
    finally:
        os.close(fd)
