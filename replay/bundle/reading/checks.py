"""What must hold between the parts of a bundle: identity, membership, lengths, and that every stage it promises to be
recomputable has what it needs. Pure; the reader and the writer go through the same checks."""

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from math import prod

import numpy as np

from rollbook.replay.bundle.layout import rank_folder
from rollbook.replay.bundle.model import (
    EXPECTED,
    INDEX,
    MANIFEST,
    Capability,
    Expected,
    FormatVersion,
    Index,
    Manifest,
    Payload,
    Sample,
    StageContract,
    StageId,
)
from rollbook.replay.bundle.problems import CAPTURE_AGAIN, Problem
from rollbook.replay.bundle.reading.contextchecks import check_groups, check_layout, held_tokens
from rollbook.replay.bundle.tensorfile import TORCH_DTYPES, Tensor, torch_dtype
from rollbook.replay.stages.stage import Output
from rollbook.replay.stages.table import EXACT_FIELD_NAMES, ROLLOUT_LEVEL, STAGES, TOKEN_PAYLOADS
from rollbook.schemas.text import visible

_ID_LISTS = (
    "rollout_partition_ids",
    "consumer_batch_ids",
    "micro_batch_ids",
    "semantic_group_ids",
    "normalization_cohort_ids",
)


def check_metadata(manifest: Manifest, index: Index, expected: Expected) -> Iterator[Problem]:
    """Every contradiction within and between the three JSON files."""
    yield from _identity(manifest, index)
    yield from _version(manifest, index, expected)
    yield from _links(index)
    yield from _membership(index)
    yield from _measured(index)
    yield from check_layout(index)
    for position, sample in enumerate(index.samples):
        yield from _lengths(f"samples.{position}", sample)
    yield from _payload_table(manifest, index)
    yield from _policy(manifest)
    yield from _expected_lengths(expected, len(index.samples))
    for name, contract in manifest.stage_contracts.items():
        yield from _contract(name, contract, manifest, index, expected)


def check_tensor(name: str, payload: Payload, tensor: Tensor) -> Iterator[Problem]:
    """Every contradiction between a tensor and its entry in the manifest."""
    file = f"payloads/{name}.pt"
    if tuple(tensor.shape) != payload.shape:
        yield Problem(file, "shape", f"{list(tensor.shape)}, the manifest says {list(payload.shape)}", CAPTURE_AGAIN)
    if torch_dtype(tensor) != payload.dtype:
        yield Problem(
            file, "dtype", f"{torch_dtype(tensor)}, the manifest says {visible(payload.dtype)}", CAPTURE_AGAIN
        )
    if tensor.dtype.kind == "f" and not np.isfinite(tensor).all():
        at = int(np.flatnonzero(~np.isfinite(tensor).ravel())[0])
        what = f"{tensor.ravel()[at]} is not a finite number"
        yield Problem(file, f"[{at}]", what, "record finite values (write 0 where nothing was computed)")


def payload_shape(name: str, tokens: int) -> tuple[int, ...] | None:
    """The shape that a payload of this name has where a rank holds so many tokens; None for a name that no stage
    knows."""
    return (tokens,) if name in TOKEN_PAYLOADS else None


def _identity(manifest: Manifest, index: Index) -> Iterator[Problem]:
    if manifest.bundle_id != index.bundle_id:
        what = f"'{visible(index.bundle_id)}', but {MANIFEST} says '{visible(manifest.bundle_id)}'"
        yield Problem(INDEX, "bundle_id", what, "the files are of two bundles; capture the bundle again")
    identity = index.identity
    if (identity.actor_step_id is None) == (identity.rollout_id is None):
        what = "exactly one of actor_step_id and rollout_id must be set"
        yield Problem(INDEX, "identity", what, "set actor_step_id for a step, rollout_id for a rollout")
    for field in _ID_LISTS:
        for twice in _twice(getattr(identity, field)):
            yield Problem(INDEX, f"identity.{field}", f"'{visible(twice)}' twice", "list each id once")


