"""The arrays behind trajectories, held against the digests in their `Generated`."""

from collections.abc import Iterator, Sequence

import numpy as np

from rollbook.replay.history.source import LogSource
from rollbook.replay.materialize.evidence import SegmentEvidence
from rollbook.replay.materialize.facts import Fact
from rollbook.replay.materialize.payloads import PayloadBytes, read_payloads
from rollbook.replay.materialize.provenance import UsedPayload
from rollbook.replay.materialize.report import CannotWrite, NotWritten
from rollbook.schemas.codec import ContractViolation, UndecodableRecord, decode_as
from rollbook.schemas.digests import evidence_digest, floats_of, ints_of, mask_of, tokens_digest
from rollbook.schemas.records.payload import SegmentPayload
from rollbook.schemas.records.rollout import Generated, Origin, Segment

_AT_ONCE = 256
"""How many payloads are held undecoded at a time."""


def read_segments(log: LogSource, facts: Sequence[Fact[Generated]]) -> dict[str, tuple[SegmentEvidence, ...]]:
    """The segments of each trajectory, by its id. Raises CannotWrite."""
    wanted = [
        (fact, index, segment)
        for fact in facts
        for index, segment in enumerate(fact.record.segments)
        if segment.payload is not None
    ]
    read: dict[tuple[str, int], SegmentEvidence] = {}
    for at in range(0, len(wanted), _AT_ONCE):
        part = wanted[at : at + _AT_ONCE]
        refs = [segment.payload for _, _, segment in part if segment.payload is not None]
        for (fact, index, segment), payload in zip(part, read_payloads(log, refs), strict=True):
            read[_id(fact), index] = _verified(fact, index, segment, payload)
    return {
        _id(fact): tuple(
            read.get((_id(fact), index)) or _spans_only(fact, segment)
            for index, segment in enumerate(fact.record.segments)
        )
        for fact in facts
    }


def _id(fact: Fact[Generated]) -> str:
    return fact.record.identity.trajectory_id


def _spans_only(fact: Fact[Generated], segment: Segment) -> SegmentEvidence:
    mask = np.zeros(segment.response_length, np.bool_)
    for span in segment.spans:
        mask[span.start : span.end] = span.origin is Origin.MODEL
    return SegmentEvidence(fact.place, mask, None, None)


def _verified(fact: Fact[Generated], index: int, segment: Segment, payload: PayloadBytes) -> SegmentEvidence:
    where = f"{payload.place}, segment {index} of {fact.place}"
    try:
        arrays = decode_as(SegmentPayload, payload.data)
    except (UndecodableRecord, ContractViolation) as error:
        raise CannotWrite(NotWritten.PAYLOAD_CORRUPT, f"{where}: {error}") from None
    wrong = list(contradictions(fact.record, index, arrays))
    if wrong:
        raise CannotWrite(NotWritten.DISAGREEMENT, *(f"{where}: {what}" for what in wrong))
    used = UsedPayload(
        record_type=SegmentPayload.__name__,
        subject=_id(fact),
        segment=index,
        chunks=payload.chunks,
        bytes=len(payload.data),
        sha256=segment.payload.sha256 if segment.payload is not None else "",
    )
    return SegmentEvidence(payload.place, mask_of(arrays.action_mask), floats_of(arrays.log_probs), used)


def contradictions(generated: Generated, index: int, arrays: SegmentPayload) -> Iterator[str]:
    """What is in a payload and not what its Generated states of the segment."""
    segment = generated.segments[index]
    stated = (generated.header.run_id, generated.identity.trajectory_id, index)
    if (arrays.run_id, arrays.trajectory_id, arrays.segment) != stated:
        yield f"the payload is of run {arrays.run_id}, trajectory {arrays.trajectory_id}, segment {arrays.segment}"
    length = segment.response_length
    if len(arrays.action_mask) != length or len(arrays.log_probs) != 4 * length:
        yield (
            f"{len(arrays.action_mask)} bytes of mask and {len(arrays.log_probs)} of log-probs for {length} response "
            "tokens"
        )
        return
    mask = mask_of(arrays.action_mask)
    if evidence_digest(mask, floats_of(arrays.log_probs)) != segment.evidence_digest:
        yield "mask and log-probs do not have the evidence_digest that Generated states"
    if int(mask.sum()) != segment.active_tokens:
        yield f"{int(mask.sum())} active tokens, Generated states {segment.active_tokens}"
    yield from _token_contradictions(segment, arrays)


def _token_contradictions(segment: Segment, arrays: SegmentPayload) -> Iterator[str]:
    if not arrays.response_ids:  # redacted
        return
    if len(arrays.response_ids) != 4 * segment.response_length or len(arrays.prompt_ids) % 4:
        yield f"{len(arrays.response_ids)} bytes of token ids for {segment.response_length} response tokens"
    elif len(arrays.prompt_ids) == 4 * segment.prompt_length:  # the prompt alone may be redacted
        if tokens_digest(ints_of(arrays.prompt_ids), ints_of(arrays.response_ids)) != segment.tokens_digest:
            yield "its tokens do not have the tokens_digest that Generated states"
    elif arrays.prompt_ids:
        yield f"{len(arrays.prompt_ids)} bytes of token ids for {segment.prompt_length} prompt tokens"
