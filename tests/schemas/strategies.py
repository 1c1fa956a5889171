"""Records of any type for property tests: drawn from the models, then repaired to what their validators ask."""

import types
import typing
from collections.abc import Callable
from enum import StrEnum
from functools import cache
from typing import Annotated, Any, Union, get_args, get_origin

from hypothesis import strategies as st
from pydantic import BaseModel

from rollbook.schemas.records.common import SourceKind, TrajectoryIdentity
from rollbook.schemas.records.convention import Correction
from rollbook.schemas.records.policy import AckFailure, ActivationAck, EvidenceKind, PolicyPrepared
from rollbook.schemas.records.rollout import Generated, Origin, Segment, Span
from rollbook.schemas.records.run import RunConfigured
from rollbook.schemas.records.update import Abort, AbortReason, Admit, Commit, LeaseExpired, Reserve
from rollbook.schemas.types import (
    INT63_MAX,
    AboveZero,
    Bytes,
    Count,
    Digest,
    Finite,
    Flag,
    Id,
    NonNegative,
    Part,
    PartialShare,
    Positive,
    RunId,
    Share,
    Text,
)

Fields = dict[str, Any]

_ID_CHARACTERS = st.characters(exclude_categories=["Cs"], exclude_characters=[chr(code) for code in [*range(32), 127]])
_SCALARS: tuple[tuple[Any, st.SearchStrategy[Any]], ...] = (
    (Id, st.text(_ID_CHARACTERS, min_size=1, max_size=8)),
    (Text, st.text(st.characters(exclude_categories=["Cs"]), max_size=8)),
    (RunId, st.from_regex(r"\A[A-Za-z0-9][A-Za-z0-9._:/-]{0,12}\Z")),
    (Digest, st.binary(min_size=32, max_size=32).map(bytes.hex)),
    (Count, st.integers(0, 3) | st.integers(0, INT63_MAX)),
    (Positive, st.integers(1, 3) | st.integers(1, INT63_MAX)),
    (Flag, st.booleans()),
    (Finite, st.floats(allow_nan=False, allow_infinity=False)),
    (NonNegative, st.floats(min_value=0.0, allow_nan=False, allow_infinity=False)),
    (AboveZero, st.floats(min_value=0.0, exclude_min=True, allow_nan=False, allow_infinity=False)),
    (Share, st.floats(0.0, 1.0)),
    (PartialShare, st.floats(0.0, 1.0, exclude_min=True, exclude_max=True)),
    (Bytes, st.binary(max_size=8)),
    (int, st.integers(-(2**63), INT63_MAX)),
)


@cache
def records(model: type[Part]) -> st.SearchStrategy[Part]:
    """Any record of this type."""
    hints = typing.get_type_hints(model, include_extras=True)
    fields = {name: _values(hints[name]) for name in model.model_fields}
    return st.fixed_dictionaries(fields).map(lambda drawn: _build(model, drawn))


def _build(model: type[Part], drawn: Fields) -> Part:
    repair = _REPAIRS.get(model, _as_drawn)
    return model(**repair(drawn))


def _values(annotation: Any) -> st.SearchStrategy[Any]:
    for known, strategy in _SCALARS:
        if annotation == known:
            return strategy
    origin = get_origin(annotation)
    if origin is Annotated:
        return _values(get_args(annotation)[0])
    if origin in (Union, types.UnionType):
        inner = next(arg for arg in get_args(annotation) if arg is not types.NoneType)
        return st.none() | _values(inner)
    if origin is tuple:
        return st.lists(_values(get_args(annotation)[0]), min_size=1, max_size=3).map(tuple)
    if issubclass(annotation, StrEnum):
        return st.sampled_from(list(annotation))
    assert issubclass(annotation, BaseModel)
    return records(annotation)


def _as_drawn(drawn: Fields) -> Fields:
    return drawn


def _span(drawn: Fields) -> Fields:
    start = drawn["start"] % 1000
    by_model = drawn["policy"] is not None
    return drawn | {
        "start": start,
        "end": start + 1 + drawn["end"] % 1000,
        "origin": Origin.MODEL if by_model else Origin.TOOL,
    }


