"""What must hold of context-parallel shards: of one by itself, and between those of a group, so that every response
token is in exactly one of them. Pure; reader and writer go through the same checks."""

from collections.abc import Iterator, Mapping, Sequence

from rollbook.replay.bundle.contextparallel import ContextParallel, HeldBy, held_spans
from rollbook.replay.bundle.layout import rank_folder
from rollbook.replay.bundle.model import INDEX, Index
from rollbook.replay.bundle.problems import CAPTURE_AGAIN, Problem

_FIELD = "context_parallel"


def held_tokens(index: Index) -> int:
    """How many values a token payload has: all response tokens, or of a shard those that it holds. What a layout that
    does not fit holds is told nowhere, so it bounds nothing below all of them."""
    if index.context_parallel is None or any(check_layout(index)):
        return sum(len(sample.loss_mask) for sample in index.samples)
    spans = held_spans(index.context_parallel, lengths_of(index))
    return sum(end - start for sample in spans for start, end in sample)


def lengths_of(index: Index) -> list[tuple[int, int]]:
    """(total_length, response_length) of each sample."""
    return [(sample.total_length, sample.response_length) for sample in index.samples]


def check_layout(index: Index) -> Iterator[Problem]:
    """Every contradiction between a shard's layout and its own index."""
    if (layout := index.context_parallel) is None:
        return
    if index.identity.rank.cp != len(layout.ranks):
        what = f"{len(layout.ranks)} ranks, but identity.rank.cp is {index.identity.rank.cp}"
        yield Problem(INDEX, f"{_FIELD}.ranks", what, "list the ranks of this context-parallel group, in its order")
    if len(set(layout.ranks)) != len(layout.ranks):
        yield Problem(INDEX, f"{_FIELD}.ranks", "a rank twice", "list each rank of the group once")
    if layout.cp_rank >= len(layout.ranks):
        what = f"{layout.cp_rank}, of {len(layout.ranks)} ranks"
        yield Problem(INDEX, f"{_FIELD}.cp_rank", what, "write this rank's place in the group, from 0")
    yield from _sequences(layout, index)


def check_place(rank: int, expected_ranks: Sequence[int], index: Index) -> Iterator[Problem]:
    """A shard is of the rank that its layout says, and its whole group writes this bundle."""
    if (layout := index.context_parallel) is None:
        return
    if layout.cp_rank < len(layout.ranks) and layout.ranks[layout.cp_rank] != rank:
        what = f"{layout.cp_rank} is rank {layout.ranks[layout.cp_rank]}'s place, and this is rank {rank}"
        yield Problem(INDEX, f"{_FIELD}.cp_rank", what, "write this rank's own place in the group")
    if strangers := sorted(set(layout.ranks) - set(expected_ranks)):
        what = f"rank {strangers[0]} is not among the expected ranks"
        yield Problem(INDEX, f"{_FIELD}.ranks", what, "every rank of the group writes a share of the bundle")


def check_groups(indexes: Mapping[int, Index]) -> Iterator[Problem]:
    """Every contradiction between the shards of the groups of a bundle, by rank."""
    lowest: dict[tuple[int, ...], int] = {}
    member: dict[int, tuple[int, ...]] = {}
    recorded = any(index.context_parallel is not None for index in indexes.values())
    for rank, index in sorted(indexes.items()):
        file = f"{rank_folder(rank)}/{INDEX}"
        if (layout := index.context_parallel) is None:
            if recorded:
                yield Problem(file, _FIELD, "missing, other ranks have it", "record the layout in every rank")
            continue
        for one in layout.ranks:
            if member.setdefault(one, layout.ranks) != layout.ranks:
                what = f"rank {one} is of another group in another rank's list"
                yield Problem(file, f"{_FIELD}.ranks", what, "list the same group in all of its ranks")
        if missing := sorted(set(layout.ranks) - set(indexes)):
            what = f"the shard of rank {missing[0]} is missing: its tokens are in no other"
            yield Problem(file, f"{_FIELD}.ranks", what, CAPTURE_AGAIN)
        if rank != (first := lowest.setdefault(layout.ranks, rank)):
            yield from _same(first, indexes[first], rank, index)


def _sequences(layout: ContextParallel, index: Index) -> Iterator[Problem]:
    counts, samples = layout.sequences, index.samples
    if len(counts) != len(layout.padded_lengths) or sum(counts) != len(samples):
        field = "packed" if layout.packed else "padded_lengths"
        what = f"{len(layout.padded_lengths)} sequences of {sum(counts)} samples, the index has {len(samples)}"
        yield Problem(INDEX, f"{_FIELD}.{field}", what, "give every sequence its padded length and its samples")
        return
    at = 0
    for number, (count, padded) in enumerate(zip(counts, layout.padded_lengths, strict=True)):
        tokens = sum(sample.total_length for sample in samples[at : at + count])
        at += count
        if padded < tokens:
            what = f"{padded}, but its samples have {tokens} tokens"
            yield Problem(INDEX, f"{_FIELD}.padded_lengths.{number}", what, "write prompts, responses and padding")
        if padded % layout.chunks:
            what = f"{padded} is no multiple of the {layout.chunks} chunks"
            yield Problem(INDEX, f"{_FIELD}.padded_lengths.{number}", what, "write the length that was cut into chunks")
    if layout.held_by is HeldBy.PREDICTOR:
        for position, sample in enumerate(samples):
            if 0 < sample.response_length == sample.total_length:
                what = "no prompt, so nothing predicts its first token"
                yield Problem(INDEX, f"samples.{position}", what, f"set {_FIELD}.held_by to token, or write the prompt")


def _same(first: int, ours: Index, rank: int, theirs: Index) -> Iterator[Problem]:
    """Two shards of one group differ in nothing but their place."""
    file = f"{rank_folder(rank)}/{INDEX}"
    assert ours.context_parallel is not None
    assert theirs.context_parallel is not None
    for field in ContextParallel.model_fields:
        same = getattr(ours.context_parallel, field) == getattr(theirs.context_parallel, field)
        if field == "cp_rank" and same:
            what = f"that of {rank_folder(first)}, too: its tokens are there twice"
            yield Problem(file, f"{_FIELD}.{field}", what, "give every rank its own place in the group")
        elif field != "cp_rank" and not same:
            yield Problem(file, f"{_FIELD}.{field}", f"not the one of {rank_folder(first)}", CAPTURE_AGAIN)
    for field in ("identity", "samples", "cohort", "unmeasured"):
        if getattr(ours, field) != getattr(theirs, field):
            what = f"not those of {rank_folder(first)}, and both hold a share of the same samples"
            yield Problem(file, field, what, "write whole samples, the same in all ranks of the group")
