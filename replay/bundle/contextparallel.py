"""What format 1.1.0 adds of context parallelism: which response tokens of each sample a rank's payloads hold.

The ranks of one context-parallel group train on the same samples, each on a share of every sequence. A sequence is a
sample's prompt and response (or those of several samples, packed one behind the other), padded to a multiple of the
number of chunks, cut into chunks of one size, and dealt out: `contiguous`, a chunk a rank; or `zigzag`, two chunks a
rank, the first with the last, the second with the last but one, which is what balances causal attention.
"""

from collections.abc import Iterator, Sequence
from enum import StrEnum
from itertools import accumulate
from math import lcm
from typing import Annotated

from pydantic import Field, ValidationError

from rollbook.replay.bundle.arrays import ArrayLike, integers
from rollbook.replay.bundle.convention import Part
from rollbook.schemas.errors import BadInput
from rollbook.schemas.text import visible
from rollbook.schemas.wording import worded

_Rank = Annotated[int, Field(ge=0, lt=2**20)]
_Size = Annotated[int, Field(ge=1, lt=2**48)]
_MAX_RANKS = 4096


class Order(StrEnum):
    """How the chunks of a sequence are dealt out to the ranks."""

    CONTIGUOUS = "contiguous"
    ZIGZAG = "zigzag"


class HeldBy(StrEnum):
    """Which rank has the values of a token: the one with its own position, or the one with the position before it,
    whose logits predict it (what trainers have that compute log-probs from their share of the logits)."""

    TOKEN = "token"
    PREDICTOR = "predictor"


class Scalars(StrEnum):
    """What the scalars of the loss and the samples' terms cover: whole samples, the same in all ranks of the group; or
    the rank's share of the tokens, to be added up over the group."""

    WHOLE = "whole"
    SHARE = "share"


class ContextParallel(Part):
    """`ranks`: the group, in the order of its context-parallel ranks; `cp_rank`: this one's place in it.
    `padded_lengths`: of each sequence, in tokens; `packed`: how many samples each has, empty where every sample is a
    sequence of its own."""

    ranks: Annotated[tuple[_Rank, ...], Field(strict=False, fail_fast=True, min_length=2, max_length=_MAX_RANKS)]
    cp_rank: _Rank
    order: Annotated[Order, Field(strict=False)]
    held_by: Annotated[HeldBy, Field(strict=False)]
    padded_lengths: Annotated[tuple[_Size, ...], Field(strict=False, fail_fast=True, min_length=1)]
    packed: Annotated[tuple[_Size, ...], Field(strict=False, fail_fast=True)] = ()
    scalars: Annotated[Scalars, Field(strict=False)] = Scalars.WHOLE

    @property
    def chunks(self) -> int:
        """How many a sequence is cut into."""
        return len(self.ranks) * (2 if self.order is Order.ZIGZAG else 1)

    @property
    def own_chunks(self) -> tuple[int, ...]:
        """Those of this rank, in the order of the sequence, which is that of its payloads."""
        if self.order is Order.CONTIGUOUS:
            return (self.cp_rank,)
        return (self.cp_rank, self.chunks - 1 - self.cp_rank)

    @property
    def sequences(self) -> tuple[int, ...]:
        """How many samples each sequence has."""
        return self.packed or (1,) * len(self.padded_lengths)


Lengths = tuple[int, int]
"""(total_length, response_length) of a sample, in tokens."""
Span = tuple[int, int]


def held_spans(layout: ContextParallel, lengths: Sequence[Lengths]) -> Iterator[tuple[Span, ...]]:
    """For each sample the response tokens that this rank holds, as half-open ranges within the response, ascending;
    some are empty. The layout must fit the samples (contextchecks.py)."""
    at = 0
    for samples, padded in zip(layout.sequences, layout.padded_lengths, strict=True):
        size = padded // layout.chunks
        offset = 0
        for total, response in lengths[at : at + samples]:
            first = offset + total - response - (layout.held_by is HeldBy.PREDICTOR)
            ends = ((chunk * size - first, (chunk + 1) * size - first) for chunk in layout.own_chunks)
            yield tuple((min(max(start, 0), response), min(max(end, 0), response)) for start, end in ends)
            offset += total
        at += samples


def context_parallel(
    order: Order,
    *,
    ranks: Sequence[int],
    rank: int,
    total_lengths: ArrayLike,
    pad_to_multiple_of: int = 1,
    packed: Sequence[int] = (),
    held_by: HeldBy = HeldBy.PREDICTOR,
    scalars: Scalars = Scalars.WHOLE,
) -> ContextParallel:
    """The layout of a trainer that pads each sequence to the next multiple of the number of chunks, and of
    `pad_to_multiple_of` beside it. Raises `BadInput`."""
    group, totals = tuple(ranks), _totals(total_lengths)
    counts = tuple(packed) or (1,) * len(totals)
    if rank not in group:
        raise BadInput(f"context_parallel: rank {rank} is not among the ranks of its group: give the whole group")
    if order not in tuple(Order):
        raise BadInput(f"context_parallel: order '{visible(str(order), 60)}' is not known: give one of Order")
    if pad_to_multiple_of < 1:
        raise BadInput(f"context_parallel: pad_to_multiple_of is {pad_to_multiple_of}: give 1 or more")
    if min(counts, default=0) < 1 or sum(counts) != len(totals):
        raise BadInput(
            f"context_parallel: packed has {sum(counts)} samples, total_lengths {len(totals)}: give every sequence one "
            "or more samples, and each sample once"
        )
    multiple = lcm(len(group) * (2 if Order(order) is Order.ZIGZAG else 1), pad_to_multiple_of)
    ends = list(accumulate(counts))
    padded = (
        -(-sum(totals[end - count : end]) // multiple) * multiple for count, end in zip(counts, ends, strict=True)
    )
    try:
        return ContextParallel(
            ranks=group,
            cp_rank=group.index(rank),
            order=Order(order),
            held_by=held_by,
            padded_lengths=tuple(padded),
            packed=tuple(packed),
            scalars=scalars,
        )
    except ValidationError as error:
        first = error.errors(include_input=False)[0]
        field = ".".join(map(str, first["loc"]))
        raise BadInput(f"context_parallel: {field}: {worded(first)}: correct what it is made of") from None


def _totals(total_lengths: ArrayLike) -> list[int]:
    try:
        return integers(total_lengths)
    except (ValueError, TypeError, OverflowError):
        raise BadInput("context_parallel: total_lengths are no whole numbers: give tokens of each sample") from None