def format_of(index: Index, expected: Expected) -> FormatVersion:
    """The oldest format that holds both."""
    return "1.1.0" if any(_added(index, expected)) else "1.0.0"


def _version(manifest: Manifest, index: Index, expected: Expected) -> Iterator[Problem]:
    if manifest.format_version == "1.0.0":
        for file, name in _added(index, expected):
            yield Problem(file, name, "unknown key in format 1.0.0", f"remove it, or set format_version in {MANIFEST}")


def _added(index: Index, expected: Expected) -> Iterator[tuple[str, str]]:
    """(file, key) of what format 1.1.0 adds."""
    yield from ((INDEX, name) for name in index.added())
    yield from ((EXPECTED, str(Expected.model_fields[name].alias)) for name in expected.added())


def _links(index: Index) -> Iterator[Problem]:
    """A step names its update and no steps, an update the other way round; neither names itself."""
    if (links := index.links) is None:
        return
    of_step = index.identity.actor_step_id is not None
    if of_step and links.step_bundles:
        yield Problem(INDEX, "links.step_bundles", "in the bundle of a step", "name steps in the update's bundle only")
    if not of_step and links.update_bundle is not None:
        yield Problem(INDEX, "links.update_bundle", "in the bundle of an update", "name it in the steps' bundles only")
    named = [step.bundle_id for step in links.step_bundles]
    for twice in _twice([*named, index.bundle_id, *([links.update_bundle] if links.update_bundle else [])]):
        yield Problem(INDEX, "links", f"'{visible(twice)}' twice, or the bundle itself", "name each other bundle once")
    for step in _twice(str(step.step_id) for step in links.step_bundles):
        yield Problem(INDEX, "links.step_bundles", f"step_id {step} twice", "name one bundle for each step")


def _membership(index: Index) -> Iterator[Problem]:
    for twice in _twice([*(one.sample_id for one in index.samples), *(one.sample_id for one in index.cohort or ())]):
        yield Problem(INDEX, "samples", f"sample_id '{visible(twice)}' twice", "give each sample an id of its own")
    recorded = {sample.micro_batch_id for sample in index.samples}
    if None in recorded and len(recorded) > 1:
        what = "a micro_batch_id for some samples only"
        yield Problem(INDEX, "samples", what, "record the micro-batch of every sample, or of none")
    listed, used = set(index.identity.micro_batch_ids), recorded - {None}
    for unlisted in sorted(str(name) for name in used - listed):
        what = f"micro_batch_id '{visible(unlisted)}' is not among identity.micro_batch_ids"
        yield Problem(INDEX, "samples", what, "list every micro-batch in the identity")
    for empty in sorted(listed - used):
        what = f"no sample belongs to '{visible(empty)}'"
        yield Problem(INDEX, "identity.micro_batch_ids", what, "list only micro-batches that have samples")
    grouped = {sample.group_index is None for sample in index.samples}
    if len(grouped) > 1:
        yield Problem(
            INDEX, "samples", "a group_index for some samples only", "record it for every sample, or for none"
        )


def _measured(index: Index) -> Iterator[Problem]:
    """Who is not measured is a sample, and has what one of its group has that is."""
    if index.unmeasured is None:
        return
    samples = {one.sample_id: one.group_index for one in index.samples}
    measured = samples | {one.sample_id: one.group_index for one in index.cohort or ()}
    for position, one in enumerate(index.unmeasured):
        field = f"unmeasured.{position}"
        if one.sample_id not in samples:
            what = f"'{visible(one.sample_id)}' is no sample of the bundle"
            yield Problem(INDEX, f"{field}.sample_id", what, "name samples of this bundle")
        measured.pop(one.sample_id, None)
    for twice in _twice(one.sample_id for one in index.unmeasured):
        yield Problem(INDEX, "unmeasured", f"'{visible(twice)}' twice", "name each sample once")
    for position, one in enumerate(index.unmeasured):
        if one.like is not None and measured.get(one.like, -1) != samples.get(one.sample_id):
            what = f"'{visible(one.like)}' is not measured itself, or of another group"
            yield Problem(INDEX, f"unmeasured.{position}.like", what, "name a sample or member of the same group")


