"""`rollbook freshness`: every figure of a snapshot is on the page, and none of it is more than text."""

import pytest

from rollbook.infra.commands.inspect import freshness
from rollbook.infra.looking.freshness import print_freshness
from rollbook.processors.freshness import snapshot
from rollbook.schemas.errors import BadInput
from rollbook.schemas.records.policy import AckFailure
from rollbook.tests.processors.history import History
from rollbook.tests.processors.parts import policy

HOSTILE = "[red]w1\u202e"


def lived() -> History:
    """Two updates of two versions, one of them open and in doubt; refusals, failures, and workers of all sorts."""
    history = History("run-a").opened(max_lag=1, workers=("w0", HOSTILE, "silent"), lease_ms=60_000)
    history.learner()
    history.ready("t0", "t1", "t2")
    history.reserve("u0", "t0", "t1", "t2")
    history.admit("u0", {"t0": 0.0, "t1": 0.125, "t2": 3.60039})
    history.started("u0")
    history.commit("u0", "t0", "t1")
    history.prepared(1, "u0")
    for worker in ("w0", HOSTILE, "silent"):
        history.ack(worker, 1)
    history.activate(1)
    history.ready("t3", "t4")
    history.failed("t5")
    history.reserve("u1", "t3")
    history.started("u1")
    history.expired("u1")
    history.ack(HOSTILE, 0, seq=9, failure=AckFailure.LOAD_FAILED)
    history.prepared(2)
    return history


def told(history: History, capsys: pytest.CaptureFixture[str]) -> list[str]:
    """The page, its blanks evened out."""
    print_freshness(snapshot(history.run))
    return [" ".join(line.split()) for line in capsys.readouterr().out.splitlines()]


@pytest.mark.parametrize(
    "line",
    [
        "run run-a",
        f"active policy 1 ({policy(1).artifact_hash})",
        f"learner's policy 2 ({policy(2).artifact_hash})",
        "largest tolerated lag 1 (depth)",
        "largest tolerated drift 0.2 nats (drift gate required)",
        "ready, stale with the next activation 1",
        "ready, stale for the learner's policy 1",
        "capacity 0 more trajectories (0 updates of 2 rows left for them)",
        "consumed 2 at lag 0",
        "updates in doubt 1",
        "required workers behind 1",
        "0 rewarded 1",
        "up to 0.0001 nats 1 0",
        "up to 5 nats 0 1",
        "0 3 1.241797",
        "Admit policy_drift 1",
        "generation timeout 1",
        "u1 trainer 3 started 1 60000 20 yes",
        f"w0 yes 1 ({policy(1).artifact_hash}) yes 0.0 12",
        "[red]w1\\u202e yes load_failed no 0.9 23",
    ],
)
def test_it_is_on_the_page(line: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert line in told(lived(), capsys)


def test_before_the_first_update_the_page_says_what_it_does_not_know(capsys: pytest.CaptureFixture[str]) -> None:
    lines = told(History("run-a").opened(), capsys)
    assert "capacity not known before the first update has started" in lines
    assert "consumed none" in lines
    assert "Workers" not in " ".join(lines)


@pytest.mark.parametrize(("named", "run"), [(None, None), ("a", "a")])
def test_one_run_is_named_one_way(named: str | None, run: str | None) -> None:
    with pytest.raises(BadInput, match="a run, and only one, is wanted"):
        freshness(named, run)
