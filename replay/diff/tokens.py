"""Where the tokens of two rows first differ: bit by bit where both logs keep them, else as their digests say."""

from dataclasses import dataclass
from itertools import zip_longest

from rollbook.replay.diff.result import Value
from rollbook.replay.diff.tasks import TrainedRow
from rollbook.replay.history.source import LogSource
from rollbook.replay.materialize.payloads import read_payloads
from rollbook.replay.materialize.report import CannotWrite
from rollbook.schemas.codec import decode_as
from rollbook.schemas.digests import ints_of
from rollbook.schemas.records.payload import SegmentPayload

_FORM = ("prompt_length", "response_length", "tokens_digest")


@dataclass(frozen=True, slots=True)
class TokenDifference:
    """`field` says which tokens `offset` counts; it is None where only lengths or digests are known."""

    field: str
    offset: int | None
    a: Value
    b: Value


def same_tokens(a: TrainedRow, b: TrainedRow) -> bool:
    """The digest is over prompt and response together, so that where one ends is told apart."""
    return all(getattr(a.record, name) == getattr(b.record, name) for name in _FORM)


def first_difference(log_a: LogSource, a: TrainedRow, log_b: LogSource, b: TrainedRow) -> TokenDifference:
    """Of rows whose tokens are not the same."""
    of_a, of_b = _ids(log_a, a), _ids(log_b, b)
    if of_a is not None and of_b is not None:
        for field, ours, theirs in zip(("prompt token", "response token"), of_a, of_b, strict=True):
            for offset, (one, other) in enumerate(zip_longest(ours, theirs)):
                if one != other:
                    return TokenDifference(field, offset, one, other)
    for name in _FORM:
        one, other = getattr(a.record, name), getattr(b.record, name)
        if one != other:
            return TokenDifference(name, None, one, other)
    raise ValueError("the same tokens")


def _ids(log: LogSource, row: TrainedRow) -> tuple[list[int], list[int]] | None:
    """Prompt and response, where neither was left out when it was published."""
    if row.record.payload is None:
        return None
    try:
        (payload,) = read_payloads(log, [row.record.payload])
    except CannotWrite:
        return None
    arrays = decode_as(SegmentPayload, payload.data)
    prompt, response = ([int(one) for one in ints_of(data)] for data in (arrays.prompt_ids, arrays.response_ids))
    whole = (len(prompt), len(response)) == (row.record.prompt_length, row.record.response_length)
    return (prompt, response) if whole else None