def _lengths(field: str, sample: Sample) -> Iterator[Problem]:
    if len(sample.loss_mask) != sample.response_length:
        what = f"{len(sample.loss_mask)} entries for a response of {sample.response_length} tokens"
        yield Problem(INDEX, f"{field}.loss_mask", what, "write one 0 or 1 per response token")
    if sample.total_length < sample.response_length:
        what = f"{sample.total_length}, less than response_length {sample.response_length}"
        yield Problem(INDEX, f"{field}.total_length", what, "write prompt plus response length")


def _payload_table(manifest: Manifest, index: Index) -> Iterator[Problem]:
    tokens = held_tokens(index)
    for name, payload in manifest.payloads.items():
        field = f"payloads.{name}"
        if payload.name != name:
            what = f"'{visible(payload.name)}' under the key '{name}'"
            yield Problem(MANIFEST, f"{field}.name", what, "name a payload as its key")
        if payload.dtype not in TORCH_DTYPES or (name in TOKEN_PAYLOADS and payload.dtype != "torch.float32"):
            yield Problem(MANIFEST, f"{field}.dtype", f"'{visible(payload.dtype)}'", "record it as torch.float32")
        shape = payload_shape(name, tokens)
        if shape is not None and payload.shape != shape:
            held = "the index has" if index.context_parallel is None else "by its layout this rank holds"
            what = f"{list(payload.shape)}, but {held} {tokens} response tokens"
            yield Problem(MANIFEST, f"{field}.shape", what, CAPTURE_AGAIN)
        if prod(payload.shape) > payload.bytes:
            what = f"{list(payload.shape)} is more than {payload.bytes} bytes can hold"
            yield Problem(MANIFEST, f"{field}.shape", what, CAPTURE_AGAIN)


def _policy(manifest: Manifest) -> Iterator[Problem]:
    for name in manifest.comparison_policy.exact_fields:
        if name not in EXACT_FIELD_NAMES:
            what = f"'{visible(name)}' is not a field of any stage"
            yield Problem(
                MANIFEST, "comparison_policy.exact_fields", what, "name an output, a payload or a sample's field"
            )


def _expected_lengths(expected: Expected, samples: int) -> Iterator[Problem]:
    raw, processed = expected.reward_raw, expected.reward_post_process
    lists = (
        ("reward.raw.raw_rewards", raw.raw_rewards if raw else None),
        ("reward.post_process.rewards", processed.rewards if processed else None),
    )
    for field, values in lists:
        if values is not None and len(values) != samples:
            what = f"{len(values)} values for {samples} samples"
            yield Problem(EXPECTED, field, what, "record one value per sample, in index order")


def _contract(
    name: StageId, contract: StageContract, manifest: Manifest, index: Index, expected: Expected
) -> Iterator[Problem]:
    field = f"stage_contracts.{name}"
    stage = STAGES[name]
    if contract.stage != name:
        what = f"'{contract.stage}' under the key '{name}'"
        yield Problem(MANIFEST, f"{field}.stage", what, "name a contract's stage as its key")
    if index.identity.rollout_id is not None and name not in ROLLOUT_LEVEL:
        what = "a stage of an optimizer step in a bundle of a rollout"
        yield Problem(MANIFEST, field, what, "set identity.actor_step_id, or drop the contract")
    if contract.capability is not Capability.RECOMPUTE:
        return
    if (unknown := stage.unknown(index.config)) is not None:
        what = f"'{contract.capability}', but the stage is {unknown}"
        yield Problem(MANIFEST, f"{field}.capability", what, f"declare it {Capability.UNSUPPORTED}")
        return
    recorded = set(manifest.payloads)
    for payload in stage.payloads(index.config):
        if payload not in recorded:
            yield Problem(MANIFEST, f"payloads.{payload}", f"missing, stage {name} needs it", "record it")
    for output in stage.outputs:
        if not output.optional and not _is_recorded(output, manifest, expected):
            file, where = (MANIFEST, "payloads.") if output.payload else (EXPECTED, f"{name}.")
            what = f"missing, stage {name} has nothing to be compared with"
            yield Problem(file, f"{where}{output.field}", what, "record it, or declare the stage recorded-only")
    if stage.grouped:
        yield from _groups(index)


