"""Random runs through the fold and the naive model, at every record; and what a whole run must survive."""

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from rollbook.tests.nightly import often
from rollbook.tests.processors.history import refold
from rollbook.tests.processors.proof import walks
from rollbook.tests.processors.proof.compare import ProvenLog
from rollbook.tests.processors.proof.rebuild import check_rebuild

SHORT = st.lists(st.binary(min_size=walks.ROLLS, max_size=walks.ROLLS), max_size=40)
DEEP = st.integers(0, 2**32).map(walks.deep)

quick = settings(
    max_examples=often(each_time=50, each_night=400),
    deadline=None,
    derandomize=True,
    suppress_health_check=[HealthCheck.too_slow],
)


@quick
@given(SHORT | DEEP | DEEP)
def test_the_fold_agrees_with_the_naive_model_at_every_record(rolls: list[bytes]) -> None:
    log = ProvenLog()
    walks.run(log, rolls)
    assert refold(log) == log.decisions


@settings(quick, max_examples=40)
@given(DEEP, st.integers(0, 120), st.integers(1, 9))
def test_a_ledger_rebuilt_from_its_compacted_topic_goes_on_alike(rolls: list[bytes], stop: int, batch: int) -> None:
    check_rebuild(rolls, stop, batch)


@pytest.mark.parametrize("seed", [0, 98])
def test_runs_that_found_something(seed: int) -> None:
    walks.run(ProvenLog(), walks.deep(seed))
