"""Context-parallel shards put together again: from the ranks of a group one bundle, as a trainer without context
parallelism would have written it, so that replay needs to know nothing of how tokens were dealt out.

Pure. What must hold between the indexes is contextchecks.py's; here are the numbers.
"""

from collections.abc import Iterator, Mapping, Sequence

import numpy as np
from numpy.typing import NDArray
from pydantic import ValidationError

from rollbook.replay.bundle.bundle import Bundle
from rollbook.replay.bundle.contextparallel import ContextParallel, Scalars, held_spans
from rollbook.replay.bundle.convention import ValueLoss
from rollbook.replay.bundle.layout import rank_folder
from rollbook.replay.bundle.model import EXPECTED, MANIFEST, Expected, Index, PolicyLoss
from rollbook.replay.bundle.problems import CAPTURE_AGAIN, Problem, Refused, problems_of
from rollbook.replay.bundle.reading.checks import format_of
from rollbook.replay.bundle.reading.contextchecks import lengths_of
from rollbook.replay.bundle.tensorfile import Tensor
from rollbook.replay.bundle.terms import TERMS

_SAME_PARTS = ("stage_contracts", "comparison_policy", "redaction")


def reassembled(bundles: Sequence[Bundle]) -> tuple[Bundle, ...]:
    """The bundles of a step with each context-parallel group as one, under its lowest rank; others as they are. Raises
    `Refused`. `check_groups` has found nothing."""
    groups: dict[tuple[int, ...], list[Bundle]] = {}
    for bundle in bundles:
        layout = bundle.index.context_parallel
        groups.setdefault((bundle.rank,) if layout is None else layout.ranks, []).append(bundle)
    if all(len(shards) == 1 for shards in groups.values()):
        return tuple(bundles)
    if problems := tuple(problem for shards in groups.values() for problem in _contradictions(shards)):
        raise Refused(*problems)
    ranks = tuple(sorted(min(shard.rank for shard in shards) for shards in groups.values()))
    whole = (_whole(sorted(shards, key=lambda shard: shard.rank), ranks) for shards in groups.values())
    return tuple(sorted(whole, key=lambda bundle: bundle.rank))


def _contradictions(shards: Sequence[Bundle]) -> Iterator[Problem]:
    first, *others = shards
    for shard in others:
        folder, against = rank_folder(shard.rank), f"not the one of {rank_folder(first.rank)}"
        for part in _SAME_PARTS:
            if getattr(shard.manifest, part) != getattr(first.manifest, part):
                yield Problem(f"{folder}/{MANIFEST}", part, against, CAPTURE_AGAIN)
        for name in sorted(shard.tensors.keys() ^ first.tensors.keys()):
            what = f"not in all shards of the group (against {rank_folder(first.rank)})"
            yield Problem(f"{folder}/{MANIFEST}", f"payloads.{name}", what, "record the same payloads in all of them")
        for name in sorted(shard.terms.keys() ^ first.terms.keys()):
            what = f"not in all shards of the group (against {rank_folder(first.rank)})"
            yield Problem(f"{folder}/{TERMS}", name, what, "record the same terms in all of them")
        for field, ours, theirs in _of_whole_samples(first, shard):
            if ours != theirs:
                yield Problem(f"{folder}/{EXPECTED}", field, against, _remedy(field))


def _of_whole_samples(first: Bundle, shard: Bundle) -> Iterator[tuple[str, object, object]]:
    """What every shard says of whole samples: (field, of the first, of the other)."""
    ours, theirs = first.expected, shard.expected
    yield "reward.raw", ours.reward_raw, theirs.reward_raw
    yield "reward.post_process", ours.reward_post_process, theirs.reward_post_process
    if _layout(first).scalars is Scalars.WHOLE:
        yield "loss.policy", ours.loss_policy, theirs.loss_policy
        yield "loss.value", ours.loss_value, theirs.loss_value
        yield "terms", _lists(first.terms), _lists(shard.terms)
    else:
        yield "loss.policy", ours.loss_policy is None, theirs.loss_policy is None
        yield "loss.value", _recorded(ours.loss_value), _recorded(theirs.loss_value)


def _remedy(field: str) -> str:
    if field in ("loss.policy", "loss.value", "terms"):
        return "reduce it over the group before it is recorded, or set context_parallel.scalars to share"
    return CAPTURE_AGAIN


