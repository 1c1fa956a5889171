"""Whatever keeps to the contract is decided: an exception in the fold would stop a partition at its record for ever."""

from typing import Any

from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from rollbook.schemas.codec import ContractViolation, decode, encode, make
from rollbook.schemas.records.common import Lifecycle
from rollbook.schemas.records.run import RunConfigured
from rollbook.schemas.registry import LIFECYCLE
from rollbook.tests.processors.history import History, refold
from rollbook.tests.processors.walk import act, deep, warm
from rollbook.tests.schemas.strategies import records

FEW = {
    "trajectory_id": ("t0", "t1", "t2", "\U0001f300"),
    "trajectory_ids": ("t0", "t1", "t2", "\U0001f300"),
    "group_id": ("g0", "g1"),
    "update_id": ("u0", "u1"),
    "update_ids": ("u0", "u1"),
    "learner_id": ("a", "b"),
    "worker_id": ("w0", "w1"),
    "artifact_hash": ("weights-0", "weights-1", "weights-2"),
}
"""Names by field, so that records speak of the same things."""
SMALL = {"version", "epoch", "expected_revision", "expected_epoch", "parent_version", "rollback_of", "part", "rank"}
"""Numbers that must be small to meet."""


def _narrowed(name: str, value: Any) -> Any:
    """The value with ids and numbers from small alphabets, whatever else it holds unchanged."""
    if isinstance(value, dict):
        return {inner: _narrowed(inner, found) for inner, found in value.items()}
    if isinstance(value, tuple):
        return tuple(_narrowed(name, found) for found in value)
    if isinstance(value, str) and name in FEW:
        return FEW[name][sum(value.encode()) % len(FEW[name])]
    if isinstance(value, int) and name in SMALL:
        return value % 4
    return value


def _in_run(drawn: Lifecycle, as_drawn: bool) -> Lifecycle | None:
    plain = drawn.model_dump()
    narrowed = plain if as_drawn else _narrowed("", plain)
    if isinstance(drawn, RunConfigured):
        narrowed |= {"fold_version": 1, "partition_count": 1, "config_version": drawn.config_version % 9 + 1}
    narrowed["header"]["run_id"] = "r"
    try:
        return make(type(drawn), **narrowed)
    except ContractViolation:  # narrowing made two of what must be one: the client would not have sent it
        return None


SENT = st.tuples(st.one_of(*(records(model) for model in LIFECYCLE)), st.booleans())


@settings(
    max_examples=100,
    deadline=None,
    derandomize=True,
    suppress_health_check=[HealthCheck.too_slow, HealthCheck.data_too_large],
)
@given(st.lists(SENT, max_size=12), st.integers(0, 2**32))
def test_any_records_of_the_contract_are_decided(sent: list[tuple[Any, bool]], seed: int) -> None:
    history = warm()
    walk = iter(deep(seed))
    for drawn, as_drawn in sent:
        record = _in_run(drawn, as_drawn)
        if record is None:
            continue
        decision = history.send(record)
        assert decode(history.log.folded[-1].encoded) == decision
        act(history, next(walk))
    for _, value in history.log.ledger.changes():
        assert value is None or encode(decode(value)) == value
    assert refold(history.log) == history.log.decisions


def test_the_longest_names_are_decided_and_can_be_written() -> None:
    name = "\U0001f300" * 254
    history = History("r" * 128).opened()
    history.learner(name, incarnation=name)
    history.generated(f"{name}00", group=name)
    history.rewarded(f"{name}00")
    history.claim(name, learner=name)
    history.admit(name, {f"{name}00": 0.0}, learner=name)
    history.started(name, learner=name)
    history.commit(name, f"{name}00", learner=name)
    history.prepared(1, name, artifact_hash=name)
    history.ack(name, 1, name)
    history.activate(1, name)
    assert [folded.decision.outcome.value for folded in history.log.folded] == ["accepted"] * 12
    for key, value in history.log.ledger.changes():
        assert decode(value or b"")
        assert key.decode()