def _segment(drawn: Fields) -> Fields:
    at, laid = 0, []
    for span in drawn["spans"]:
        laid.append(span.model_copy(update={"start": at, "end": at + span.end - span.start}))
        at = laid[-1].end
    by_model = sum(span.end - span.start for span in laid if span.origin is Origin.MODEL)
    return drawn | {
        "spans": tuple(laid),
        "response_length": at,
        "active_tokens": drawn["active_tokens"] % (by_model + 1),
    }


def _identity(drawn: Fields) -> Fields:
    return drawn | {"sample_index": drawn["sample_index"] % drawn["group_expected"]}


def _generated(drawn: Fields) -> Fields:
    if not any(span.policy for segment in drawn["segments"] for span in segment.spans):
        policy = {"version": 1, "artifact_hash": "weights"}
        spans = ({"start": 0, "end": 1, "origin": Origin.MODEL, "policy": policy},)
        first = drawn["segments"][0].model_dump() | {"spans": spans, "response_length": 1, "active_tokens": 1}
        drawn = drawn | {"segments": (Segment.model_validate(first),)}
    return drawn


def _run_configured(drawn: Fields) -> Fields:
    return drawn | {
        "horizon": drawn["horizon"] and max(drawn["horizon"], drawn["admission"].max_lag),
        "required_workers": _unique(drawn["required_workers"]),
    }


def _reserve(drawn: Fields) -> Fields:
    claimed = drawn["claim"] is not None
    if claimed:
        claim = drawn["claim"]
        drawn = drawn | {"claim": claim.model_copy(update={"max_groups": claim.max_groups % 8192 + 1})}
    return drawn | {"items": () if claimed else _unique_items(drawn["items"])}


def _admit(drawn: Fields) -> Fields:
    return drawn | {"items": _unique_items(drawn["items"])}


def _commit(drawn: Fields) -> Fields:
    steps = [step.model_copy(update={"step_id": at, "rollout_id": 7}) for at, step in enumerate(drawn["steps"])]
    return drawn | {"steps": tuple(steps), "expected_ranks": _unique(drawn["expected_ranks"])}


def _prepared(drawn: Fields) -> Fields:
    version = drawn["version"] % 1000 + 1
    rollback = None if drawn["rollback_of"] is None else version - 1
    updates = () if rollback is not None else _unique(drawn["update_ids"])
    return drawn | {"version": version, "parent_version": version - 1, "rollback_of": rollback, "update_ids": updates}


def _ack(drawn: Fields) -> Fields:
    if drawn["serves"] is None:
        failure = drawn["failure"] or AckFailure.TIMEOUT
        return drawn | {"evidence": None, "probe": None, "failure": failure}
    evidence = EvidenceKind.PROBE if drawn["probe"] is not None else EvidenceKind.FILE_HASH
    return drawn | {"evidence": evidence, "failure": None}


def _abort(drawn: Fields) -> Fields:
    operator = drawn["learner"] is None
    repaired = drawn | {"reason": AbortReason.OPERATOR if operator else AbortReason.UPDATE_FAILED}
    return _by(SourceKind.OPERATOR, repaired) if operator else repaired


def _expired(drawn: Fields) -> Fields:
    return _by(SourceKind.PROCESSOR, drawn)


def _correction(drawn: Fields) -> Fields:
    least, most = drawn["least"], drawn["most"]
    return drawn | {"least": least if least is None or most is None else min(least, most)}


def _by(kind: SourceKind, drawn: Fields) -> Fields:
    header = drawn["header"]
    return drawn | {"header": header.model_copy(update={"source": header.source.model_copy(update={"kind": kind})})}


def _unique(values: tuple[Any, ...]) -> tuple[Any, ...]:
    return tuple(dict.fromkeys(values))


def _unique_items(items: tuple[Any, ...]) -> tuple[Any, ...]:
    return tuple({item.trajectory_id: item for item in items}.values())


_REPAIRS: dict[type[Part], Callable[[Fields], Fields]] = {
    Span: _span,
    Segment: _segment,
    TrajectoryIdentity: _identity,
    Generated: _generated,
    RunConfigured: _run_configured,
    Reserve: _reserve,
    Admit: _admit,
    Commit: _commit,
    PolicyPrepared: _prepared,
    ActivationAck: _ack,
    Abort: _abort,
    LeaseExpired: _expired,
    Correction: _correction,
}