def _whole(shards: Sequence[Bundle], ranks: tuple[int, ...]) -> Bundle:
    first = shards[0]
    if first.index.context_parallel is None:
        return first
    index = _whole_index(first.index)
    expected = _whole_expected(shards)
    manifest = first.manifest.model_copy(update={"format_version": format_of(index, expected), "payloads": {}})
    return Bundle(
        path=first.path,
        rank=first.rank,
        expected_ranks=ranks,
        manifest=manifest,  # whose payloads are files, and of these whole tensors there are none
        index=index,
        expected=expected,
        tensors=_whole_tensors(shards),
        terms=_whole_terms(shards),
    )


def _whole_index(index: Index) -> Index:
    world = index.identity.rank.model_copy(update={"cp": 1})
    identity = index.identity.model_copy(update={"rank": world})
    return index.model_copy(update={"identity": identity, "context_parallel": None})


def _whole_tensors(shards: Sequence[Bundle]) -> dict[str, Tensor]:
    lengths = lengths_of(shards[0].index)
    tokens = sum(response for _, response in lengths)
    found = {name: np.empty(tokens, tensor.dtype) for name, tensor in shards[0].tensors.items()}
    for shard in shards:
        places = _places(_layout(shard), lengths)
        for name, tensor in shard.tensors.items():
            if tensor.shape != places.shape:
                raise Refused(_not_of_tokens(shard, name))
            found[name][places] = tensor
    return found


def _not_of_tokens(shard: Bundle, name: str) -> Problem:
    what = "one value for each token that the shard holds is all that can be put together"
    return Problem(f"{rank_folder(shard.rank)}/{MANIFEST}", f"payloads.{name}", what, "record it without that payload")


def _places(layout: ContextParallel, lengths: Sequence[tuple[int, int]]) -> NDArray[np.int64]:
    """Where a shard's values lie in a tensor of all response tokens."""
    starts: list[int] = []
    sizes: list[int] = []
    at = 0
    for (_, response), spans in zip(lengths, held_spans(layout, lengths), strict=True):
        starts += (at + start for start, _ in spans)
        sizes += (end - start for start, end in spans)
        at += response
    counts = np.asarray(sizes, np.int64)
    moved = np.asarray(starts, np.int64) - (np.cumsum(counts) - counts)
    places: NDArray[np.int64] = np.arange(int(counts.sum()), dtype=np.int64) + np.repeat(moved, counts)
    return places


def _whole_expected(shards: Sequence[Bundle]) -> Expected:
    first = shards[0].expected
    if _layout(shards[0]).scalars is Scalars.WHOLE:
        return first
    policy = [shard.expected.loss_policy for shard in shards]
    value = [shard.expected.loss_value for shard in shards]
    try:
        return first.model_copy(
            update={
                "loss_policy": None if first.loss_policy is None else PolicyLoss(**_sums(policy)),
                "loss_value": None if first.loss_value is None else ValueLoss(**_sums(value)),
            }
        )
    except ValidationError as error:  # what is finite in each may overflow together
        raise Refused(*problems_of(f"{rank_folder(shards[0].rank)}/{EXPECTED}", error)) from None


def _sums(losses: Sequence[PolicyLoss | ValueLoss | None]) -> dict[str, float]:
    return {name: sum(getattr(loss, name) for loss in losses) for name in _recorded(losses[0])}


def _recorded(loss: PolicyLoss | ValueLoss | None) -> tuple[str, ...]:
    """The scalars that are there."""
    return () if loss is None else tuple(loss.model_dump(exclude_none=True))


def _whole_terms(shards: Sequence[Bundle]) -> Mapping[str, Tensor]:
    if _layout(shards[0]).scalars is Scalars.WHOLE:
        return shards[0].terms
    with np.errstate(over="ignore"):
        sums = {name: np.sum([shard.terms[name] for shard in shards], axis=0) for name in shards[0].terms}
    for name, values in sums.items():
        if not np.isfinite(values).all():
            what = "more than a number can hold when it is added up over the group"
            raise Refused(Problem(f"{rank_folder(shards[0].rank)}/{TERMS}", name, what, CAPTURE_AGAIN))
    return sums


def _lists(terms: Mapping[str, Tensor]) -> dict[str, list[float]]:
    return {name: values.tolist() for name, values in terms.items()}


def _layout(shard: Bundle) -> ContextParallel:
    assert shard.index.context_parallel is not None, "only shards of a group are put together"
    return shard.index.context_parallel
