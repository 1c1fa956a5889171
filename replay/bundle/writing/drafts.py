"""What a bundle is written from, and its files in memory: only what a strict reader accepts comes out as files.

Pure; the writer puts the files on disk.
"""

import hashlib
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace

import numpy as np
from pydantic import BaseModel, ValidationError

from rollbook.replay.bundle.bundle import Bundle
from rollbook.replay.bundle.layout import max_json_bytes, payload_file, rank_complete, rank_folder
from rollbook.replay.bundle.model import (
    COMPLETE,
    EXPECTED,
    INDEX,
    MANIFEST,
    Capability,
    CohortComplete,
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
    ShardComplete,
    StageContract,
    StageId,
)
from rollbook.replay.bundle.problems import Problem, Refused, problems_of
from rollbook.replay.bundle.reading.checks import check_agreement, check_metadata, check_tensor, format_of
from rollbook.replay.bundle.reading.contextchecks import check_place
from rollbook.replay.bundle.redaction import check_redacted
from rollbook.replay.bundle.strictjson import render
from rollbook.replay.bundle.tensorfile import Tensor, tensor_bytes, torch_dtype
from rollbook.replay.bundle.terms import TERMS, Terms, check_terms, render_terms
from rollbook.replay.bundle.torchzip import NotATensorFile

_PAYLOAD = "record flat float32 tensors"


@dataclass(frozen=True, slots=True)
class Draft:
    """One rank of one step or rollout.

    `tensors`: float32, flat, the response tokens of all samples in index order. `terms`: each sample's share of the
    policy loss, where the trainer recorded it (see terms.py). `contracts`: what a reader is promised;
    `recomputable(...)` makes the usual ones. `redaction` is only stated, and refused where it was not done.
    """

    producer: Producer
    index: Index
    expected: Expected
    tensors: Mapping[str, Tensor]
    contracts: tuple[StageContract, ...]
    terms: Terms = field(default_factory=dict)
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
            terms=bundle.terms,
            comparison_policy=manifest.comparison_policy,
            redaction=manifest.redaction,
            rank=bundle.rank,
            expected_ranks=bundle.expected_ranks,
        )


def recomputable(*stages: StageId) -> tuple[StageContract, ...]:
    """Contracts that promise these stages to be recomputable."""
    return tuple(StageContract(stage=stage, capability=Capability.RECOMPUTE) for stage in stages)


@dataclass(frozen=True, slots=True)
class File:
    """A file of a bundle; `name` is a single path component."""

    name: str
    content: bytes


@dataclass(frozen=True, slots=True)
class RankFiles:
    """Everything of one rank's folder, each in the order in which it is written; `manifest` and `record`, which is its
    COMPLETE.<rank>, are among the others."""

    payloads: tuple[File, ...]
    others: tuple[File, ...]
    manifest: Manifest
    record: RankComplete


def check_draft(draft: Draft) -> tuple[Problem, ...]:
    """Everything for which a strict reader would refuse the bundle of this draft; nothing is written."""
    try:
        files_of(draft)
    except Refused as refused:
        return refused.problems
    return ()


def check_cohort(drafts: Mapping[int, Draft]) -> tuple[Problem, ...]:
    """Likewise for the drafts of several ranks, by rank."""
    within = (
        replace(problem, file=f"{rank_folder(rank)}/{problem.file}")
        for rank, draft in sorted(drafts.items())
        for problem in check_draft(draft)
    )
    return (*check_ranks(drafts), *within)


def check_ranks(drafts: Mapping[int, Draft]) -> tuple[Problem, ...]:
    """What contradicts between the drafts of several ranks: all expected ones are there, and of one step."""
    return tuple(_between(drafts))


def _between(drafts: Mapping[int, Draft]) -> Iterator[Problem]:
    if not drafts:
        yield Problem(COMPLETE, "ranks", "none", "give the draft of every expected rank")
        return
    for rank, draft in sorted(drafts.items()):
        file = f"{rank_folder(rank)}/{COMPLETE}"
        if draft.rank != rank:
            yield Problem(file, "ranks", f"the draft is of rank {draft.rank}", "give each draft under its own rank")
        if sorted(draft.expected_ranks) != sorted(drafts):
            what = f"{sorted(draft.expected_ranks)}, but {sorted(drafts)} are there"
            yield Problem(file, "expected_ranks", what, "wait for every expected rank")
    yield from check_agreement({rank: draft.index for rank, draft in drafts.items()})


