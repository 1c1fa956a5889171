"""Decisions read from their bytes: the same as through the codec, for every decision of random and recorded runs."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from rollbook.processors.dashboard.fold import lean
from rollbook.schemas.codec import UndecodableRecord, decode, encode
from rollbook.schemas.records.decision import Decision
from rollbook.tests.benchmarks.long_run import LongRun
from rollbook.tests.processors.log import Log
from rollbook.tests.processors.proof import walks
from rollbook.tests.processors.test_properties import quick


def same(value: bytes) -> bool:
    """Whether both ways give the same; true also tells that the lean one was gone."""
    head, rest = lean.of_fields(value)
    got = lean.beginning(value)
    assert (got[:-1], lean.whole(value, got[-1])) == (head[:-1], rest)
    try:
        at = lean.head(value)[-1]
        fact = lean.fact(value, at)
        assert fact is None or [fact[:4]] == [row[:4] for row in rest.rows]
        return lean.rest(value, at) == rest
    except (lean.NotLean, IndexError):
        return False


@quick
@given(st.integers(0, 2**32).map(walks.deep))
def test_the_same_as_through_the_codec(walk: list[bytes]) -> None:
    log = Log()
    walks.run(log, walk)
    values = [folded.encoded for folded in log.folded]
    by_hand = sum(same(value) for value in values if len(lean.of_fields(value)[1].subject_id) < 64)
    assert by_hand > len(values) * 0.6, "the others name trajectories with names of different lengths"


def test_decisions_of_a_trainer_are_all_read_from_their_bytes() -> None:
    log = Log()
    for _ in LongRun(log, groups=6, run="a-run").versions(3):
        pass
    left = [folded.decision.record_type for folded in log.folded if not same(folded.encoded)]
    assert left == ["GenerationContract"], "the name of a contract is a digest"


@given(st.integers(-(2**63), 2**63 - 1))
def test_numbers_are_read_as_they_were_written(value: int) -> None:
    assert lean.number(lean.raw_number(value)) == value
    assert lean.number(b"") is None


LONG = "n" * 256


@pytest.mark.parametrize(
    "changes",
    [
        {"run_id": LONG},
        {"reason": LONG},
        {"record_type": LONG},
        {"event_id": LONG},
        {"detail": LONG},
        {"detail": "é\u202e\x00"},
        {"update_id": LONG},
        {"sequence": 2**62, "config_version": 2**40},
        {"missing_workers": (LONG, "w"), "mismatched_workers": ("x",) * 200},
    ],
    ids=str,
)
def test_names_of_any_length(changes: dict[str, object]) -> None:
    log = Log()
    walks.run(log, walks.deep(7))
    for folded in log.folded:
        same(encode(Decision.model_validate({**folded.decision.model_dump(), **changes})))


@quick
@given(st.integers(0, 2**32), st.data())
def test_spoilt_bytes_are_said_to_be_no_decision_or_read(seed: int, data: st.DataObject) -> None:
    log = Log()
    walks.run(log, walks.deep(seed % 50))
    value = bytearray(data.draw(st.sampled_from(log.folded)).encoded)
    for _ in range(data.draw(st.integers(1, 3))):
        value[data.draw(st.integers(0, len(value) - 1))] = data.draw(st.integers(0, 255))
    cut = bytes(value[: data.draw(st.integers(0, len(value)))])
    try:
        lean.whole(cut, lean.beginning(cut)[-1])
    except UndecodableRecord:
        with pytest.raises(UndecodableRecord):
            decode(cut)
