"""Reading a bundle: nothing outside it, nothing unbounded, nothing unchecked.

One pass finds every problem; `read_bundle` refuses with them, `validate` lists them. Steps, each only when the one
before it holds: 1. COMPLETE and COMPLETE.<rank> exist and agree; 2. the three JSON files are those that COMPLETE
hashed; 3. they are well-formed and agree with one another; 4. each payload is the file that was hashed, a plain tensor,
finite, and as long as the index says; and so are our own terms, where they lie there.
"""

import hashlib
from collections.abc import Iterator
from dataclasses import dataclass
from itertools import islice
from math import prod

from rollbook.replay.bundle.bundle import Bundle
from rollbook.replay.bundle.folder import Folder
from rollbook.replay.bundle.layout import (
    MAX_PAYLOAD_OVERHEAD_BYTES,
    PAYLOADS,
    max_json_bytes,
    payload_file,
    rank_complete,
    strange_completes,
)
from rollbook.replay.bundle.model import (
    COMPLETE,
    EXPECTED,
    INDEX,
    MANIFEST,
    Complete,
    Expected,
    Index,
    Manifest,
    MetadataFile,
    Payload,
    RankComplete,
)
from rollbook.replay.bundle.problems import CAPTURE_AGAIN, Problem, Refused
from rollbook.replay.bundle.reading.checks import check_digests, check_metadata, check_tensor, payload_shape
from rollbook.replay.bundle.reading.contextchecks import check_place, held_tokens
from rollbook.replay.bundle.strictjson import parse
from rollbook.replay.bundle.tensorfile import Tensor, parse_tensor
from rollbook.replay.bundle.terms import read_terms
from rollbook.replay.bundle.torchzip import NotATensorFile

_METADATA: tuple[MetadataFile, ...] = (MANIFEST, INDEX, EXPECTED)
_WIDEST_ELEMENT_BYTES = 8
# A payload that no stage knows is carried, not used; it too is bounded by the tokens and samples of the bundle.
_MAX_UNKNOWN_VALUES_PER_ROW = 16
MAX_PROBLEMS = 1000
"""That are told of one bundle."""


@dataclass(frozen=True, slots=True)
class Seal:
    """The completion records of one rank: who wrote, and what the files hash to."""

    rank: int
    expected_ranks: tuple[int, ...]
    record: RankComplete


@dataclass(frozen=True, slots=True)
class Metadata:
    """The three JSON files."""

    manifest: Manifest
    index: Index
    expected: Expected


@dataclass(frozen=True, slots=True)
class Loaded:
    """What one pass over a rank's folder found; `bundle` and `seal` are there when `problems` is empty."""

    bundle: Bundle | None
    seal: Seal | None
    problems: tuple[Problem, ...]


def load(folder: Folder) -> Loaded:
    """Read one rank's bundle and everything that is wrong with it."""
    seal: Seal | None = None
    problems: list[Problem] = []
    try:
        seal = _read_seal(folder)
        metadata = _read_metadata(folder, seal.record)
        found = check_metadata(metadata.manifest, metadata.index, metadata.expected)
        problems += islice(found, MAX_PROBLEMS)
        problems += _check_seal(seal, metadata)
        problems += check_place(seal.rank, seal.expected_ranks, metadata.index)
        tensors = _read_payloads(folder, metadata, problems)
        terms = read_terms(folder, metadata.index, seal.rank)
    except Refused as refused:
        return Loaded(None, seal, (*problems, *refused.problems))
    if problems:
        return Loaded(None, seal, tuple(problems))
    bundle = Bundle(
        path=folder.path,
        rank=seal.rank,
        expected_ranks=seal.expected_ranks,
        manifest=metadata.manifest,
        index=metadata.index,
        expected=metadata.expected,
        tensors=tensors,
        terms=terms,
    )
    return Loaded(bundle, seal, ())


def read_json_files(folder: Folder) -> Metadata:
    """The three JSON files, whether or not the bundle is complete; raises `Refused`."""
    manifest = parse(MANIFEST, folder.read(MANIFEST, max_json_bytes(MANIFEST)), Manifest)
    index = parse(INDEX, folder.read(INDEX, max_json_bytes(INDEX)), Index)
    return Metadata(manifest, index, parse(EXPECTED, folder.read(EXPECTED, max_json_bytes(EXPECTED)), Expected))