def _is_recorded(output: Output, manifest: Manifest, expected: Expected) -> bool:
    if output.payload is not None:
        return output.payload in manifest.payloads
    return output.expected is None or output.expected(expected) is not None


def _groups(index: Index) -> Iterator[Problem]:
    """A named convention says how it takes groups of any size."""
    any_size = index.config.conventions is not None and index.config.conventions.advantages is not None
    size = index.config.n_samples_per_prompt
    members = Counter(sample.group_index for sample in index.samples)
    members.update(one.group_index for one in index.cohort or ())
    if None in members:  # what is in no group is missing in one, and no size is what it seems
        what = "no group_index, reward.post_process normalises by group"
        yield Problem(INDEX, "samples", what, "record the semantic group of every sample")
        return
    for group, count in members.items():
        if count != size and not any_size:
            what = f"group {group} has {count} samples, config.n_samples_per_prompt is {size}"
            yield Problem(INDEX, "samples", what, "record whole groups")


def check_digests(payloads: Mapping[str, str], manifest: Manifest, file: str) -> Iterator[Problem]:
    """A completion record's payload digests are those of the manifest, no more and no fewer."""
    stated = {name: payload.sha256 for name, payload in manifest.payloads.items()}
    for name in sorted(stated.keys() ^ payloads.keys()):
        where = "only there" if name in payloads else f"only in {MANIFEST}"
        yield Problem(file, f"payloads.{name}", where, CAPTURE_AGAIN)
    for name in sorted(stated.keys() & payloads.keys()):
        if stated[name] != payloads[name]:
            yield Problem(file, f"payloads.{name}", f"not the checksum in {MANIFEST}", CAPTURE_AGAIN)


def check_agreement(indexes: Mapping[int, Index]) -> Iterator[Problem]:
    """Every contradiction between the ranks of one step."""
    (lowest, first), *others = sorted(indexes.items(), key=lambda found: found[0])
    for rank, index in others:
        file = f"{rank_folder(rank)}/{INDEX}"
        pairs = (
            ("bundle_id", first.bundle_id, index.bundle_id),
            ("identity.actor_step_id", first.identity.actor_step_id, index.identity.actor_step_id),
            ("identity.rollout_id", first.identity.rollout_id, index.identity.rollout_id),
            ("identity.rank", first.identity.rank, index.identity.rank),
            ("config", first.config, index.config),
            ("links", first.links, index.links),
        )
        for field, ours, theirs in pairs:
            if ours != theirs:
                yield Problem(file, field, f"not the one of {rank_folder(lowest)}", CAPTURE_AGAIN)
    yield from check_groups(indexes)
    yield from _one_reward(indexes)


def _one_reward(indexes: Mapping[int, Index]) -> Iterator[Problem]:
    """A member that several ranks name, as consumed or not, has one raw reward."""
    if all(index.cohort is None for index in indexes.values()):
        return
    seen: dict[str, tuple[int, float]] = {}
    for rank, index in sorted(indexes.items()):
        consumed = (("samples", one.sample_id, one.raw_reward) for one in index.samples)
        others = (("cohort", one.sample_id, one.raw_reward) for one in index.cohort or ())
        for field, sample_id, raw_reward in (*consumed, *others):
            first, reward = seen.setdefault(sample_id, (rank, raw_reward))
            if reward != raw_reward:
                what = f"raw_reward of '{visible(sample_id)}' is not the one of {rank_folder(first)}"
                yield Problem(f"{rank_folder(rank)}/{INDEX}", field, what, CAPTURE_AGAIN)
                break


def _twice(ids: Iterable[str]) -> list[str]:
    return [name for name, count in Counter(ids).items() if count > 1]