def files_of(draft: Draft) -> RankFiles:
    """The files of one rank. The same draft gives the same bytes. Raises `Refused` with every problem."""
    tensors = {name: np.ascontiguousarray(tensor) for name, tensor in draft.tensors.items()}
    payloads, unfit = _payloads(tensors)
    if unfit:
        raise Refused(*unfit)
    try:
        manifest = Manifest(
            format_version=format_of(draft.index, draft.expected),
            bundle_id=draft.index.bundle_id,
            producer=draft.producer,
            stage_contracts={contract.stage: contract for contract in draft.contracts},
            payloads={name: _payload(name, tensors[name], data) for name, data in payloads.items()},
            comparison_policy=draft.comparison_policy,
            redaction=dict(draft.redaction),
        )
    except ValidationError as error:
        raise Refused(*problems_of(MANIFEST, error)) from None
    if problems := tuple(_problems(manifest, draft, tensors)):
        raise Refused(*problems)
    metadata: dict[MetadataFile, bytes] = {
        MANIFEST: render(manifest),
        INDEX: render(draft.index),
        EXPECTED: render(draft.expected, drop_absent=True),
    }
    digests = {name: hashlib.sha256(content).hexdigest() for name, content in metadata.items()}
    try:
        record = _record(manifest, draft, digests)
        complete = Complete(ranks=(draft.rank,), expected_ranks=draft.expected_ranks, metadata=digests)
    except ValidationError as error:
        raise Refused(*problems_of(COMPLETE, error)) from None
    others = (
        *(File(name, content) for name, content in metadata.items()),
        *_terms(draft),
        json_file(rank_complete(draft.rank), record),
        json_file(COMPLETE, complete),
    )
    if too_long := tuple(_too_long(others)):
        raise Refused(*too_long)
    return RankFiles(tuple(File(payload_file(name), data) for name, data in payloads.items()), others, manifest, record)


def shard_of(record: RankComplete, rank: int) -> ShardComplete:
    """A rank's record as it lies beside the folders of several ranks."""
    return ShardComplete.model_validate({**record.model_dump(), "relpath": rank_folder(rank)})


def complete_file(shards: Mapping[int, ShardComplete]) -> File:
    """The final COMPLETE of several ranks."""
    by_name = {str(rank): shard for rank, shard in sorted(shards.items())}
    return json_file(COMPLETE, CohortComplete(ranks=tuple(sorted(shards)), shards=by_name))


def json_file(name: str, record: BaseModel) -> File:
    """A record as a file."""
    return File(name, render(record))


def _payloads(tensors: Mapping[str, Tensor]) -> tuple[dict[str, bytes], list[Problem]]:
    payloads: dict[str, bytes] = {}
    unfit: list[Problem] = []
    for name, tensor in tensors.items():
        try:
            payloads[name] = tensor_bytes(tensor, name)
        except NotATensorFile as error:
            unfit.append(Problem(f"payloads/{payload_file(name)}", "", str(error), _PAYLOAD))
    return payloads, unfit


def _payload(name: str, tensor: Tensor, data: bytes) -> Payload:
    return Payload(
        name=name,
        dtype=torch_dtype(tensor),
        shape=tuple(tensor.shape),
        bytes=len(data),
        sha256=hashlib.sha256(data).hexdigest(),
    )


def _problems(manifest: Manifest, draft: Draft, tensors: Mapping[str, Tensor]) -> Iterator[Problem]:
    if draft.rank not in draft.expected_ranks or len(set(draft.expected_ranks)) != len(draft.expected_ranks):
        what = f"rank {draft.rank} is not among them, once each"
        yield Problem(COMPLETE, "expected_ranks", what, "list every rank that writes")
    yield from check_place(draft.rank, draft.expected_ranks, draft.index)
    yield from check_metadata(manifest, draft.index, draft.expected)
    for name, tensor in tensors.items():
        yield from check_tensor(name, manifest.payloads[name], tensor)
    yield from check_terms(draft.index, draft.terms)
    yield from check_redacted(draft.redaction, draft.index, draft.producer)


def _record(manifest: Manifest, draft: Draft, digests: dict[MetadataFile, str]) -> RankComplete:
    identity = draft.index.identity
    return RankComplete(
        actor_step_id=identity.actor_step_id,
        rollout_id=identity.rollout_id,
        payloads={name: payload.sha256 for name, payload in manifest.payloads.items()},
        metadata=digests,
        expected_ranks=draft.expected_ranks,
    )


def _terms(draft: Draft) -> Iterator[File]:
    if not draft.terms:
        return
    try:
        yield File(TERMS, render_terms(draft.index, draft.rank, draft.terms))
    except ValidationError as error:
        raise Refused(*problems_of(TERMS, error)) from None


def _too_long(files: Sequence[File]) -> Iterator[Problem]:
    """What is longer than a reader takes."""
    for file in files:
        if len(file.content) > (limit := max_json_bytes(file.name)):
            what = f"{len(file.content):,} bytes, more than the {limit:,} that a reader takes"
            yield Problem(file.name, "", what, "write the step as several ranks")
