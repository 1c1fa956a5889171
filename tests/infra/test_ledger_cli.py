"""`rollbook ledger`: the compacted topic shows what the fold knows, failures beside what was consumed."""

import json
from collections.abc import Iterator

import pytest

from rollbook.infra.command import run as rollbook
from rollbook.infra.looking.ledger import heard_at, read_ledger, view
from rollbook.infra.looking.place import place_of_run
from rollbook.infra.settings import Settings
from rollbook.schemas.partition import partition_of
from rollbook.schemas.records.ledger import TrajectoryStatus
from rollbook.tests.conftest import PARTITIONS
from rollbook.tests.infra.rich_run import decide, rich
from rollbook.tests.processors.history import History
from rollbook.tests.session_broker import own_topics

RUN, HOSTILE = "told", "evil\u202e[bold]"


def neighbour() -> str:
    """A run in the same partition."""
    names = (f"next-{at}" for at in range(99))
    return next(name for name in names if partition_of(name, PARTITIONS) == partition_of(RUN, PARTITIONS))


@pytest.fixture(scope="module")
def own(broker: str) -> Iterator[Settings]:
    with own_topics(broker, PARTITIONS) as settings:
        yield settings


@pytest.fixture(scope="module")
def decided(own: Settings) -> History:
    """The rich run, and after it in the same partition another one with a hostile update in doubt."""
    history = rich(RUN, PARTITIONS)
    other = History(neighbour(), log=history.log, topic_partitions=PARTITIONS).opened(lease_ms=1)
    other.learner("c")
    other.ready("x0")
    other.reserve(HOSTILE, "x0", learner="c")
    other.admit(HOSTILE, {"x0": 0.0}, learner="c")
    other.started(HOSTILE, learner="c")
    other.expired(HOSTILE)
    decide(own, history)
    return history


@pytest.fixture(autouse=True)
def environment(own: Settings, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("ROLLBOOK_BOOTSTRAP_SERVERS", own.bootstrap_servers)
    monkeypatch.setenv("ROLLBOOK_TOPIC_PREFIX", own.topic_prefix)


def page(capsys: pytest.CaptureFixture[str], *arguments: str) -> str:
    assert rollbook(["ledger", *arguments]) == 0
    return capsys.readouterr().out


def words(text: str) -> str:
    return " ".join(text.split())


def test_it_is_what_the_fold_knows(decided: History) -> None:
    with place_of_run(RUN) as place:
        run, next_offset = read_ledger(place)
        heard = heard_at(place, run, None)
    assert next_offset == decided.log.next_offset
    assert view(run, next_offset, heard) == view(decided.run, next_offset, heard)
    assert view(run, 0, heard, update_id="u0") == view(decided.run, 0, heard, update_id="u0")
    assert set(heard) == {update.last_activity_offset for update in run.updates.all_open()}


def test_failures_are_states_beside_what_was_consumed(decided: History, capsys: pytest.CaptureFixture[str]) -> None:
    text = words(page(capsys, "--run", RUN))
    assert (
        "consumed so far 2; never trained on, and no reward of 0: 1 generation_failed, 1 reward_failed, 1 discarded"
        in text
    )
    assert "1 quarantined" in text
    assert f"after decision {decided.run.head.sequence}" in text
    assert f"chain {decided.run.head.chain}" in text
    assert "updates 1 open, 1 committed, 1 rolled_back" in text
    assert f"u2 open b epoch {decided.epoch('b')} {decided.run.head.sequence - 1}" in text
    assert "2 orphaned weights-2" in text
    assert "w0 1 weights-1 0.0" in text
    assert "RewardReady t9" in text


def test_every_state_is_counted_also_at_nothing(decided: History, capsys: pytest.CaptureFixture[str]) -> None:
    found = json.loads(page(capsys, "--run", RUN, "--json"))
    assert list(found["trajectories"]) == [state.value for state in TrajectoryStatus]
    assert found["trajectories"]["consumed"] == 2
    assert found["trajectories"]["offline"] == 0
    assert found["head"]["chain"] == decided.run.head.chain
    assert [one["update_id"] for one in found["open_updates"]] == ["u2"]
    assert found["open_updates"][0]["heard_ms"] > 0
    assert [(one["version"], one["phase"]) for one in found["policies"]] == [
        (0, "superseded"),
        (1, "active"),
        (2, "orphaned"),
    ]


def test_trajectories_are_listed_by_state(decided: History, capsys: pytest.CaptureFixture[str]) -> None:
    listed = json.loads(page(capsys, "--run", RUN, "--state", "consumed", "--json"))["listed"]
    assert [row["trajectory_id"] for row in listed] == ["t0", "t1"]
    assert "t0 consumed 4 g0 0 of 4 0 u0 0" in words(page(capsys, "--run", RUN, "--state", "consumed"))
    assert words(page(capsys, "--run", RUN, "--state", "offline")) == "trajectories none"


def test_an_update_lists_what_it_holds_or_trained_on(decided: History, capsys: pytest.CaptureFixture[str]) -> None:
    text = words(page(capsys, "--run", RUN, "--update", "u0"))
    assert "update u0 state committed" in text
    assert "trained on 2 ranks sealed 0" in text
    assert "t0 consumed" in text
    assert "t4" not in text
    assert "holds 1" in words(page(capsys, "--run", RUN, "--update", "u2"))


def test_a_neighbour_in_the_partition_is_another_run(decided: History, capsys: pytest.CaptureFixture[str]) -> None:
    text = page(capsys, "--run", neighbour())
    assert "evil\\u202e[bold]  started, in doubt" in text
    assert "\u202e" not in text
    assert "weights-1" not in text


def test_what_it_does_not_know_is_a_no(decided: History, capsys: pytest.CaptureFixture[str]) -> None:
    cases = ((["--run", "nobody"], 2), (["--run", "a\nb"], 2), (["--run", RUN, "--update", "u9\n"], 1))
    for arguments, code in cases:
        assert rollbook(["ledger", *arguments]) == code
        captured = capsys.readouterr()
        assert captured.out == ""
        assert captured.err.count("\n") == 1