def _read_seal(folder: Folder) -> Seal:
    names = folder.names()
    if COMPLETE not in names:
        remedy = "its writer has not finished or died; capture the bundle again (rollbook inspect shows what is there)"
        raise Refused(Problem(COMPLETE, "", "missing", remedy))
    complete = parse(COMPLETE, folder.read(COMPLETE, max_json_bytes(COMPLETE)), Complete)
    rank = complete.ranks[0]
    file = rank_complete(rank)
    record = parse(file, folder.read(file, max_json_bytes(file)), RankComplete)
    if strange := strange_completes(names, rank):
        raise Refused(Problem(strange[0], "", f"in the folder of rank {rank}: two writers met here", CAPTURE_AGAIN))
    if rank not in complete.expected_ranks or len(set(complete.expected_ranks)) != len(complete.expected_ranks):
        raise Refused(Problem(COMPLETE, "expected_ranks", f"not a list of ranks with {rank} in it", CAPTURE_AGAIN))
    if record.metadata != complete.metadata:
        raise Refused(Problem(file, "metadata", f"not the checksums in {COMPLETE}", CAPTURE_AGAIN))
    if record.expected_ranks != complete.expected_ranks:
        raise Refused(Problem(file, "expected_ranks", f"not those in {COMPLETE}", CAPTURE_AGAIN))
    return Seal(rank, complete.expected_ranks, record)


def _read_metadata(folder: Folder, record: RankComplete) -> Metadata:
    contents: list[bytes] = []
    problems: list[Problem] = []
    for file in _METADATA:
        data = folder.read(file, max_json_bytes(file))
        if hashlib.sha256(data).hexdigest() != record.metadata[file]:
            what = f"its checksum is not the one in {COMPLETE}: changed after it was written, or of another bundle"
            problems.append(Problem(file, "", what, CAPTURE_AGAIN))
        contents.append(data)
    if problems:
        raise Refused(*problems)
    manifest, index, expected = contents
    return Metadata(
        parse(MANIFEST, manifest, Manifest), parse(INDEX, index, Index), parse(EXPECTED, expected, Expected)
    )


def _check_seal(seal: Seal, metadata: Metadata) -> Iterator[Problem]:
    file, identity = rank_complete(seal.rank), metadata.index.identity
    for field in ("actor_step_id", "rollout_id"):
        if getattr(seal.record, field) != getattr(identity, field):
            yield Problem(file, field, f"not the one in {INDEX}", CAPTURE_AGAIN)
    yield from check_digests(seal.record.payloads, metadata.manifest, file)


def _read_payloads(folder: Folder, metadata: Metadata, problems: list[Problem]) -> dict[str, Tensor]:
    manifest = metadata.manifest
    tensors: dict[str, Tensor] = {}
    if not manifest.payloads and PAYLOADS not in folder.names():
        return tensors
    bounds = _Bounds.of(metadata.index)
    with folder.subfolder(PAYLOADS) as payloads:
        listed = {payload_file(name) for name in manifest.payloads}
        for stray in sorted(set(payloads.names()) - listed)[:MAX_PROBLEMS]:
            what = f"not listed in {MANIFEST}"
            problems.append(Problem(f"{PAYLOADS}/{stray}", "", what, "two writers met here; capture the bundle again"))
        unknown_bytes = 0
        for name, payload in manifest.payloads.items():
            limit = bounds.max_bytes(name)
            if payload_shape(name, bounds.tokens) is None:
                limit = max(0, limit - unknown_bytes)
                unknown_bytes += payload.bytes
            try:
                tensor = _read_tensor(payloads, name, payload, limit)
            except Refused as refused:
                problems += refused.problems
                continue
            problems += check_tensor(name, payload, tensor)
            tensors[name] = tensor
    return tensors


@dataclass(frozen=True, slots=True)
class _Bounds:
    """What a payload can need in a bundle, whatever its manifest says; those that no stage knows share what one of them
    may have."""

    tokens: int
    rows: int

    @classmethod
    def of(cls, index: Index) -> "_Bounds":
        return cls(held_tokens(index), sum(len(sample.loss_mask) + 1 for sample in index.samples))

    def max_bytes(self, name: str) -> int:
        shape = payload_shape(name, self.tokens)
        elements = prod(shape) if shape is not None else self.rows * _MAX_UNKNOWN_VALUES_PER_ROW
        return elements * _WIDEST_ELEMENT_BYTES + MAX_PAYLOAD_OVERHEAD_BYTES


def _read_tensor(payloads: Folder, name: str, payload: Payload, limit: int) -> Tensor:
    file = f"{PAYLOADS}/{payload_file(name)}"
    data = payloads.read(payload_file(name), limit)
    if len(data) != payload.bytes:
        what = f"{len(data):,} bytes, {MANIFEST} says {payload.bytes:,}"
        truncated = " (truncated)" if len(data) < payload.bytes else ""
        raise Refused(Problem(file, "", f"{what}{truncated}", CAPTURE_AGAIN))
    if hashlib.sha256(data).hexdigest() != payload.sha256:
        what = f"checksum of `{name}` is not the one in {MANIFEST}: damaged or changed after it was written"
        raise Refused(Problem(file, "", what, CAPTURE_AGAIN))
    try:
        return parse_tensor(data)
    except NotATensorFile as error:
        raise Refused(Problem(file, "", str(error), CAPTURE_AGAIN)) from None
