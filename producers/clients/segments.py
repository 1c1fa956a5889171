"""Turns the arrays of one training row into what `Generated` says about it and what its payload holds. Pure."""

from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np
import numpy.typing as npt

from rollbook.producers import given
from rollbook.producers.arrays import Field, log_probs, mask_array, token_ids
from rollbook.producers.redaction.policy import Redaction
from rollbook.schemas.codec import encode
from rollbook.schemas.digests import (
    FloatArray,
    IntArray,
    Mask,
    evidence_digest,
    float32_bytes,
    int32_bytes,
    mask_bytes,
)
from rollbook.schemas.records.common import PolicyRef
from rollbook.schemas.records.payload import SegmentPayload
from rollbook.schemas.records.rollout import Origin, Segment, Span


@dataclass(frozen=True, slots=True)
class SegmentArrays:
    """One training row, T response tokens.

    `prompt_ids` [P] and `response_ids` [T] integers from 0 on; `log_probs` [T] real behavior log-probs in nats, above 0
    by rounding alone (0.25), where masked ones may hold anything; `action_mask` [T] bools or 0 and 1, None for all
    active. Give `spans` that cover the response, or `policy` where one policy wrote all of it.
    """

    prompt_ids: npt.ArrayLike
    response_ids: npt.ArrayLike
    log_probs: npt.ArrayLike
    action_mask: npt.ArrayLike | None = None
    policy: PolicyRef | None = None
    spans: Sequence[Span] = ()


@dataclass(frozen=True, slots=True)
class PreparedSegment:
    """A row as the contract wants it."""

    index: int
    prompt_ids: IntArray
    response_ids: IntArray
    action_mask: Mask
    log_probs: FloatArray
    spans: tuple[Span, ...]
    follows_tools: bool = False

    @property
    def by_tool(self) -> Mask:
        """Which response tokens [T] a tool wrote."""
        return _written_by(Origin.TOOL, len(self.response_ids), self.spans)

    def record(self, redaction: Redaction) -> Segment:
        """What `Generated` says of it, but for where its payload will lie. Raises ContractViolation."""
        with Field("Generated", f"segments.{self.index}").built_here():
            return Segment(
                prompt_length=len(self.prompt_ids),
                response_length=len(self.response_ids),
                spans=self.spans,
                active_tokens=int(self.action_mask.sum()),
                tokens_digest=redaction.digest_of_tokens(self.prompt_ids, self.response_ids, self.by_tool),
                evidence_digest=evidence_digest(self.action_mask, self.log_probs),
            )

    def payload(self, run_id: str, trajectory_id: str, redaction: Redaction) -> bytes:
        """The arrays as the `payloads` topic carries them; replay needs mask and log-probs, and no token ids."""
        prompt = redaction.stored_prompt(self.prompt_ids, follows_tools=self.follows_tools)
        response = redaction.stored_response(self.response_ids, self.by_tool)
        return encode(
            SegmentPayload(
                run_id=run_id,
                trajectory_id=trajectory_id,
                segment=self.index,
                prompt_ids=int32_bytes(prompt),
                response_ids=int32_bytes(response),
                action_mask=mask_bytes(self.action_mask),
                log_probs=float32_bytes(self.log_probs),
            )
        )


def prepare_all(segments: Sequence[SegmentArrays]) -> list[PreparedSegment]:
    """The rows of a trajectory. Raises ContractViolation."""
    rows: list[PreparedSegment] = []
    for index, arrays in enumerate(segments):
        given.a(SegmentArrays, arrays, "Generated", f"segments.{index}")
        follows_tools = any(row.follows_tools or row.by_tool.any() for row in rows)
        rows.append(replace(prepare(index, arrays), follows_tools=follows_tools))
    return rows


def prepare(index: int, arrays: SegmentArrays) -> PreparedSegment:
    """Check and convert the arrays of a row. Raises ContractViolation naming the field and the position."""
    field = Field("Generated", f"segments.{index}")
    prompt = token_ids(field / "prompt_ids", arrays.prompt_ids)
    response = token_ids(field / "response_ids", arrays.response_ids)
    length = len(response)
    if not length:
        raise (field / "response_ids").violation(
            "it is empty: an attempt that gave no token is told by generation_failed"
        )
    mask = (
        np.ones(length, np.bool_)
        if arrays.action_mask is None
        else mask_array(field / "action_mask", arrays.action_mask, length)
    )
    behavior = log_probs(field / "log_probs", arrays.log_probs, mask)
    spans = given.listed(arrays.spans, field.record_type, f"{field.path}.spans")
    if (arrays.policy is None) == (not spans):
        raise (field / "spans").violation("give either spans or policy")
    for number, span in enumerate(spans):
        given.a(Span, span, field.record_type, f"{field.path}.spans.{number}")
    if arrays.policy is not None:
        spans = (Span(start=0, end=length, origin=Origin.MODEL, policy=arrays.policy),)
    _check_authorship(field / "action_mask", mask, spans)
    return PreparedSegment(index, prompt, response, mask, behavior, spans)


def _check_authorship(field: Field, mask: Mask, spans: tuple[Span, ...]) -> None:
    wrong = np.flatnonzero(mask & ~_written_by(Origin.MODEL, len(mask), spans))
    if wrong.size:
        raise field.violation(f"position {int(wrong[0])} is active, but no span says that the model wrote it")


def _written_by(origin: Origin, length: int, spans: tuple[Span, ...]) -> Mask:
    written = np.zeros(length, np.bool_)
    for span in spans:
        if span.origin is origin:
            written[span.start : span.end] = True
    return written
